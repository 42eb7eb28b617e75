"""chunkscope: how long evaluation prompts really are, and the vLLM settings that follow.

>>> import chunkscope
>>> profile = chunkscope.analyze("sample_data/")  # doctest: +SKIP
>>> profile.overall.percentile(95)  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chunkscope.analysis import AnalyzeOptions, analyze
    from chunkscope.errors import ChunkscopeError
    from chunkscope.gating.check import gate
    from chunkscope.gating.verdict import GateResult
    from chunkscope.histogram import LengthHistogram
    from chunkscope.plan import Plan
    from chunkscope.planning import recommend
    from chunkscope.profile import DatasetProfile, Profile
    from chunkscope.simulation import simulate
    from chunkscope.simulation.result import Simulation
    from chunkscope.verification.result import Verification
    from chunkscope.verification.verifying import VerifyOptions, verify

__version__ = "0.1.0"

__all__ = [
    "AnalyzeOptions",
    "ChunkscopeError",
    "DatasetProfile",
    "GateResult",
    "LengthHistogram",
    "Plan",
    "Profile",
    "Simulation",
    "Verification",
    "VerifyOptions",
    "analyze",
    "gate",
    "recommend",
    "simulate",
    "verify",
]

_HOMES = {
    "AnalyzeOptions": "analysis",
    "ChunkscopeError": "errors",
    "DatasetProfile": "profile",
    "GateResult": "gating.verdict",
    "LengthHistogram": "histogram",
    "Plan": "plan",
    "Profile": "profile",
    "Simulation": "simulation.result",
    "Verification": "verification.result",
    "VerifyOptions": "verification.verifying",
    "analyze": "analysis",
    "gate": "gating.check",
    "recommend": "planning",
    "simulate": "simulation",
    "verify": "verification.verifying",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: `chunkscope --help` needs none of it.
    if name not in _HOMES:
        raise AttributeError(f"module 'chunkscope' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"chunkscope.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
