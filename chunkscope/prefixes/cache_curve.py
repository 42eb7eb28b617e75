"""How much of the prompts is found by the size of the KV cache, while others run.

The model: prompts are taken in their order, as many at a time as fit and vLLM lets run. Each holds
the blocks of its prompt and answer until it ends, and the one that began first ends first. What
is left of the cache holds the blocks of those that have ended, the longest unused going first.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from chunkscope.prefixes.reuse import FLAT, RUNNING, CachedAt
from chunkscope.prefixes.sharing import Path
from chunkscope.prefixes.tree import Ints, PromptTree

_CAPACITIES = [1 << power for power in range(14, 27)]  # 16K tokens to 64M
MOST_PROMPTS = (
    2_000  # go through each cache, the first ones: comparing is cheaper than counting
)
_LEAST_FOUND = (
    0.002  # of the tokens: with less to be found, the size of a cache does not matter
)


class _LruCache:
    """Blocks of requests that run, and of those that have ended as long as there is room.

    Requests are numbered as they come. Of one that has ended the last blocks go first; a block that
    is written again counts as the same.
    """

    def __init__(self, full: list[int], partial: list[bool], kv_blocks: int) -> None:
        self.full = full  # by request: its full blocks, those of its answer too
        self.partial = (
            partial  # by request: one block more while it runs, found by nobody
        )
        self.room = kv_blocks
        self.held = 0  # blocks in the cache
        self.last_used = [0] * len(
            full
        )  # by request: blocks there that it was the last to use
        self.last_user: dict[int, int] = {}  # by branch
        self.oldest, self.reach = (
            0,
            full[0] if full else 0,
        )  # who loses blocks next, down to where
        self.first_running = 0
        self.running = 0
        self.running_blocks = 0  # shared ones are counted once
        self.fits = [
            mine + part <= kv_blocks for mine, part in zip(full, partial, strict=True)
        ]

    def begin(self, request: int, path: Path, most_running: int) -> int:
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
            first = self.first_running
            if self.fits[first]:
                self.running_blocks -= self.last_used[first] + self.partial[first]
                self.held -= self.partial[first]
                self.running -= 1
            self.first_running += 1
        while self.held > self.room:  # goes what was used longest ago, from its end
            over, oldest = self.held - self.room, self.oldest
            rest = self.last_used[oldest] - over
            if rest > 0:
                self.last_used[oldest], self.reach, self.held = (
                    rest,
                    self.reach - over,
                    self.room,
                )
            else:
                self.held -= self.last_used[oldest]
                self.last_used[oldest] = 0
                self.oldest += 1
                self.reach = self.full[self.oldest]
        return known


def lru_cached_tokens(
    tree: PromptTree, kv_blocks: int, running: int = 1, output_tokens: int = 1
) -> Ints:
    """By prompt, the tokens it finds in so many blocks, while so many run that answer so much."""
    computed = tree.tokens + (output_tokens - 1)  # an answer's last token is not
    blocks = np.maximum(computed // tree.block_size, tree.full)
    partial = computed > blocks * tree.block_size
    cache = _LruCache(blocks.tolist(), partial.tolist(), kv_blocks)
    known = [
        cache.begin(request, path, running) if cache.fits[request] else 0
        for request, path in enumerate(tree.paths)
    ]
    return tree.cached(known)


def curve(
    as_sent: PromptTree, best: PromptTree, output_tokens: int
) -> Iterator[CachedAt]:
    """What each order finds, from room for two of the longest prompts up to where both are flat."""
    ideal = int(as_sent.ideal.sum())
    if ideal < max(1, _LEAST_FOUND * int(as_sent.tokens.sum())):
        return
    longest = int(as_sent.tokens.max(initial=0))
    least = 2 * (longest + output_tokens + as_sent.block_size)
    sizes = [size for size in _CAPACITIES if size >= least]
    sent, sorted_ = (
        _cached_by_size(tree, sizes, output_tokens) for tree in (as_sent, best)
    )
    for place in range(max(len(sent), len(sorted_))):
        yield CachedAt(
            kv_tokens=sizes[place],
            cached_tokens=sent[min(place, len(sent) - 1)],
            best_order_cached_tokens=sorted_[min(place, len(sorted_) - 1)],
        )


def _cached_by_size(
    tree: PromptTree, sizes: Sequence[int], output_tokens: int
) -> list[int]:
    """What caches find, up to the first that finds nearly all: by the first prompts, to scale."""
    first = tree.in_order(np.arange(min(len(tree.ends), MOST_PROMPTS)))
    whole, part = int(tree.ideal.sum()), int(first.ideal.sum())
    cached: list[int] = []
    for size in sizes:
        blocks = size // tree.block_size
        tokens = int(lru_cached_tokens(first, blocks, RUNNING, output_tokens).sum())
        cached.append(round(tokens * whole / max(1, part)))
        if tokens >= FLAT * part:
            break
    return cached
