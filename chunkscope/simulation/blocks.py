"""Blocks of the KV cache that are still cached.

Blocks have no numbers here, for vLLM's choices never depend on them. Blocks that only one request
could ever want again are kept as runs; those of a prefix that requests share one by one.
"""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class BlockRun:
    """Free blocks `start` to `end` of one request, still cached; the last is reused first."""

    start: int
    end: int


@dataclass(slots=True, eq=False)
class Block:
    """One cached block of the shared prefix, with the number of requests that hold it."""

    place: int
    ref_cnt: int = 1


@dataclass(frozen=True, slots=True)
class CacheHit:
    """What the cache holds of a request: shared blocks, then its `own` from before preemption."""

    shared: tuple[Block, ...] = ()
    own: int = 0

    @property
    def blocks(self) -> int:
        return len(self.shared) + self.own

    @property
    def evictable(self) -> int:
        """Free blocks among them: taking one makes the free ones fewer."""
        unused = sum(not block.ref_cnt for block in self.shared) if self.shared else 0
        return self.own + unused


NO_HIT = CacheHit()
