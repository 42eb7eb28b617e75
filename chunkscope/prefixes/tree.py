"""The prefix tree of a dataset, by vLLM's rule: from token ids, or the blocks that a trace names.

vLLM finds full blocks only, each known by its tokens and all before it; at most n - 1 tokens of a
prompt are found, for its last token has to be computed; prompts are taken in their order. Requests
for the likelihood of a prompt write to the cache and do not read from it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from chunkscope.artefacts.artefact import Numbers
from chunkscope.prefixes.reuse import BLOCK_SIZE
from chunkscope.prefixes.sharing import NOTHING, Path, Sharing, Stretch, block_paths
from chunkscope.tokenizers.reference import ID_BYTES

_BLOCK_BYTES = BLOCK_SIZE * ID_BYTES
_USUAL_SIZES = (512, BLOCK_SIZE)  # of a trace's blocks: Mooncake's, and vLLM's own

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PromptTree:
    """Prompts in an order, and the stretches of blocks that several of them begin with.

    A stretch is blocks that occur only together, one after the other. The blocks of a trace may be
    larger than vLLM's, and the last one of a prompt shorter: it is known as well.
    """

    tokens: Ints  # by prompt
    full: Ints  # by prompt: how many blocks it has here
    reads: NDArray[np.bool_]  # by prompt: whether it reads from the cache
    ends: Ints  # by prompt: the last stretch that it shares, or NOTHING
    parents: list[int]  # by stretch, as they occur: parents before their children
    depths: list[int]  # by stretch: the blocks of a prompt up to its end
    block_size: int = BLOCK_SIZE

    def in_order(self, order: Ints) -> "PromptTree":
        columns = ("tokens", "full", "reads", "ends")
        return replace(self, **{name: getattr(self, name)[order] for name in columns})

    # -- what prompts find -----------------------------------------------------------------------

    def cached(self, known: Sequence[int]) -> Ints:
        """By prompt, the tokens that vLLM finds where so many of its first blocks are known."""
        most = np.minimum(np.array(known, np.int64) * self.block_size, self.tokens - 1)
        return np.where(self.reads, np.maximum(most, 0) // BLOCK_SIZE * BLOCK_SIZE, 0)

    @cached_property
    def ideal(self) -> Ints:
        """By prompt, the tokens it finds in a cache that never forgets."""
        parents, blocks = self.parents, [*self.depths, 0]  # NOTHING is the last of them
        seen = bytearray(len(parents))
        known = []
        for stretch in self.ends.tolist():
            while stretch != NOTHING and not seen[stretch]:
                seen[stretch] = True
                stretch = parents[stretch]
            known.append(blocks[stretch])
        return self.cached(known)

    @cached_property
    def sizes(self) -> list[int]:
        """By stretch, its blocks."""
        before = [*self.depths, 0]
        return [
            depth - before[up]
            for depth, up in zip(self.depths, self.parents, strict=True)
        ]

    @cached_property
    def members(self) -> tuple[list[int], list[int]]:
        """By stretch, how many prompts begin with it, and the first of them."""
        counts, first = (
            [0] * (len(self.parents) + 1),
            [len(self.ends)] * (len(self.parents) + 1),
        )
        for row, stretch in reversed([*enumerate(self.ends.tolist())]):
            counts[stretch] += 1
            first[stretch] = row
        for stretch, up in reversed([*enumerate(self.parents)]):
            counts[up] += counts[stretch]
            first[up] = min(first[up], first[stretch])
        return counts[:-1], first[:-1]

    def depth_first(self) -> Ints:
        """The order in which each prompt follows one that it shares most with."""
        ways: list[
            tuple[int, ...]
        ] = []  # by stretch, the first prompt of each on the way to it
        for up, first in zip(self.parents, self.members[1], strict=True):
            ways.append((*(ways[up] if up != NOTHING else ()), first))
        ways.append(())
        goes_on = (self.full > np.array([*self.depths, 0])[self.ends]).tolist()
        rows = zip(self.ends.tolist(), goes_on, strict=True)
        keys = [
            (*ways[end], row) if own else ways[end]
            for row, (end, own) in enumerate(rows)
        ]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__))

    # -- what is kept ----------------------------------------------------------------------------

    @cached_property
    def paths(self) -> list[Path]:
        """By prompt, the blocks that others have too, by their stretch."""
        tokens = (blocks * self.block_size for blocks in self.sizes)
        pairs = zip(self.parents, tokens, strict=True)
        stretches = [Stretch(parent=parent, tokens=size) for parent, size in pairs]
        ways = [*block_paths(stretches, self.block_size), ()]
        return [ways[end] for end in self.ends.tolist()]

    def sharing(self) -> Sharing:
        """The prompts one by one, and the stretches that several of these begin with."""
        members = self.members[0]
        kept = [stretch for stretch, prompts in enumerate(members) if prompts > 1]
        number = [NOTHING] * (len(members) + 1)  # by stretch, among those that are kept
        for new, stretch in enumerate(kept):
            number[stretch] = new
        for stretch, up in enumerate(self.parents):
            if members[stretch] <= 1:
                number[stretch] = number[up]
        return Sharing(
            lengths=Numbers(self.tokens.tolist()),
            ends=Numbers(number[end] for end in self.ends.tolist()),
            parents=Numbers(number[self.parents[stretch]] for stretch in kept),
            tokens=Numbers(self.sizes[stretch] * self.block_size for stretch in kept),
        )


def tree_of_blocks(
    blocks: Ints,
    full: Ints,
    tokens: Ints,
    reads: Sequence[bool],
    block_size: int = BLOCK_SIZE,
) -> PromptTree:
    """The tree of prompts given as block numbers, those of all prompts one after the other.

    The same number is the same block with the same past.
    """
    rows = np.repeat(np.arange(len(full)), full)
    is_shared = np.bincount(blocks)[blocks] > 1
    blocks, rows = blocks[is_shared], rows[is_shared]
    shared = np.bincount(
        rows, minlength=len(full)
    )  # by prompt: its first blocks, so many
    starts = np.cumsum(shared) - shared
    before = np.concatenate(([NOTHING], blocks))[:-1]
    before[starts[shared > 0]] = NOTHING
    parent = np.full(int(blocks.max(initial=NOTHING)) + 1, NOTHING)
    parent[blocks] = before
    # A stretch ends where it is followed by several, or where a prompt leaves it.
    is_last = np.bincount(parent[parent != NOTHING], minlength=len(parent)) != 1
    is_last[blocks[(starts + shared - 1)[shared > 0]]] = True
    places = np.flatnonzero(is_last[blocks])
    _, first, entry = np.unique(blocks[places], return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)  # as they occur
    number[np.argsort(first)] = np.arange(len(first))
    stretches = number[entry]
    rows_of = rows[places]
    ends = np.full(len(full), NOTHING)
    ends[rows_of] = stretches  # the last to be written is the deepest
    above = np.where(
        np.diff(rows_of, prepend=NOTHING) == 0, np.roll(stretches, 1), NOTHING
    )
    firsts = np.sort(first)
    return PromptTree(
        tokens=tokens,
        full=full,
        reads=np.array(reads, np.bool_),
        ends=ends,
        parents=above[firsts].tolist(),
        depths=(places - starts[rows_of] + 1)[firsts].tolist(),
        block_size=block_size,
    )


def tree_of_prompts(prompts: Sequence[bytes], reads: Sequence[bool]) -> PromptTree:
    """The tree of prompts given as token ids; of each full block 64 bits are compared.

    A hash is the sum of what a block and its place are mixed into and the hash before it: the sums
    of all prompts are made at once.
    """
    tokens = np.fromiter(map(len, prompts), np.int64, len(prompts)) // ID_BYTES
    full = tokens // BLOCK_SIZE
    often = Counter(prompt[:_BLOCK_BYTES] for prompt in prompts)
    shared = full * [often[prompt[:_BLOCK_BYTES]] > 1 for prompt in prompts]  # at most
    sizes = (shared * _BLOCK_BYTES).tolist()
    whole = b"".join(
        [prompt[:size] for prompt, size in zip(prompts, sizes, strict=True)]
    )
    ids = np.frombuffer(whole, "<u4").reshape(-1, BLOCK_SIZE)
    starts = np.cumsum(shared) - shared
    places = np.arange(len(ids)) - np.repeat(starts, shared)
    sums = ids.astype(np.uint64) @ (
        _mixed(np.arange(BLOCK_SIZE, dtype=np.uint64)) | np.uint64(1)
    )
    running = np.cumsum(
        _mixed(sums + _mixed(places.astype(np.uint64))), dtype=np.uint64
    )
    before = np.concatenate((np.zeros(1, np.uint64), running))[starts]
    _, blocks = np.unique(running - np.repeat(before, shared), return_inverse=True)
    return replace(tree_of_blocks(blocks, shared, tokens, reads), full=full)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each bit of the result depends on all of a value (splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


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
    most = int(
        (-(-tokens[several] // (counts[several] - 1)) - 1).min(
            initial=np.iinfo(int).max
        )
    )
    sizes = (*_USUAL_SIZES, *(1 << power for power in range(40)), least)
    return next((size for size in sizes if 0 < least <= size <= most), None)


def tree_of_trace(tokens: Ints, counts: Ints, ids: Ints) -> PromptTree | None:
    """Prompts by their tokens, how many blocks each names, and all of those, one after the other.

    How large a block is follows from the lengths. None where the blocks do not fit the lengths, or
    where a number does not stand for all before it, too.
    """
    size = block_size_of(tokens, counts)
    if size is None:
        return None
    # A shorter block at the end is another than a whole one of the same number.
    sizes = np.full(len(ids), size)
    sizes[(np.cumsum(counts) - 1)[counts > 0]] = (tokens - (counts - 1) * size)[
        counts > 0
    ]
    _, numbers = np.unique(ids, return_inverse=True)
    _, blocks = np.unique(numbers * (size + 1) + sizes, return_inverse=True)
    before = np.concatenate(([-1], blocks))[:-1]
    before[(np.cumsum(counts) - counts)[counts > 0]] = -1
    parents = np.empty(int(blocks.max(initial=-1)) + 1, np.int64)
    parents[blocks] = before
    if (parents[blocks] != before).any():
        return None
    return tree_of_blocks(blocks, counts, tokens, [True] * len(counts), size)
