"""How long evaluation prompts really are, and the vLLM settings that follow."""

from chunkscope._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers know better; typing itself takes a while to load
if TYPE_CHECKING:
    from typing import Any

    from chunkscope.commands.api import analyze as analyze
    from chunkscope.commands.api import prefix_sharing as prefix_sharing
    from chunkscope.commands.api import recommend as recommend
    from chunkscope.commands.api import simulate as simulate
    from chunkscope.commands.api import verify as verify
    from chunkscope.commands.api import write_report as write_report
    from chunkscope.diagnosis.diagnosis import Diagnosis as Diagnosis
    from chunkscope.diagnosis.doctor import doctor as doctor
    from chunkscope.errors import ChunkscopeError as ChunkscopeError
    from chunkscope.gating.gate import gate as gate
    from chunkscope.lengths.histogram import LengthHistogram as LengthHistogram
    from chunkscope.lengths.options import AnalyzeOptions as AnalyzeOptions
    from chunkscope.lengths.profile import DatasetProfile as DatasetProfile
    from chunkscope.lengths.profile import Profile as Profile
    from chunkscope.planning.plan import Plan as Plan
    from chunkscope.reference.chunked import chunked as chunked
    from chunkscope.reference.demo import demo as demo
    from chunkscope.simulation.result import Simulation as Simulation
    from chunkscope.verification.result import Verification as Verification
    from chunkscope.vllm.footprint import memory as memory

# Where each public name is defined. It is loaded on first use.
_HOMES = {
    "AnalyzeOptions": "chunkscope.lengths.options",
    "ChunkscopeError": "chunkscope.errors",
    "DatasetProfile": "chunkscope.lengths.profile",
    "Diagnosis": "chunkscope.diagnosis.diagnosis",
    "LengthHistogram": "chunkscope.lengths.histogram",
    "Plan": "chunkscope.planning.plan",
    "Profile": "chunkscope.lengths.profile",
    "Simulation": "chunkscope.simulation.result",
    "Verification": "chunkscope.verification.result",
    "analyze": "chunkscope.commands.api",
    "chunked": "chunkscope.reference.chunked",
    "demo": "chunkscope.reference.demo",
    "doctor": "chunkscope.diagnosis.doctor",
    "gate": "chunkscope.gating.gate",
    "memory": "chunkscope.vllm.footprint",
    "prefix_sharing": "chunkscope.commands.api",
    "recommend": "chunkscope.commands.api",
    "simulate": "chunkscope.commands.api",
    "verify": "chunkscope.commands.api",
    "write_report": "chunkscope.commands.api",
}
__all__ = list(_HOMES)


def __dir__() -> list[str]:
    return __all__  # what a notebook offers on Tab, though it is not loaded yet


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module 'chunkscope' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
