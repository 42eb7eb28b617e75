"""Logs and servers -> a diagnosis. The same for the command line and for Python."""

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path

from chunkscope._version import __version__
from chunkscope.artefacts.files import Name
from chunkscope.artefacts.note import Note, note
from chunkscope.diagnosis.diagnosis import Diagnosis, Difference, EngineReport
from chunkscope.diagnosis.phases import phases
from chunkscope.diagnosis.rules import Engine, find_symptoms
from chunkscope.diagnosis.servers import watch
from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.hardware.gpus import Gpu, find_gpu
from chunkscope.lengths.profile import Profile
from chunkscope.models import find_model
from chunkscope.planning.engine_log import is_model, read_log, weigh_otherwise
from chunkscope.planning.plan import Plan
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.flags import release
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.reader import EngineStart, LogReader
from chunkscope.vllm.settings import OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a log is held against, where there is any of it."""

    plan: Plan | None = None
    profile: Profile | None = None
    gpu: Gpu | None = None
    model: str | None = None


NOTHING = Context()
OTHER_GPU = 0.05  # a difference in memory that no driver makes


def doctor(
    *sources: str | os.PathLike[str],
    plan: Plan | Name | None = None,
    profile: Profile | Name | None = None,
    gpu: str | None = None,
    model: str | None = None,
    seconds: float = 10.0,
) -> Diagnosis:
    """What limited vLLM, by its logs or /metrics; servers are watched for `seconds`.

    A source is the path of a log (`-`: standard input) or the address of a server.

    >>> doctor("tests/diagnosis/logs/vllm-0.28-cpu-does-not-fit.log").symptoms[0].title.code
    'ended_context_too_long'
    """
    planned = None if plan is None else Plan.load(plan)
    sent = None if profile is None else Profile.load(profile)
    context = Context(
        plan=planned, profile=sent, gpu=find_gpu(gpu) if gpu else None, model=model
    )
    if not sources:
        raise UsageError(
            "no log and no server was named", hint="name one, such as vllm.log"
        )
    reports: list[EngineReport] = []
    notes: list[Note] = []
    logs: list[LogReader] = []
    names = [os.fspath(source) for source in sources]
    urls = [
        name for name in names if "://" in name or name.partition(":")[2].isdecimal()
    ]
    for name in names:
        if name not in urls:
            logs.append(LogReader())
            notes += read_log(name, logs[-1])
            reports += [report_of(start, name, context) for start in logs[-1].starts()]
    for reading in watch(urls, seconds) if urls else ():
        notes += reading.notes
        reports.append(
            report_of(reading.start, reading.address, context, reading.finished)
        )
    notes += [n for report in reports if (n := mismatch(context.plan, report.facts))]
    return Diagnosis(
        engines=tuple(reports),
        lines=sum(log.lines for log in logs),
        understood=sum(log.understood for log in logs),
        notes=tuple({note.code + repr(note.values): note for note in notes}.values()),
        version=__version__,
    )


def report_of(
    start: EngineStart,
    source: str,
    context: Context = NOTHING,
    finished: int | None = None,
) -> EngineReport:
    """`finished`: the requests that a server says it has answered."""
    if mismatch(context.plan, start.facts):
        context = replace(context, plan=None)
    deployment = _deployment(start.facts, context)
    default = deployment.effective() if deployment else OWN
    seqs = start.arguments.get("max_num_seqs") or default.max_num_seqs
    engine = Engine(
        start=start,
        phases=phases(start.windows, seqs, ended=start.failure is not None),
        default_budget=default.step_tokens or None,
        profile=context.profile,
        finished=finished,
    )
    return EngineReport(
        **{field.name: getattr(start, field.name) for field in fields(EngineStart)},
        source=source,
        differences=_differences(start, context.plan),
        predicted=deployment.memory(start.settings) if deployment else None,
        gpu=deployment.gpu.title if deployment and deployment.gpu else None,
        phases=engine.phases,
        symptoms=find_symptoms(engine),
    )


# -- what it is held against -----------------------------------------------------------------------


def mismatch(plan: Plan | None, facts: EngineFacts) -> Note | None:
    """Why the plan is not about this engine. What the log does not name may be the plan's."""
    if plan is None:
        return None
    same = is_model(facts.model or "", plan.model, logged=True) if plan.model else None
    bill = plan.deployment.memory(facts.settings)
    if same is False or (same is None and bill and weigh_otherwise(facts, bill)):
        return note("plan_of_another_model", model=facts.model)
    if plan.gpu is not None:
        size = facts.device_gib or plan.gpu.memory_gib
        more = (facts.weights_gib or 0.0) + (
            facts.kv_cache_gib or 0.0
        ) > plan.gpu.memory_gib
        if (
            facts.device == "cpu"
            or more
            or abs(size / plan.gpu.memory_gib - 1) > OTHER_GPU
        ):
            return note("plan_of_another_gpu", gpu=plan.gpu.title)
    return None


def _deployment(facts: EngineFacts, context: Context) -> Deployment | None:
    """For the memory model; None where the GPU or the model is not known."""
    plan, name = (
        context.plan,
        context.model or (Path(facts.model).name if facts.model else None),
    )
    try:
        gpu = context.gpu or (plan.gpu if plan else None)
        if gpu is None or facts.device == "cpu":
            return None
        shape = plan.model if plan and plan.model and not context.model else None
        shape = shape or (find_model(name) if name else None)
        compiled = facts.found_compiled is not None
        deployment = Deployment(
            release=release(facts.version), gpu=gpu, compiled_before=compiled
        )
        return replace(deployment, shape=shape) if shape else None
    except ChunkscopeError:
        if context.model:
            raise  # it was asked for by name
        return None


def _differences(start: EngineStart, plan: Plan | None) -> tuple[Difference, ...]:
    """Where the engine has not what the plan sets. What it does not say is no difference."""
    if plan is None:
        return ()
    actual = start.settings.given()
    return tuple(
        Difference(name=name, planned=value, actual=actual[name])
        for name, value in plan.settings.given().items()
        if name in actual and actual[name] != value
    )
