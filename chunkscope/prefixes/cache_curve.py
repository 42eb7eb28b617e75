"""How much of the prompts is found by the size of the KV cache, while others run.

The model: prompts are taken in their order, as many at a time as fit and vLLM lets run. Each holds
the blocks of its prompt and answer until it ends, and the one that began first ends first. What
is left of the cache holds the blocks of those that have ended, the longest unused going first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from chunkscope.prefixes.blocks import Ints, PromptBlocks, ideal_cached_tokens
from chunkscope.prefixes.reuse import BLOCK_SIZE, FLAT, RUNNING, CachedAt
from chunkscope.prefixes.sharing import Sharing, block_paths
from chunkscope.prefixes.tree import Paths

_CAPACITIES = [1 << power for power in range(14, 27)]  # 16K tokens to 64M
_MOST_PROMPTS = 2_000  # go through each cache, the first ones: comparing is cheaper than counting
_LEAST_FOUND = 0.002  # of the tokens: with less to be found, the size of a cache does not matter


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many requests run at a time at most, and how long the answer of each is."""

    running: int = RUNNING
    output_tokens: int = 1


ONE_BY_ONE = Load(running=1)


class _LruCache:
    """Blocks of requests that run, and of those that have ended as long as there is room.

    Requests are numbered as they come. Of one that has ended the last blocks go first; a block that
    is written again counts as the same.
    """

    def __init__(self, full: list[int], partial: list[bool], kv_blocks: int) -> None:
        self.full = full  # by request: its full blocks, those of its answer too
        self.partial = partial  # by request: one block more while it runs, found by nobody
        self.room = kv_blocks
        self.held = 0  # blocks in the cache
        self.last_used = [0] * len(full)  # by request: blocks there that it was the last to use
        self.last_user: dict[int, int] = {}  # by branch
        self.oldest, self.reach = 0, full[0] if full else 0  # who loses blocks next, down to where
        self.first_running = 0
        self.running = 0
        self.running_blocks = 0  # shared ones are counted once
        self.fits = [mine + part <= kv_blocks for mine, part in zip(full, partial, strict=True)]

    def begin(self, request: int, path: "list[tuple[int, int, int]]", most_running: int) -> int:
        """Let a request run; how many of its first blocks were there."""
        known = 0
        for branch, start, end in path:
            user = self.last_user.get(branch, -1)
            if user >= self.oldest:
                there = end if user > self.oldest or end < self.reach else self.reach
                if there > start:
                    self.last_used[user] -= there - start
                    if user >= self.first_running:
                        self.running_blocks -= there - start
                    known = there
            self.last_user[branch] = request
        mine, part = self.full[request], self.partial[request]
        self.held += mine - known + part
        self.last_used[request] = mine
        self.running_blocks += mine + part
        self.running += 1
        while self.running_blocks > self.room or self.running > most_running:
            self._end_first()
        while self.held > self.room:
            self._forget()
        return known

    def _end_first(self) -> None:
        first = self.first_running
        if self.fits[first]:
            self.running_blocks -= self.last_used[first] + self.partial[first]
            self.held -= self.partial[first]
            self.running -= 1
        self.first_running += 1

    def _forget(self) -> None:
        """What does not fit, of the request that was used longest ago, from its end."""
        over, oldest = self.held - self.room, self.oldest
        rest = self.last_used[oldest] - over
        if rest > 0:
            self.last_used[oldest], self.reach, self.held = rest, self.reach - over, self.room
        else:
            self.held -= self.last_used[oldest]
            self.last_used[oldest] = 0
            self.oldest += 1
            self.reach = self.full[self.oldest]


def lru_cached_tokens(
    prompts: PromptBlocks, paths: Paths, kv_blocks: int, load: Load = ONE_BY_ONE
) -> Ints:
    """By prompt, the tokens it finds in so many blocks. One that does not fit finds nothing."""
    computed = prompts.tokens + (load.output_tokens - 1)  # an answer's last token is not
    blocks = np.maximum(computed // prompts.block_size, prompts.full)
    partial = computed > blocks * prompts.block_size
    cache = _LruCache(blocks.tolist(), partial.tolist(), kv_blocks)
    known = [
        cache.begin(request, path, load.running) if cache.fits[request] else 0  # type: ignore[arg-type]
        for request, path in enumerate(paths)
    ]
    return prompts.found(np.array(known))


class OrderedPrompts:
    """Prompts in an order, and what they find: when nothing is forgotten, and by capacity."""

    def __init__(self, prompts: PromptBlocks, paths: Paths) -> None:
        self.prompts = prompts
        self.paths = paths
        self.ideal_tokens = int(ideal_cached_tokens(prompts).sum())
        self.is_flat = False  # a larger cache would find no more
        self._cached = 0

    def in_order(self, order: Ints) -> "OrderedPrompts":
        return OrderedPrompts(
            self.prompts.in_order(order), [self.paths[row] for row in order.tolist()]
        )

    @cached_property
    def _first(self) -> "OrderedPrompts":
        """So many of them go through each cache."""
        few = len(self.paths) <= _MOST_PROMPTS
        return self if few else self.in_order(np.arange(_MOST_PROMPTS))

    def cached_tokens(self, capacity: int, load: Load) -> int:
        """What a cache finds; asked from small capacities to large ones, until it is flat."""
        if not self.is_flat:
            prompts, paths, ideal = self._first.prompts, self._first.paths, self._first.ideal_tokens
            cached = lru_cached_tokens(prompts, paths, capacity // prompts.block_size, load).sum()
            self.is_flat = cached >= FLAT * ideal
            self._cached = round(int(cached) * self.ideal_tokens / max(1, ideal))
        return self._cached


def curve(as_sent: OrderedPrompts, best: OrderedPrompts, load: Load) -> Iterator[CachedAt]:
    """What each order finds, from room for two of the longest prompts up to where both are flat.

    The best order is left out where the other finds all in the smallest cache already.
    """
    prompts = as_sent.prompts
    if as_sent.ideal_tokens < max(1, _LEAST_FOUND * int(prompts.tokens.sum())):
        return
    least = 2 * (int(prompts.tokens.max(initial=0)) + load.output_tokens + prompts.block_size)
    sizes = [size for size in _CAPACITIES if size >= least]
    for size in sizes:
        cached = as_sent.cached_tokens(size, load)
        is_enough = size == sizes[0] and as_sent.is_flat
        yield CachedAt(
            kv_tokens=size,
            cached_tokens=cached,
            best_order_cached_tokens=None if is_enough else best.cached_tokens(size, load),
        )
        if is_enough or (as_sent.is_flat and best.is_flat):
            return


def found_share(sharing: Sharing, kv_tokens: int, load: Load) -> float | None:
    """The share of prompt tokens that is found in a KV cache of that size, as they are sent."""
    tokens = np.array(sharing.lengths)
    if not tokens.sum():
        return None
    ways = block_paths(sharing.stretches, BLOCK_SIZE)
    prompts = PromptBlocks(
        tokens=tokens,
        full=tokens // BLOCK_SIZE,
        reads=np.ones(len(tokens), np.bool_),
        blocks=np.zeros(0, np.int64),
    )
    paths = [ways[end] if end >= 0 else () for end in sharing.ends]
    cached = lru_cached_tokens(prompts, paths, kv_tokens // BLOCK_SIZE, load)
    return float(cached.sum() / tokens.sum())
