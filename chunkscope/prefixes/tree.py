"""The prefix tree of a dataset, by vLLM's rule: what prompts find, in which order, and its figures.

vLLM finds full blocks only, each known by its tokens and all before it; at most n - 1 tokens of a
prompt are found, for its last token has to be computed; prompts are taken in their order. Requests
for the likelihood of a prompt write to the cache and do not read from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from chunkscope.artefacts.artefact import Numbers
from chunkscope.prefixes.reuse import BLOCK_SIZE, PrefixGroup
from chunkscope.prefixes.sharing import MOST_PROMPTS, NOTHING, Path, PathPart, Sharing

MOST_STRETCHES = 4_096
_MOST_GROUPS = 5

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

    @property
    def working_set_tokens(self) -> int:
        """Of all blocks that differ."""
        size, shared = self.block_size, np.array([*self.depths, 0])[self.ends]
        missing = np.maximum(self.full * size - self.tokens, 0)  # of a shorter last block
        is_own = self.full > shared
        others = dict(zip(self.ends[~is_own].tolist(), missing[~is_own].tolist(), strict=True))
        blocks = sum(self.sizes) + int((self.full - shared).sum())
        return blocks * size - int(missing[is_own].sum()) - sum(others.values())

    @cached_property
    def sizes(self) -> list[int]:
        """By stretch, its blocks."""
        before = [*self.depths, 0]
        return [depth - before[up] for depth, up in zip(self.depths, self.parents, strict=True)]

    @cached_property
    def members(self) -> tuple[list[int], list[int]]:
        """By stretch, how many prompts begin with it, and the first of them."""
        counts, first = [0] * (len(self.parents) + 1), [len(self.ends)] * (len(self.parents) + 1)
        for row, stretch in reversed([*enumerate(self.ends.tolist())]):
            counts[stretch] += 1
            first[stretch] = row
        for stretch, up in reversed([*enumerate(self.parents)]):
            counts[up] += counts[stretch]
            first[up] = min(first[up], first[stretch])
        return counts[:-1], first[:-1]

    def groups(self, positions: Sequence[int]) -> tuple[PrefixGroup, ...]:
        """The stretches that save most, among those that not every prompt has."""
        members, first = self.members
        triples = zip(members, self.sizes, range(len(members)), strict=True)
        saved = [((n - 1) * size, -at) for n, size, at in triples if n < len(self.ends)]
        return tuple(
            PrefixGroup(
                prompts=members[-at],
                shared_tokens=min(self.depths[-at] * self.block_size, int(self.tokens[first[-at]])),
                position=positions[first[-at]],
            )
            for _, at in sorted(saved, reverse=True)[:_MOST_GROUPS]
        )

    # -- orders ----------------------------------------------------------------------------------

    def depth_first(self) -> Ints:
        """The order in which each prompt follows one that it shares most with."""
        ways: list[tuple[int, ...]] = []  # by stretch, the first prompt of each on the way to it
        for up, first in zip(self.parents, self.members[1], strict=True):
            ways.append((*(ways[up] if up != NOTHING else ()), first))
        ways.append(())
        goes_on = (self.full > np.array([*self.depths, 0])[self.ends]).tolist()
        rows = zip(self.ends.tolist(), goes_on, strict=True)
        keys = [(*ways[end], row) if own else ways[end] for row, (end, own) in enumerate(rows)]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__))

    def longest_first(self) -> Ints:
        """lm-eval's order: by falling length, and of one length those that begin alike together."""
        order = self.depth_first()
        return order[np.argsort(-self.tokens[order], kind="stable")]

    # -- what is kept ----------------------------------------------------------------------------

    @cached_property
    def paths(self) -> list[Path]:
        """By prompt, the blocks that others have too, by their stretch."""
        ways: list[Path] = []
        for stretch, (up, end) in enumerate(zip(self.parents, self.depths, strict=True)):
            before = ways[up] if up != NOTHING else ()
            start = self.depths[up] if up != NOTHING else 0
            ways.append((*before, PathPart(stretch, start, end)) if start < end else before)
        ways.append(())
        return [ways[end] for end in self.ends.tolist()]

    def sharing(self, *, whole: bool = False) -> Sharing:
        """What fits into a profile: the first prompts, and the stretches that save most.

        `whole` leaves nothing out, however much it is.
        """
        tree = self
        if len(self.ends) > MOST_PROMPTS and not whole:  # of a trace
            tree = self.in_order(np.arange(MOST_PROMPTS))
        members, sizes = tree.members[0], tree.sizes
        # A stretch is worth as much as the best behind it: none is kept without its parents.
        worth = [(n - 1) * size for n, size in zip(members, sizes, strict=True)]
        for stretch, up in reversed([*enumerate(tree.parents)]):
            if up != NOTHING:
                worth[up] = max(worth[up], worth[stretch])
        best = sorted(range(len(worth)), key=lambda n: (-worth[n], tree.depths[n]))
        kept = sorted(n for n in best[: None if whole else MOST_STRETCHES] if worth[n] > 0)
        number = [NOTHING] * (len(worth) + 1)  # by stretch, among those that are kept
        for new, stretch in enumerate(kept):
            number[stretch] = new
        for stretch, up in enumerate(tree.parents):
            if number[stretch] == NOTHING:
                number[stretch] = number[up]
        return Sharing(
            lengths=Numbers(tree.tokens.tolist()),
            ends=Numbers(number[end] for end in tree.ends.tolist()),
            parents=Numbers(number[tree.parents[stretch]] for stretch in kept),
            tokens=Numbers(sizes[stretch] * tree.block_size for stretch in kept),
        )


def tree_of_blocks(
    blocks: Ints, full: Ints, tokens: Ints, reads: Sequence[bool], block_size: int = BLOCK_SIZE
) -> PromptTree:
    """The tree of prompts given as block numbers, those of all prompts one after the other.

    The same number is the same block with the same past.
    """
    rows = np.repeat(np.arange(len(full)), full)
    is_shared = np.bincount(blocks)[blocks] > 1
    blocks, rows = blocks[is_shared], rows[is_shared]
    shared = np.bincount(rows, minlength=len(full))  # by prompt: its first blocks, so many
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
    above = np.where(np.diff(rows_of, prepend=NOTHING) == 0, np.roll(stretches, 1), NOTHING)
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
