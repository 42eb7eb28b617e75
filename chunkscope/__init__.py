"""chunkscope: how long evaluation prompts really are, and the vLLM settings that follow.

>>> import chunkscope
>>> profile = chunkscope.analyze("sample_data/")  # doctest: +SKIP
>>> profile.overall.percentile(95)  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chunkscope.analysis import AnalyzeOptions, analyze
    from chunkscope.errors import ChunkscopeError
    from chunkscope.histogram import LengthHistogram
    from chunkscope.plan import Plan
    from chunkscope.planning import recommend
    from chunkscope.profile import DatasetProfile, Profile

__version__ = "0.1.0"

__all__ = [
    "AnalyzeOptions",
    "ChunkscopeError",
    "DatasetProfile",
    "LengthHistogram",
    "Plan",
    "Profile",
    "analyze",
    "recommend",
]

_HOMES = {
    "AnalyzeOptions": "analysis",
    "ChunkscopeError": "errors",
    "DatasetProfile": "profile",
    "LengthHistogram": "histogram",
    "Plan": "plan",
    "Profile": "profile",
    "analyze": "analysis",
    "recommend": "planning",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: `chunkscope --help` needs none of it.
    if name not in _HOMES:
        raise AttributeError(f"module 'chunkscope' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"chunkscope.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
