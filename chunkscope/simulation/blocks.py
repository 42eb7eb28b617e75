"""Blocks of the KV cache that are still cached.

Blocks have no numbers here, for vLLM's choices never depend on them. They are kept as runs: blocks
that one request could want again, or that several prompts share, in a stretch of the prefix tree.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from chunkscope.prefixes.sharing import Path


def clipped(path: Path, blocks: int) -> Path:
    """The same for a prompt that has only so many full blocks."""
    if not path or path[-1].end <= blocks:
        return path
    return tuple(part._replace(end=min(part.end, blocks)) for part in path if part.start < blocks)


@dataclass(slots=True, eq=False)
class BlockRun:
    """Free blocks `start` to `end` of one request, still cached; the last is reused first."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(slots=True, eq=False)
class SharedRun(BlockRun):
    """Cached blocks of a stretch, held by the same requests.

    Of each holder, by its number, the list of all runs that it holds: runs can be split.
    """

    stretch: int
    holders: dict[int, list["SharedRun"]] = field(default_factory=dict)


class FoundRun(NamedTuple):
    """A run of which blocks `start` to `end` are wanted."""

    run: SharedRun
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CacheHit:
    """What the cache holds of a request: shared runs, then its `own` from before preemption."""

    shared: tuple[FoundRun, ...] = ()
    own: int = 0

    @property
    def blocks(self) -> int:
        return self.own + (self.shared[-1].end if self.shared else 0)

    @property
    def evictable(self) -> int:
        """Free blocks among them: taking one makes the free ones fewer."""
        if not self.shared:
            return self.own
        unused = [found for found in self.shared if not found.run.holders]
        return self.own + sum(found.end - found.start for found in unused)


NO_HIT = CacheHit()
