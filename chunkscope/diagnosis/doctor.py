"""Logs and servers -> a diagnosis. The same for the command line and for Python."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from chunkscope._version import __version__
from chunkscope.artefacts.files import Name
from chunkscope.artefacts.note import Note, note
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.diagnosis.phases import phases
from chunkscope.diagnosis.rules import Case, find_symptoms
from chunkscope.diagnosis.servers import watch
from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.hardware.gpus import Gpu, find_gpu
from chunkscope.lengths.profile import Profile
from chunkscope.models import ModelShape, find_model
from chunkscope.planning.engine_log import is_model, read_log
from chunkscope.planning.plan import Plan
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.flags import release
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.reader import LogReader
from chunkscope.vllm.log.start import Difference, EngineStart

OTHER_GPU = 0.05  # a difference in memory that no driver makes


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a log is held against, where there is any of it."""

    plan: Plan | None = None
    profile: Profile | None = None
    gpu: Gpu | None = None
    model: str | None = None


NOTHING = Context()


def doctor(
    *sources: str | os.PathLike[str],
    plan: Plan | Name | None = None,
    profile: Profile | Name | None = None,
    gpu: str | None = None,
    model: str | None = None,
    seconds: float = 10.0,
) -> Diagnosis:
    """What limited vLLM, by its logs or /metrics; servers are watched for `seconds`.

    A source is the path of one server's log (`-`: standard input) or a server's
    address.

    >>> log = "tests/diagnosis/logs/vllm-0.28-cpu-does-not-fit.log"
    >>> doctor(log).symptoms[0].title.code
    'ended_context_too_long'
    """
    context = Context(
        plan=None if plan is None else Plan.load(plan),
        profile=None if profile is None else Profile.load(profile),
        gpu=find_gpu(gpu) if gpu else None,
        model=model,
    )
    if not sources:
        raise UsageError(
            "no log and no server was named", hint="name one, such as vllm.log"
        )
    engines: list[EngineStart] = []
    notes: list[Note] = []
    lines = 0
    understood = 0
    for source in sources:
        name = os.fspath(source)
        if _is_address(name):
            server = watch(name, seconds)
            notes += server.notes
            engines.append(diagnosed(server.start, context, server.finished))
            continue
        reader = LogReader()
        notes += read_log(name, reader)
        lines += reader.lines
        understood += reader.understood
        for start in reader.starts():
            engines.append(diagnosed(replace(start, source=name), context))
    for engine in engines:
        for mismatch in mismatches(context.plan, engine.facts):
            if mismatch not in notes:
                notes.append(mismatch)
    return Diagnosis(
        engines=tuple(engines),
        lines=lines,
        understood=understood,
        notes=tuple(notes),
        version=__version__,
    )


def _is_address(name: str) -> bool:
    """`localhost:8000` is one, too."""
    return "://" in name or name.partition(":")[2].isdecimal()


def diagnosed(
    start: EngineStart, context: Context = NOTHING, finished: int | None = None
) -> EngineStart:
    """With what limited it. `finished`: the requests that a server has answered."""
    plan = context.plan
    if mismatches(plan, start.facts):
        plan = None
    deployment = _deployment(start.facts, replace(context, plan=plan))
    default_budget = None
    max_num_seqs = start.arguments.get("max_num_seqs")
    if deployment:
        default = deployment.complete()
        default_budget = default.max_num_batched_tokens
        max_num_seqs = max_num_seqs or default.max_num_seqs
        predicted = deployment.memory(start.settings)
        gpu = deployment.gpu.title if deployment.gpu else None
        start = replace(start, predicted=predicted, gpu=gpu)
    limit = max_num_seqs if isinstance(max_num_seqs, int) else None
    start = replace(
        start,
        differences=_differences(start, plan),
        phases=phases(start.windows, limit, ended=start.failure is not None),
    )
    case = Case(
        start=start,
        default_budget=default_budget,
        profile=context.profile,
        finished=finished,
    )
    return replace(start, symptoms=find_symptoms(case))


# -- what it is held against ---------------------------------------------------


def mismatches(plan: Plan | None, facts: EngineFacts) -> list[Note]:
    """Why the plan is not about this engine. What the log does not say may fit."""
    if plan is None:
        return []
    if plan.model and is_model(facts.model or "", plan.model, logged=True) is False:
        return [note("plan_of_another_model", model=facts.model)]
    if plan.gpu is None:
        return []
    device_gib = facts.device_gib or plan.gpu.memory_gib
    other_size = abs(device_gib / plan.gpu.memory_gib - 1) > OTHER_GPU
    if facts.device == "cpu" or other_size:
        return [note("plan_of_another_gpu", gpu=plan.gpu.title)]
    return []


def _deployment(facts: EngineFacts, context: Context) -> Engine | None:
    """For the memory model; None where the GPU or the model is not known."""
    gpu = context.gpu
    if gpu is None and context.plan:
        gpu = context.plan.gpu
    if gpu is None or facts.device == "cpu":
        return None
    try:
        shape = _shape(facts, context)
        version = release(facts.version)
    except ChunkscopeError:
        if context.model:
            raise  # it was asked for by name
        return None
    compiled = facts.found_compiled is not None
    return Engine(release=version, gpu=gpu, shape=shape, compiled_before=compiled)


def _shape(facts: EngineFacts, context: Context) -> ModelShape | None:
    if context.model:
        return find_model(context.model)
    if context.plan and context.plan.model:
        return context.plan.model
    return find_model(Path(facts.model).name) if facts.model else None


def _differences(start: EngineStart, plan: Plan | None) -> tuple[Difference, ...]:
    """Where the engine has not what the plan sets, as far as it says what it has."""
    if plan is None:
        return ()
    actual = start.settings.given()
    differences = []
    for name, value in plan.settings.given().items():
        if name in actual and actual[name] != value:
            differences.append(
                Difference(name=name, planned=value, actual=actual[name])
            )
    return tuple(differences)
