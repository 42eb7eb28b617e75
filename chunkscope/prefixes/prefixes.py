"""How much of the prompts vLLM's prefix cache would find.

vLLM's rule: full blocks only, each known by its tokens and all before it; at most n - 1 tokens of
a prompt are found, for its last token has to be computed; prompts are taken in their order.
Requests for the likelihood of a prompt write to the cache and do not read from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from chunkscope.prefixes.reuse import BLOCK_SIZE, PrefixGroup

_MOST_GROUPS = 5

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Paths = Sequence[Sequence[tuple[int, int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBlocks:
    """Prompts as rows of block numbers: the same number is the same block with the same past.

    The blocks of a trace may be larger than vLLM's, and the last one of a prompt shorter: it is
    known as well. Blocks that only one prompt has need no numbers: they can be left out behind the
    first such block.
    """

    tokens: Ints  # by prompt
    full: Ints  # by prompt: how many full blocks it has here
    reads: NDArray[np.bool_]  # by prompt: whether it reads from the cache
    blocks: Ints  # of all prompts, one after the other
    left_out: Ints | int = 0  # by prompt: how many more it has, which no other prompt has
    block_size: int = BLOCK_SIZE

    @property
    def rows(self) -> Ints:
        """By block, the prompt it is in."""
        return np.repeat(np.arange(len(self.full)), self.full)

    @property
    def distinct(self) -> int:
        return int(self.blocks.max(initial=-1)) + 1

    @property
    def distinct_tokens(self) -> int:
        sizes = np.full(self.distinct, self.block_size)
        filled = self.full > 0
        last = self.blocks[(np.cumsum(self.full) - 1)[filled]]
        rest = self.tokens - (self.full - 1) * self.block_size
        sizes[last] = np.minimum(rest, (self.left_out + 1) * self.block_size)[filled]
        return int(sizes.sum())

    def found(self, known: Ints) -> Ints:
        """By prompt, the tokens that vLLM finds where so many of its first blocks are known.

        They are full blocks of vLLM's, none with the prompt's last token.
        """
        most = np.maximum(self.tokens - 1, 0)
        found = np.minimum(known * self.block_size, most) // BLOCK_SIZE * BLOCK_SIZE
        return np.where(self.reads, found, 0)

    def in_order(self, order: Ints) -> "PromptBlocks":
        full, starts = self.full[order], (np.cumsum(self.full) - self.full)[order]
        return PromptBlocks(
            tokens=self.tokens[order],
            full=full,
            reads=self.reads[order],
            blocks=self.blocks[stretched(starts, full)],
            left_out=self.left_out if isinstance(self.left_out, int) else self.left_out[order],
            block_size=self.block_size,
        )


def stretched(starts: Ints, sizes: Ints) -> Ints:
    """The places of stretches of an array, one stretch after the other.

    >>> stretched(np.array([5, 0]), np.array([3, 2])).tolist()
    [5, 6, 7, 0, 1]
    """
    shift: Ints = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return np.arange(len(shift)) + shift


def ideal_cached_tokens(prompts: PromptBlocks) -> Ints:
    """By prompt, the tokens it finds in a cache that never forgets."""
    rows = prompts.rows
    first = np.empty(prompts.distinct, np.int64)
    first[prompts.blocks[::-1]] = rows[::-1]  # the last to be written is the first to occur
    # A block is never known without those before it: the known ones are a prompt's first.
    known = np.bincount(rows[first[prompts.blocks] < rows], minlength=len(prompts.full))
    return prompts.found(known)


class PrefixTree:
    """All blocks in branches: blocks that occur only together, one after the other.

    A branch is named by its last block. The arrays have an entry for each branch of each prompt,
    from the root on.
    """

    def __init__(self, prompts: PromptBlocks) -> None:
        self._prompts = prompts
        blocks, full = prompts.blocks, prompts.full
        starts = np.cumsum(full) - full
        filled = full > 0
        before = _shifted(blocks)
        before[starts[filled]] = -1
        parent = np.empty(prompts.distinct, np.int64)
        parent[blocks] = before
        ends_branch = np.bincount(parent[parent >= 0], minlength=prompts.distinct) != 1
        ends_branch[blocks[(starts + full - 1)[filled]]] = True  # where a prompt ends
        places = np.flatnonzero(ends_branch[blocks])
        self.branches = blocks[places]
        self.rows = prompts.rows[places]
        self.depths = places - starts[self.rows] + 1
        self.above = np.where(self.rows == _shifted(self.rows), _shifted(self.branches), -1)
        self.sizes = self.depths - np.where(self.above >= 0, _shifted(self.depths), 0)

    def shared_paths(self) -> Paths:
        """By prompt, the branches that others have too, and the blocks between which each is."""
        shared = np.bincount(self.branches)[self.branches] > 1
        arrays = (self.branches, self.depths - self.sizes, self.depths)
        steps = zip(*(values[shared].tolist() for values in arrays), strict=True)
        counts = np.bincount(self.rows[shared], minlength=len(self._prompts.full))
        return [list(islice(steps, count)) for count in counts.tolist()]

    def depth_first(self) -> Ints:
        """The order in which each prompt follows one that it shares most with."""
        children: dict[int, dict[int, None]] = {}
        for above, branch in zip(self.above.tolist(), self.branches.tolist(), strict=True):
            children.setdefault(above, {})[branch] = None
        turn: dict[int, int] = {}
        waiting = [-1]
        while waiting:
            branch = waiting.pop()
            turn[branch] = len(turn)
            waiting.extend(reversed(children.get(branch, {})))
        deepest = np.full(len(self._prompts.full), -1)
        deepest[self.rows] = self.branches  # the last to be written is the deepest
        return np.argsort([turn[branch] for branch in deepest.tolist()], kind="stable")

    def longest_first(self) -> Ints:
        """lm-eval's order: by falling length, and of one length those that begin alike together."""
        turn = np.empty(len(self._prompts.full), np.int64)
        turn[self.depth_first()] = np.arange(len(turn))
        order: Ints = np.lexsort((turn, -self._prompts.tokens))
        return order

    def _tokens_up_to(self, entry: int) -> int:
        tokens = int(self.depths[entry]) * self._prompts.block_size
        return min(tokens, int(self._prompts.tokens[self.rows[entry]]))

    def groups(self, positions: Sequence[int]) -> tuple[PrefixGroup, ...]:
        """The branches that save most, among those that not every prompt has."""
        _, first, members = np.unique(self.branches, return_index=True, return_counts=True)
        saved = np.where(members < len(self._prompts.full), (members - 1) * self.sizes[first], 0)
        largest = np.lexsort((first, -saved))[:_MOST_GROUPS]
        return tuple(
            PrefixGroup(
                prompts=int(members[group]),
                shared_tokens=self._tokens_up_to(first[group]),
                position=positions[int(self.rows[first[group]])],
            )
            for group in largest[saved[largest] > 0]
        )


def _shifted(values: Ints) -> Ints:
    """Each entry's predecessor; -1 before the first."""
    return np.concatenate(([-1], values))[:-1]
