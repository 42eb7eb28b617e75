"""Logs and servers -> a diagnosis. The same for the command line and for Python."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from chunkscope._version import __version__
from chunkscope.artefacts.words import Name
from chunkscope.diagnosis.diagnosis import Diagnosis, Difference, EngineReport, PredictedFit
from chunkscope.diagnosis.phases import phases
from chunkscope.diagnosis.rules import Patient, examine
from chunkscope.diagnosis.servers import ServerReading, watch
from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.lengths.profile import Profile
from chunkscope.models import find_model
from chunkscope.planning.log_files import read_log
from chunkscope.planning.plan import Plan
from chunkscope.prefixes.reuse import reuse_together
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import Version, release
from chunkscope.vllm.footprint import Footprint, memory
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.reader import EngineLife, EngineLog, LogReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a log is held against, where there is any of it."""

    plan: Plan | None = None
    profile: Profile | None = None
    gpu: str | None = None
    model: str | None = None


NOTHING = Beside()


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

    >>> found = doctor("tests/diagnosis/logs/vllm-0.28-cpu-does-not-fit.log")
    >>> found.symptoms[0].title
    'the KV cache is smaller than one request of max_model_len'
    """
    beside = Beside(
        plan=None if plan is None else Plan.given(plan),
        profile=None if profile is None else Profile.given(profile),
        gpu=gpu,
        model=model,
    )
    return examined([os.fspath(source) for source in sources], beside, seconds)


def examined(sources: Sequence[str], beside: Beside, seconds: float) -> Diagnosis:
    if not sources:
        raise UsageError("no log and no address to look at", hint="name one, such as vllm.log")
    reports: list[EngineReport] = []
    notes: list[str] = []
    logs: list[EngineLog] = []
    for source in sources:
        if not is_address(source):
            reader = LogReader()
            notes += read_log(source, reader)
            logs.append(reader.reading())
            reports += reports_of(logs[-1], source, beside)
    urls = [source for source in sources if is_address(source)]
    for reading in watch(urls, seconds) if urls else ():
        notes += reading.notes
        reports.append(report_of(reading.life, reading.address, beside, reading))
    return put_together(reports, logs, notes)


def is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def put_together(
    reports: Sequence[EngineReport], logs: Sequence[EngineLog], notes: Sequence[str]
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
        notes=tuple(dict.fromkeys(notes)),
        version=__version__,
    )


def reports_of(log: EngineLog, source: str, beside: Beside = NOTHING) -> list[EngineReport]:
    several = len({life.replica for life in log.lives}) > 1
    return [
        report_of(life, f"{source} ({life.replica})" if several else source, beside)
        for life in log.lives
    ]


def report_of(
    life: EngineLife, source: str, beside: Beside, reading: ServerReading | None = None
) -> EngineReport:
    facts = life.facts
    footprint = _footprint(life, beside)
    seqs = life.arguments.get("max_num_seqs") or (
        footprint.settings.max_num_seqs if footprint else None
    )
    found = phases(life.windows, seqs)
    patient = Patient(
        life=life,
        phases=found,
        max_num_seqs=seqs,
        default_budget=_own_budget(footprint),
        shareable=_shareable(beside.profile),
        longest_prompt=beside.profile.overall.max if beside.profile else None,
        preemptions=reading.preemptions if reading else life.preemptions,
        finished=reading.finished if reading else None,
    )
    rates = [w.hit_rate for w in life.windows if w.hit_rate is not None and not w.idle]
    return EngineReport(
        source=source,
        first_line=life.first_line,
        last_line=life.last_line,
        engines=life.engines,
        facts=facts,
        arguments=life.arguments,
        differences=_differences(life, beside.plan),
        predicted=_predicted(footprint),
        windows=life.windows,
        phases=found,
        prompt_tokens=life.prompt_tokens,
        output_tokens=life.output_tokens,
        busy_s=life.busy_s,
        hit_rate=rates[-1] if rates else None,
        preemptions=patient.preemptions,
        steps=life.steps,
        refused=life.refused,
        trouble=life.trouble,
        symptoms=examine(patient, _version(facts)),
    )


def _version(facts: EngineFacts) -> Version | None:
    try:
        return release(facts.version).version if facts.version else None
    except ChunkscopeError:
        return None


# -- what it is held against ---------------------------------------------------------------------


def _footprint(life: EngineLife, beside: Beside) -> Footprint | None:
    """The same engine by the memory model; None where the GPU or the model is not known."""
    plan, facts = beside.plan, life.facts
    name = beside.model or (Path(facts.model).name if facts.model else None)
    try:
        gpu = find_gpu(beside.gpu) if beside.gpu else plan.gpu if plan else None
        shape = plan.model if plan and plan.model and not name else find_model(name or "")
        if gpu is None or shape is None:
            return None
        return memory(
            shape,
            gpu,
            tp=facts.tensor_parallel_size or 1,
            vllm_version=facts.version,
            entry=Entry.SERVE,
            max_model_len=facts.max_model_len,
            max_num_batched_tokens=facts.max_num_batched_tokens,
            max_num_seqs=life.arguments.get("max_num_seqs"),
            gpu_memory_utilization=life.arguments.get("gpu_memory_utilization"),
        )
    except ChunkscopeError:
        if beside.gpu and beside.model:
            raise  # both were asked for by name
        return None


def _predicted(found: Footprint | None) -> PredictedFit | None:
    if found is None:
        return None
    lines = {line.name: line.gib for line in found.memory.lines}
    return PredictedFit(
        gpu=found.gpu.title,
        weights_gib=lines["weights"],
        activation_gib=lines["activation"],
        kv_cache_gib=found.memory.kv_cache_gib,
        kv_cache_tokens=found.memory.kv_cache_tokens,
    )


def _own_budget(found: Footprint | None) -> int | None:
    return found.deployment.effective().max_num_batched_tokens if found else None


def _shareable(profile: Profile | None) -> float | None:
    """The share of all prompt tokens that a cache which never forgets would find."""
    measured = [d.prefixes for d in profile.datasets if d.prefixes] if profile else []
    return reuse_together(measured).hit_rate if measured else None


def _differences(life: EngineLife, plan: Plan | None) -> tuple[Difference, ...]:
    """Where the engine has not what the plan sets. What it does not say is no difference."""
    if plan is None:
        return ()
    known = {f.name: getattr(life.facts, f.name) for f in fields(life.facts)}
    said = {name: value for name, value in known.items() if value is not None}
    found = {**said, **life.arguments}
    planned = plan.settings.given()
    return tuple(
        Difference(name=name, planned=value, found=found[name])
        for name, value in planned.items()
        if name in found and found[name] != value
    )
