"""Logs and servers -> a diagnosis. The same for the command line and for Python."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from chunkscope._version import __version__
from chunkscope.artefacts.note import Note, note
from chunkscope.artefacts.words import Name
from chunkscope.diagnosis.diagnosis import Diagnosis, Difference, EngineReport
from chunkscope.diagnosis.phases import phases
from chunkscope.diagnosis.rules import Engine, find_symptoms
from chunkscope.diagnosis.servers import ServerReading, watch
from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.lengths.profile import Profile
from chunkscope.models import find_model
from chunkscope.planning.log_files import read_log
from chunkscope.planning.plan import Plan
from chunkscope.prefixes.reuse import reuse_together
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.footprint import Footprint, memory
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.reader import EngineLog, EngineStart, LogReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a log is held against, where there is any of it."""

    plan: Plan | None = None
    profile: Profile | None = None
    gpu: str | None = None
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
    """What logs of vLLM, or servers that run, say of themselves; `seconds` is for servers.

    A source is the path of a log (`-`: standard input) or the address of a server.

    >>> doctor("tests/diagnosis/logs/vllm-0.28-cpu-does-not-fit.log").symptoms[0].title.code
    'ended_context_too_long'
    """
    context = Context(
        plan=None if plan is None else Plan.given(plan),
        profile=None if profile is None else Profile.given(profile),
        gpu=gpu,
        model=model,
    )
    return examined([os.fspath(source) for source in sources], context, seconds)


def examined(sources: Sequence[str], context: Context, seconds: float) -> Diagnosis:
    if not sources:
        raise UsageError("no log and no address to look at", hint="name one, such as vllm.log")
    reports: list[EngineReport] = []
    notes: list[Note] = []
    logs: list[EngineLog] = []
    for source in sources:
        if not is_address(source):
            reader = LogReader()
            notes += read_log(source, reader)
            logs.append(reader.reading())
            for start in logs[-1].starts:
                if not is_of(context.plan, start.facts):
                    notes.append(note("plan_of_another_model", model=start.facts.model))
            reports += reports_of(logs[-1], source, context)
    urls = [source for source in sources if is_address(source)]
    for reading in watch(urls, seconds) if urls else ():
        notes += reading.notes
        reports.append(report_of(reading.start, reading.address, context, reading))
    return put_together(reports, logs, notes)


def is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def put_together(
    reports: Sequence[EngineReport], logs: Sequence[EngineLog], notes: Sequence[Note]
) -> Diagnosis:
    unknown: dict[str, int] = {}
    for log in logs:
        for place, count in log.unknown.items():
            unknown[place] = unknown.get(place, 0) + count
    return Diagnosis(
        engines=tuple(reports),
        lines=sum(log.lines for log in logs),
        understood=sum(log.understood for log in logs),
        unknown=dict(sorted(unknown.items())),
        notes=tuple({note.code + repr(note.values): note for note in notes}.values()),
        version=__version__,
    )


def reports_of(log: EngineLog, source: str, context: Context = NOTHING) -> list[EngineReport]:
    several = len({start.replica for start in log.starts}) > 1
    return [
        report_of(start, f"{source} ({start.replica})" if several else source, context)
        for start in log.starts
    ]


def report_of(
    start: EngineStart, source: str, context: Context, reading: ServerReading | None = None
) -> EngineReport:
    if not is_of(context.plan, start.facts):
        context = replace(context, plan=None)
    footprint = _footprint(start, context)
    seqs = start.arguments.get("max_num_seqs") or (
        footprint.settings.max_num_seqs if footprint else None
    )
    engine = Engine(
        start=start,
        phases=phases(start.windows, seqs),
        max_num_seqs=seqs,
        default_budget=(
            footprint.deployment.effective().max_num_batched_tokens if footprint else None
        ),
        shareable=_shareable(context.profile),
        longest_prompt=context.profile.overall.max if context.profile else None,
        preemptions=reading.preemptions if reading else start.preemptions,
        finished=reading.finished if reading else None,
    )
    rates = [w.hit_rate for w in start.windows if w.hit_rate is not None and not w.idle]
    return EngineReport(
        source=source,
        first_line=start.first_line,
        last_line=start.last_line,
        engines=start.engines,
        facts=start.facts,
        arguments=start.arguments,
        differences=_differences(start, context.plan),
        predicted=footprint.memory if footprint else None,
        gpu=footprint.gpu.title if footprint else None,
        windows=start.windows,
        phases=engine.phases,
        prompt_tokens=start.prompt_tokens,
        output_tokens=start.output_tokens,
        busy_s=start.busy_s,
        hit_rate=rates[-1] if rates else None,
        preemptions=engine.preemptions,
        steps=start.steps,
        refused=start.refused,
        failure=start.failure,
        symptoms=find_symptoms(engine),
    )


# -- what it is held against -----------------------------------------------------------------------


def is_of(plan: Plan | None, facts: EngineFacts) -> bool:
    """Is the plan about this engine's model? What the log does not name may be."""
    if plan is None or plan.model is None or facts.model is None:
        return True
    names = {plan.model.name, Path(plan.model.load_name).name}
    return Path(facts.model).name.lower() in {name.lower() for name in names}


def _footprint(start: EngineStart, context: Context) -> Footprint | None:
    """The same engine by the memory model; None where the GPU or the model is not known."""
    plan, facts = context.plan, start.facts
    name = context.model or (Path(facts.model).name if facts.model else None)
    try:
        gpu = find_gpu(context.gpu) if context.gpu else plan.gpu if plan else None
        if gpu is None or facts.device == "cpu":
            return None
        shape = plan.model if plan and plan.model and not context.model else None
        shape = shape or (find_model(name) if name else None)
        if shape is None:
            return None
        kv_dtype = facts.kv_cache_dtype or "auto"
        return memory(
            shape,
            gpu,
            tp=facts.tensor_parallel_size or 1,
            dp=facts.data_parallel_size or 1,
            ep=bool(start.arguments.get("enable_expert_parallel")),
            vllm_version=facts.version,
            entry=Entry.SERVE,
            max_model_len=facts.max_model_len,
            max_num_batched_tokens=facts.max_num_batched_tokens,
            max_num_seqs=start.arguments.get("max_num_seqs"),
            gpu_memory_utilization=start.arguments.get("gpu_memory_utilization"),
            kv_cache_dtype="fp8" if kv_dtype.startswith("fp8") else "auto",
        )
    except ChunkscopeError:
        if context.gpu and context.model:
            raise  # both were asked for by name
        return None


def _shareable(profile: Profile | None) -> float | None:
    """The share of all prompt tokens that a cache which never forgets would find."""
    measured = [d.prefixes for d in profile.datasets if d.prefixes] if profile else []
    return reuse_together(measured).hit_rate if measured else None


def _differences(start: EngineStart, plan: Plan | None) -> tuple[Difference, ...]:
    """Where the engine has not what the plan sets. What it does not say is no difference."""
    if plan is None:
        return ()
    facts = {f.name: getattr(start.facts, f.name) for f in fields(start.facts)}
    actual = {name: value for name, value in facts.items() if value is not None} | start.arguments
    return tuple(
        Difference(name=name, planned=value, actual=actual[name])
        for name, value in plan.settings.given().items()
        if name in actual and actual[name] != value
    )
