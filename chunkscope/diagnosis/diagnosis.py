"""A diagnosis: what was configured, what fitted, what happened, and what limited it."""

from dataclasses import dataclass, field
from typing import ClassVar

from chunkscope.artefacts.artefact import Artefact, now
from chunkscope.artefacts.note import Note
from chunkscope.vllm.log.start import EngineStart, Symptom


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnosis(Artefact):
    """What `doctor` answers."""

    schema: ClassVar = "chunkscope/doctor/9"
    made_by: ClassVar = "chunkscope doctor vllm.log"

    engines: tuple[EngineStart, ...]
    lines: int
    understood: int
    notes: tuple[Note, ...] = ()
    created: str = field(default_factory=now)
    version: str = ""

    @property
    def symptoms(self) -> tuple[Symptom, ...]:
        """Those of all engines, the worst first: of equal ones what ended an engine."""
        symptoms: list[Symptom] = []
        for engine in self.engines:
            symptoms += engine.symptoms
        symptoms.sort(key=lambda symptom: (-symptom.effect, symptom.rule != "ended"))
        return tuple(symptoms)

    @property
    def refused_prompts(self) -> int:
        return sum(engine.refused.most for engine in self.engines if engine.refused)
