# ruff: noqa: F401  (what is imported for type checkers is listed in _HOMES)
"""How long evaluation prompts really are, and the vLLM settings that follow."""

import sys
from types import ModuleType

from chunkscope._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers know better; typing itself takes a while to load
if TYPE_CHECKING:
    from typing import Any

    from chunkscope.commands.api import analyze, recommend, report, simulate, verify
    from chunkscope.diagnosis.diagnosis import Diagnosis
    from chunkscope.diagnosis.doctor import doctor
    from chunkscope.errors import ChunkscopeError
    from chunkscope.gating.gate import gate
    from chunkscope.lengths.histogram import LengthHistogram
    from chunkscope.lengths.options import AnalyzeOptions
    from chunkscope.lengths.profile import DatasetProfile, Profile
    from chunkscope.planning.plan import Plan
    from chunkscope.reference.chunked import chunked
    from chunkscope.reference.demo import demo
    from chunkscope.report.prefixes import prefixes
    from chunkscope.simulation.result import Simulation
    from chunkscope.verification.result import Verification
    from chunkscope.vllm.footprint import memory

_HOMES = {
    "commands.api": ("analyze", "recommend", "report", "simulate", "verify"),
    "diagnosis.diagnosis": ("Diagnosis",),
    "diagnosis.doctor": ("doctor",),
    "errors": ("ChunkscopeError",),
    "gating.gate": ("gate",),
    "lengths.histogram": ("LengthHistogram",),
    "lengths.options": ("AnalyzeOptions",),
    "lengths.profile": ("DatasetProfile", "Profile"),
    "planning.plan": ("Plan",),
    "reference.chunked": ("chunked",),
    "reference.demo": ("demo",),
    "report.prefixes": ("prefixes",),
    "simulation.result": ("Simulation",),
    "verification.result": ("Verification",),
    "vllm.footprint": ("memory",),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)


class _Package(ModuleType):
    """Keeps `chunkscope.report` a command, though a folder has its name, too."""

    def __setattr__(self, name: str, value: "Any") -> None:
        if name not in ("prefixes", "report") or type(value) is not ModuleType:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return __all__  # what a notebook offers on Tab, though it is not loaded yet


def __getattr__(name: str) -> "Any":
    if name not in __all__:  # what is, is loaded on first use
        raise AttributeError(f"module 'chunkscope' has no attribute {name!r}")
    from importlib import import_module

    import_module("chunkscope.report.section")  # what Python shows of results
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = getattr(import_module(f"chunkscope.{home}"), name)
    return globals()[name]
