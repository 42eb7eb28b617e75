"""A diagnosis: what was configured, what fitted, what happened, and what limited it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from chunkscope.artefacts.artefact import Artefact, now
from chunkscope.diagnosis.phases import Bound, LoadPhase
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.steps import StepTally
from chunkscope.vllm.log.timeline import LogWindow, together
from chunkscope.vllm.log.trouble import LoggedTrouble, RefusedPrompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing that limited an engine.

    `effect` only orders them: the share of its time where that is known, 1 where it ended the
    engine, and a rank by judgement for what was merely set.
    """

    rule: str
    title: str
    evidence: tuple[str, ...]
    lines: tuple[int, ...]  # where the log says so
    change: str
    effect: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An argument that the plan sets otherwise; None is what the engine does not say."""

    name: str
    planned: Any
    found: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedFit:
    """What the memory model says of the same model, GPU and settings."""

    gpu: str
    weights_gib: float
    activation_gib: float
    kv_cache_gib: float
    kv_cache_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """One engine, from its start to the next or to the end of the log."""

    source: str
    first_line: int
    last_line: int
    engines: int
    facts: EngineFacts
    arguments: dict[str, Any]
    differences: tuple[Difference, ...]
    predicted: PredictedFit | None
    windows: tuple[LogWindow, ...]
    phases: tuple[LoadPhase, ...]
    prompt_tokens: float
    output_tokens: float
    busy_s: float
    hit_rate: float | None
    preemptions: int | None
    steps: StepTally | None
    refused: RefusedPrompts | None
    trouble: LoggedTrouble | None
    symptoms: tuple[Symptom, ...]

    def seconds_of(self, bound: Bound) -> float:
        """Of several engines, as long as it was for each on average."""
        engines = len({phase.engine for phase in self.phases}) or 1
        return sum(phase.seconds for phase in self.phases if phase.bound is bound) / engines

    @property
    def peak_running(self) -> int:
        return max((window.running for window in together(self.windows)), default=0)

    @property
    def peak_waiting(self) -> int:
        return max((window.waiting for window in together(self.windows)), default=0)

    @property
    def peak_kv_use(self) -> float | None:
        return max((window.kv_use for window in self.windows), default=None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnosis(Artefact):
    """What `doctor` answers.

    >>> from chunkscope import doctor
    >>> doctor("tests/diagnosis/logs/vllm-0.28-cpu-kv-bound.log")
    <Diagnosis kv-bound, eager, client-bound>
    """

    title: ClassVar = "diagnosis"
    schema: ClassVar = "chunkscope/doctor/2"
    made_by: ClassVar = "chunkscope doctor vllm.log"
    default_path: ClassVar = Path("reports/doctor.json")

    engines: tuple[EngineReport, ...]
    lines: int
    understood: int
    unknown: dict[str, int]
    notes: tuple[str, ...] = ()
    created: str = field(default_factory=now)
    version: str = ""

    @property
    def headline(self) -> str:
        names = dict.fromkeys(symptom.rule for symptom in self.symptoms)
        return ", ".join(names) or "nothing limits it"

    @property
    def symptoms(self) -> tuple[Symptom, ...]:
        """Of all engines, the gravest first."""
        found = [symptom for engine in self.engines for symptom in engine.symptoms]
        return tuple(sorted(found, key=lambda symptom: -symptom.effect))

    @property
    def contradiction(self) -> str | None:
        """What cannot be, as no log says it: shares over one, fewer than none."""
        for engine in self.engines:
            shares = [engine.hit_rate, *(w.kv_use for w in engine.windows)]
            counts = [engine.refused.most if engine.refused else 0, engine.engines, self.lines]
            if any(share is not None and not 0 <= share <= 1 for share in shares):
                return "a share is not between 0 and 100 %"
            if any(count < 0 for count in counts):
                return "a count is negative"
        return None if self.engines else "it is of no engine"

    @property
    def refused_prompts(self) -> int:
        return sum(engine.refused.most for engine in self.engines if engine.refused)
