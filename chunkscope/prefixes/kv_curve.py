"""How much of the prompts is found by the size of the KV cache, while others run.

The model: prompts are taken in their order, as many at a time as fit and vLLM lets run. Each holds
the blocks of its prompt and answer until it ends, and the one that began first ends first. What
is left of the cache holds the blocks of those that have ended, the longest unused going first.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from chunkscope.prefixes.prefixes import Ints, Paths, PromptBlocks, ideal_cached_tokens
from chunkscope.prefixes.reuse import BLOCK_SIZE, FLAT, CachedAt
from chunkscope.prefixes.sharing import Sharing, block_paths

RUNNING = 256  # vLLM's own max_num_seqs on most GPUs
_CAPACITIES = [1 << power for power in range(14, 27)]  # 16K tokens to 64M
_MOST_PROMPTS = 100_000  # go through the caches: more would take longer than counting them
_LEAST_FOUND = 0.002  # of the tokens: with less to be found, the size of a cache does not matter


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many requests run at a time at most, and how long the answer of each is."""

    running: int = RUNNING
    output_tokens: int = 1


ONE_BY_ONE = Load(running=1)


def lru_cached_tokens(
    prompts: PromptBlocks, paths: Paths, kv_blocks: int, load: Load = ONE_BY_ONE
) -> Ints:
    """By prompt, the tokens it finds in so many blocks.

    Of one prompt the last blocks go first. A block that is written again counts as the same. A
    prompt that does not fit finds nothing.
    """
    computed = prompts.tokens + (load.output_tokens - 1)  # an answer's last token is not
    blocks = np.maximum(computed // prompts.block_size, prompts.full + prompts.left_out)
    full = blocks.tolist()
    partial = (computed > blocks * prompts.block_size).tolist()  # found by nobody, while it runs
    kept = [0] * len(full)  # by prompt: the blocks there that it was the last to use
    last_user: dict[int, int] = {}  # by branch
    oldest, reach = 0, full[0]  # the prompt that loses blocks next, and how far it still has them
    eldest, running_blocks = 0, 0  # the first that still runs; shared blocks are counted once
    held, found = 0, [0] * len(full)  # full blocks in the cache, of those that run too
    runs = [0] * len(full)  # by prompt: 1 if it ran or runs; the others do not fit
    running = 0
    for row, (path, mine, part) in enumerate(zip(paths, full, partial.copy(), strict=True)):
        if mine + part > kv_blocks:
            partial[row] = False
            continue
        known = 0
        for branch, start, end in path:
            user = last_user.get(branch, -1)
            if user >= oldest:
                there = end if user > oldest or end < reach else reach
                if there > start:
                    kept[user] -= there - start
                    if user >= eldest:
                        running_blocks -= there - start
                    known = there
            last_user[branch] = row
        found[row] = known
        held += mine - known + part
        kept[row] = mine
        running_blocks += mine + part
        runs[row] = 1
        running += 1
        while running_blocks > kv_blocks or running > load.running:
            running_blocks -= kept[eldest] + partial[eldest]
            held -= partial[eldest]
            running -= runs[eldest]
            eldest += 1
        while held > kv_blocks:
            rest = kept[oldest] - (held - kv_blocks)
            if rest > 0:
                kept[oldest], reach, held = rest, reach - (held - kv_blocks), kv_blocks
            else:
                held -= kept[oldest]
                kept[oldest] = 0
                oldest += 1
                reach = full[oldest]
    return prompts.found(np.array(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedPrompts:
    """Prompts in an order, and what they find when nothing is forgotten."""

    prompts: PromptBlocks
    paths: Paths
    ideal_tokens: int

    @classmethod
    def of(cls, prompts: PromptBlocks, paths: Paths) -> "OrderedPrompts":
        ideal = int(ideal_cached_tokens(prompts).sum())
        return cls(prompts=prompts, paths=paths, ideal_tokens=ideal)

    def in_order(self, order: Ints) -> "OrderedPrompts":
        paths = [self.paths[row] for row in order.tolist()]
        return OrderedPrompts.of(self.prompts.in_order(order), paths)

    def found(self, capacity: int, load: Load) -> int:
        kv_blocks = capacity // self.prompts.block_size
        return int(lru_cached_tokens(self.prompts, self.paths, kv_blocks, load).sum())


class _Line:
    """What an order finds, from small capacities to large ones, until it is flat."""

    def __init__(self, ordered: OrderedPrompts, load: Load) -> None:
        self._ordered = ordered
        self._load = load
        self._found = 0
        self.is_flat = False

    def at(self, capacity: int) -> int:
        if not self.is_flat:
            self._found = self._ordered.found(capacity, self._load)
            self.is_flat = self._found >= FLAT * self._ordered.ideal_tokens
        return self._found


def curve(
    in_file: OrderedPrompts, best: OrderedPrompts, as_sent: OrderedPrompts | None, load: Load
) -> Iterator[CachedAt]:
    """What each order finds, from room for two of the longest prompts up to where all are flat.

    The best order is left out where the others find all in the smallest cache already.
    """
    prompts = in_file.prompts
    least_found = max(1, _LEAST_FOUND * int(prompts.tokens.sum()))
    if len(prompts.full) > _MOST_PROMPTS or in_file.ideal_tokens < least_found:
        return
    least = 2 * (int(prompts.tokens.max(initial=0)) + load.output_tokens + prompts.block_size)
    lines = [_Line(ordered, load) for ordered in (in_file, as_sent) if ordered]
    sorted_line = _Line(best, load)
    sizes = [size for size in _CAPACITIES if size >= least]
    for capacity in sizes:
        found = [line.at(capacity) for line in lines]
        is_first_and_flat = capacity == sizes[0] and all(line.is_flat for line in lines)
        yield CachedAt(
            kv_tokens=capacity,
            cached_tokens=found[0],
            best_order_cached_tokens=None if is_first_and_flat else sorted_line.at(capacity),
            sent_order_cached_tokens=found[1] if as_sent else None,
        )
        if is_first_and_flat or all(line.is_flat for line in (*lines, sorted_line)):
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
    found = lru_cached_tokens(prompts, paths, kv_tokens // BLOCK_SIZE, load)
    return float(found.sum() / tokens.sum())
