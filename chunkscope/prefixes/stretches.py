"""The prefix tree of a dataset -> what each prompt shares with others, small enough to keep."""

from dataclasses import replace

import numpy as np

from chunkscope.prefixes.prefixes import Ints, PrefixTree, PromptBlocks
from chunkscope.prefixes.sharing import NOTHING, RUN, Sharing, Stretch

MOST_PROMPTS = 20_000
MOST_STRETCHES = 4_096


def sharing_of(
    prompts: PromptBlocks, tree: PrefixTree | None = None, *, whole: bool = False
) -> Sharing:
    """What prompts share, in their order; of very many, runs that are spread evenly.

    `whole` leaves nothing out, however much it is; `tree` is theirs, where it is made already.
    """
    if len(prompts.full) > MOST_PROMPTS and not whole:
        prompts, tree = prompts.in_order(evenly_spread(len(prompts.full))), None
    if tree is None:
        _, numbers = np.unique(prompts.blocks, return_inverse=True)
        tree = PrefixTree(replace(prompts, blocks=numbers))
    branches, first, members = np.unique(tree.branches, return_index=True, return_counts=True)
    most = len(branches) if whole else MOST_STRETCHES
    is_kept = _worth_keeping(tree, branches, first, members, most)
    kept = branches[is_kept]
    # Numbered as they occur, so that parents come before their children.
    stretch = np.full(int(branches.max(initial=NOTHING)) + 1, NOTHING)
    stretch[kept[np.argsort(first[is_kept])]] = np.arange(len(kept))
    ends = np.full(len(prompts.full), NOTHING)
    entries = np.flatnonzero(stretch[tree.branches] > NOTHING)
    ends[tree.rows[entries]] = stretch[tree.branches[entries]]  # the last to be written: deepest
    firsts = np.sort(first[is_kept])
    above = tree.above[firsts]
    parents = np.where(above >= 0, stretch[above], NOTHING)
    sizes = tree.sizes[firsts] * prompts.block_size
    return Sharing(
        lengths=tuple(prompts.tokens.tolist()),
        ends=tuple(ends.tolist()),
        stretches=tuple(
            Stretch(parent=parent, tokens=tokens)
            for parent, tokens in zip(parents.tolist(), sizes.tolist(), strict=True)
        ),
    )


def evenly_spread(count: int) -> Ints:
    """The places of `MOST_PROMPTS` of so many, in runs of neighbours."""
    runs = MOST_PROMPTS // RUN
    starts = np.arange(runs) * (count - RUN) // (runs - 1)
    return (starts[:, None] + np.arange(RUN)).ravel()


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
