"""The prefix tree of a dataset, and what of it is small enough to keep in a profile."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from chunkscope.artefacts.schema import Numbers
from chunkscope.prefixes.blocks import Ints, PromptBlocks
from chunkscope.prefixes.reuse import PrefixGroup
from chunkscope.prefixes.sharing import MOST_PROMPTS, NOTHING, Sharing

MOST_STRETCHES = 4_096
_MOST_GROUPS = 5

Paths = Sequence[Sequence[tuple[int, int, int]]]


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

    def groups(self, positions: Sequence[int]) -> tuple[PrefixGroup, ...]:
        """The branches that save most, among those that not every prompt has."""
        _, first, members = np.unique(self.branches, return_index=True, return_counts=True)
        saved = np.where(members < len(self._prompts.full), (members - 1) * self.sizes[first], 0)
        largest = np.lexsort((first, -saved))[:_MOST_GROUPS]
        rows = self.rows[first]
        shared = np.minimum(
            self.depths[first] * self._prompts.block_size, self._prompts.tokens[rows]
        )
        return tuple(
            PrefixGroup(
                prompts=int(members[group]),
                shared_tokens=int(shared[group]),
                position=positions[int(rows[group])],
            )
            for group in largest[saved[largest] > 0]
        )


def _shifted(values: Ints) -> Ints:
    """Each entry's predecessor; -1 before the first."""
    return np.concatenate(([-1], values))[:-1]


def sharing_of(prompts: PromptBlocks, *, whole: bool = False) -> Sharing:
    """What prompts share, in their order: of the first ones and the longest shared stretches.

    `whole` leaves nothing out, however much it is.
    """
    if len(prompts.full) > MOST_PROMPTS and not whole:  # of a trace
        prompts = prompts.in_order(np.arange(MOST_PROMPTS))
        _, blocks = np.unique(prompts.blocks, return_inverse=True)
        prompts = replace(prompts, blocks=blocks)
    tree = PrefixTree(prompts)
    branches, first, members = np.unique(tree.branches, return_index=True, return_counts=True)
    most = len(branches) if whole else MOST_STRETCHES
    is_kept = _worth_keeping(tree, branches, first, members, most)
    # Numbered as they occur, so that parents come before their children.
    stretch = np.full(int(branches.max(initial=NOTHING)) + 1, NOTHING)
    stretch[branches[is_kept][np.argsort(first[is_kept])]] = np.arange(len(is_kept))
    ends = np.full(len(prompts.full), NOTHING)
    entries = np.flatnonzero(stretch[tree.branches] > NOTHING)
    ends[tree.rows[entries]] = stretch[tree.branches[entries]]  # the last to be written: deepest
    firsts = np.sort(first[is_kept])
    above = tree.above[firsts]
    parents = np.where(above >= 0, stretch[above], NOTHING)
    return Sharing(
        lengths=Numbers(prompts.tokens.tolist()),
        ends=Numbers(ends.tolist()),
        parents=Numbers(parents.tolist()),
        tokens=Numbers((tree.sizes[firsts] * prompts.block_size).tolist()),
    )


def _worth_keeping(tree: PrefixTree, branches: Ints, first: Ints, members: Ints, most: int) -> Ints:
    """Which branches: those of several prompts, the ones that save most if there are too many.

    A branch is worth as much as the best behind it, so that none is kept without its parents.
    """
    worth = (members - 1) * tree.sizes[first]
    if np.count_nonzero(worth) > most:
        place = dict(zip(branches.tolist(), range(len(branches)), strict=True))
        best = worth.tolist()
        for child in np.argsort(-tree.depths[first]).tolist():
            parent = place.get(int(tree.above[first[child]]))
            if parent is not None:
                best[parent] = max(best[parent], best[child])
        worth = np.array(best)
    order = np.lexsort((tree.depths[first], -worth))[:most]
    return np.sort(order[worth[order] > 0])
