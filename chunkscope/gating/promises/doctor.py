"""[gate.doctor]: what an engine's log says of its run."""

from collections.abc import Iterator

from chunkscope.artefacts.figures import Better
from chunkscope.artefacts.units import COUNT, SHARE
from chunkscope.gating.budget import DoctorPromises
from chunkscope.gating.evidence import Evidence
from chunkscope.gating.verdict import Verdict, limited
from chunkscope.vllm.log.trouble import RefusedPrompts


def _unexplained(refused: RefusedPrompts | None) -> bool:
    return refused is not None and refused.unexplained > refused.count


def check_doctor(limits: DoctorPromises, evidence: Evidence) -> Iterator[Verdict]:
    found = evidence.diagnosis
    uses = [e.peak_kv_use for e in found.engines if e.peak_kv_use is not None]
    rates = [e.hit_rate for e in found.engines if e.hit_rate is not None]
    figures = (
        ("findings", len(found.symptoms), COUNT, Better.LESS),
        ("refused_prompts", found.refused_prompts, COUNT, Better.LESS),
        ("kv_use", max(uses, default=None), SHARE, Better.LESS),
        ("prefix_hit_rate", min(rates, default=None), SHARE, Better.MORE),
    )
    for key, value, unit, better in figures:
        if (limit := getattr(limits, key)) is None:
            continue
        note = "the log does not say" if value is None else ""
        if key == "findings" and found.symptoms:
            note = ", ".join(dict.fromkeys(symptom.rule for symptom in found.symptoms))
        if key == "refused_prompts" and any(_unexplained(e.refused) for e in found.engines):
            note = "HTTP 400, whose reason a server does not log"
        yield limited(
            f"doctor.{key}", limit, value, unit, better=better, subject="the log", note=note
        )
