"""What the prompts of a trace share: each names the blocks of its tokens by numbers (`hash_ids`).

A number stands for so many tokens and all before them: 512 in Mooncake's traces, 16 in others. How
many is not written down, but follows from the lengths; the last block of a prompt may be shorter.
"""

from array import array
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chunkscope.lengths.trace_export import TraceRows
from chunkscope.prefixes.block_hashes import MOST_BLOCKS, MOST_PROMPTS
from chunkscope.prefixes.measured_reuse import measure
from chunkscope.prefixes.prefixes import Ints, PrefixTree, PromptBlocks, ideal_cached_tokens
from chunkscope.prefixes.reuse import AS_THEY_ARE, HowSent, PrefixReuse
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prefixes.stretches import sharing_of

_USUAL = (512, 16)  # Mooncake's, and vLLM's own


def block_size_of(tokens: Ints, counts: Ints) -> int | None:
    """The block size with which each prompt has as many blocks as it names; None if none does.

    >>> block_size_of(np.array([6758, 2290]), np.array([14, 5]))
    512
    """
    if not counts.any():
        return None
    tokens, counts = tokens[counts > 0], counts[counts > 0]
    several = counts > 1
    least = int((-(-tokens // counts)).max())
    most = int((-(-tokens[several] // (counts[several] - 1)) - 1).min(initial=np.iinfo(int).max))
    powers = (1 << power for power in range(40))
    return next((size for size in (*_USUAL, *powers, least) if 0 < least <= size <= most), None)


def blocks_of_trace(tokens: Ints, counts: Ints, ids: Ints) -> PromptBlocks | None:
    """Prompts by their tokens, how many blocks each names, and all of those, one after the other.

    None where the blocks do not fit the lengths.
    """
    size = block_size_of(tokens, counts)
    if size is None:
        return None
    # A shorter block at the end is another than a whole one of the same number.
    sizes = np.full(len(ids), size)
    sizes[(np.cumsum(counts) - 1)[counts > 0]] = (tokens - (counts - 1) * size)[counts > 0]
    _, numbers = np.unique(ids, return_inverse=True)
    _, blocks = np.unique(numbers * (size + 1) + sizes, return_inverse=True)
    return PromptBlocks(
        tokens=tokens,
        full=counts,
        reads=np.ones(len(counts), bool),
        blocks=_chained(blocks, counts),
        block_size=size,
    )


def _chained(blocks: Ints, counts: Ints) -> Ints:
    """The same, where a number also stands for all before it: some traces number contents alone."""
    before = np.concatenate(([-1], blocks))[:-1]
    before[(np.cumsum(counts) - counts)[counts > 0]] = -1
    parents = np.empty(int(blocks.max(initial=-1)) + 1, np.int64)
    parents[blocks] = before
    if (parents[blocks] == before).all():
        return blocks
    known: dict[tuple[int, int], int] = {}
    chained, past = np.empty_like(blocks), -1
    for place, (block, is_first) in enumerate(
        zip(blocks.tolist(), (before < 0).tolist(), strict=True)
    ):
        past = known.setdefault((-1 if is_first else past, block), len(known))
        chained[place] = past
    return chained


class TraceBlocks:
    """The prompts of one trace, as they come. Memory ends where that of `BlockHashes` does."""

    def __init__(self, trace: TraceRows | None = None) -> None:
        self._trace = trace  # gets every prompt
        self._ids = array("q")
        self._counts: list[int] = []
        self._tokens: list[int] = []
        self._positions: list[int] = []

    def add(
        self, positions: Sequence[int], tokens: Sequence[int], ids: Sequence[list[int]]
    ) -> None:
        if self._trace is not None:
            for position, length, names in zip(positions, tokens, ids, strict=True):
                self._trace.named_prompt(position, length, names)
        if len(self._ids) >= MOST_BLOCKS or len(self._counts) >= MOST_PROMPTS:
            return
        self._positions += positions
        self._tokens += tokens
        self._counts += map(len, ids)
        for numbers in ids:
            self._ids.extend(numbers)

    def best_order(self) -> tuple[int, ...]:
        """None: requests of a trace come when they come."""
        return ()

    def measured(
        self, sent: HowSent = AS_THEY_ARE
    ) -> tuple[PrefixReuse, Sharing] | tuple[None, None]:
        """What they share; nothing where the blocks do not fit the lengths."""
        prompts = blocks_of_trace(
            np.array(self._tokens), np.array(self._counts), np.array(self._ids, np.int64)
        )
        if prompts is None:
            return None, None
        common = _common(prompts)
        tree = PrefixTree(prompts)
        reuse = measure(prompts, tree, positions=self._positions, common_tokens=common, sent=sent)
        half = len(prompts.tokens) // 2
        warm = replace(
            reuse,
            last_half_tokens=int(prompts.tokens[half:].sum()),
            last_half_cached_tokens=int(ideal_cached_tokens(prompts)[half:].sum()),
        )
        return warm, sharing_of(prompts, tree)


def _common(prompts: PromptBlocks) -> int:
    """The tokens of the blocks that all prompts begin with."""
    starts = np.cumsum(prompts.full) - prompts.full
    alike = 0
    while alike < int(prompts.full.min()) and len({*prompts.blocks[starts + alike].tolist()}) == 1:
        alike += 1
    return min(alike * prompts.block_size, int(prompts.tokens.min()))
