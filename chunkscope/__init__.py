"""chunkscope: how long evaluation prompts really are, and the vLLM settings that follow.

>>> import chunkscope
>>> profile = chunkscope.analyze("sample_data/")  # doctest: +SKIP
>>> profile.overall.percentile(95)  # doctest: +SKIP
"""

from chunkscope._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers know better; typing itself takes a while to load
if TYPE_CHECKING:
    from typing import Any

    from chunkscope.diagnosis.diagnosis import Diagnosis
    from chunkscope.diagnosis.doctor import doctor
    from chunkscope.errors import ChunkscopeError
    from chunkscope.gating.check import gate
    from chunkscope.gating.verdict import GateResult
    from chunkscope.lengths.analyze import analyze
    from chunkscope.lengths.histogram import LengthHistogram
    from chunkscope.lengths.options import AnalyzeOptions
    from chunkscope.lengths.profile import DatasetProfile, Profile
    from chunkscope.planning.plan import Plan
    from chunkscope.planning.recommend import recommend
    from chunkscope.planning.rule import Decision, activation
    from chunkscope.reference.wrapper import chunked
    from chunkscope.simulation.result import Simulation
    from chunkscope.simulation.simulate import simulate
    from chunkscope.verification.result import Verification
    from chunkscope.verification.verify import VerifyOptions, verify
    from chunkscope.vllm.footprint import Footprint, memory


__all__ = [
    "AnalyzeOptions",
    "ChunkscopeError",
    "DatasetProfile",
    "Decision",
    "Diagnosis",
    "Footprint",
    "GateResult",
    "LengthHistogram",
    "Plan",
    "Profile",
    "Simulation",
    "Verification",
    "VerifyOptions",
    "activation",
    "analyze",
    "chunked",
    "doctor",
    "gate",
    "memory",
    "recommend",
    "simulate",
    "verify",
]

_HOMES = {
    "AnalyzeOptions": "lengths.options",
    "ChunkscopeError": "errors",
    "DatasetProfile": "lengths.profile",
    "Decision": "planning.rule",
    "Diagnosis": "diagnosis.diagnosis",
    "Footprint": "engine.footprint",
    "GateResult": "gating.verdict",
    "LengthHistogram": "lengths.histogram",
    "Plan": "planning.plan",
    "Profile": "lengths.profile",
    "Simulation": "simulation.result",
    "Verification": "verification.result",
    "VerifyOptions": "verification.verify",
    "activation": "planning.rule",
    "analyze": "lengths.analyze",
    "chunked": "reference.wrapper",
    "doctor": "diagnosis.doctor",
    "gate": "gating.check",
    "memory": "engine.footprint",
    "recommend": "planning.recommend",
    "simulate": "simulation.simulate",
    "verify": "verification.verify",
}


def __dir__() -> list[str]:
    return __all__  # what a notebook offers on Tab, though it is not loaded yet


def __getattr__(name: str) -> "Any":
    # Loaded on first use: `chunkscope --help` needs none of it.
    if name not in _HOMES:
        raise AttributeError(f"module 'chunkscope' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"chunkscope.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
