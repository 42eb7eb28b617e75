"""A diagnosis: what was configured, what fitted, what happened, and what limited it."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from chunkscope.artefacts.artefact import Artefact, now
from chunkscope.artefacts.note import Note
from chunkscope.diagnosis.phases import Bound, LoadPhase
from chunkscope.hardware.memory import Memory
from chunkscope.vllm.log.reader import EngineStart, peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing that limited an engine. `effect` only orders them: the share of its time where that
    is known, 1 where it ended the engine, and a rank by judgement for what was merely set."""

    rule: str
    title: Note
    evidence: tuple[Note, ...]
    change: Note
    effect: float
    lines: tuple[int, ...] = ()  # where the log says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An argument that the plan sets otherwise; None is what the engine does not say."""

    name: str
    planned: Any
    actual: Any


@dataclass(slots=True, kw_only=True)
class EngineReport(EngineStart):
    """One engine's start in a log (`last_line` 0: a server), and what is made of it."""

    source: str
    differences: tuple[Difference, ...]
    predicted: Memory | None  # of the same model, GPU and settings
    gpu: str | None  # that it was predicted for
    phases: tuple[LoadPhase, ...]
    symptoms: tuple[Symptom, ...]

    def seconds_of(self, bound: Bound) -> float:
        """Of several engines that worked, as long as it was for each on average."""
        engines = (
            len({p.window.engine for p in self.phases if p.bound is not Bound.IDLE})
            or 1
        )
        return sum(p.window.seconds for p in self.phases if p.bound is bound) / engines

    @property
    def hit_rate(self) -> float | None:
        """Of the prefix cache, as it says last."""
        rates = (w.hit_rate for w in reversed(self.windows) if not w.idle)
        return next((rate for rate in rates if rate is not None), None)

    @property
    def peak_running(self) -> int:
        return peak(self.windows, "running")

    @property
    def peak_waiting(self) -> int:
        return peak(self.windows, "waiting")

    @property
    def peak_kv_use(self) -> float | None:
        return max((window.kv_use for window in self.windows), default=None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnosis(Artefact):
    """What `doctor` answers."""

    schema: ClassVar = "chunkscope/doctor/7"
    made_by: ClassVar = "chunkscope doctor vllm.log"

    engines: tuple[EngineReport, ...]
    lines: int
    understood: int
    notes: tuple[Note, ...] = ()
    created: str = field(default_factory=now)
    version: str = ""

    @property
    def symptoms(self) -> tuple[Symptom, ...]:
        """Those of all engines, the worst first: of equal ones what ended an engine."""
        symptoms = [symptom for engine in self.engines for symptom in engine.symptoms]
        return tuple(
            sorted(symptoms, key=lambda one: (-one.effect, one.rule != "ended"))
        )

    @property
    def refused_prompts(self) -> int:
        return sum(engine.refused.most for engine in self.engines if engine.refused)
