"""Real prompts for a workload (stub)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RealPrompts:
    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    source: str
