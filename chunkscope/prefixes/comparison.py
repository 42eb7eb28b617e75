"""The prompts of one dataset as they come, compared at the end: what they share, in figures.

Comparing is to cost little beside counting: of many prompts a sample is compared, in runs of
neighbours that are spread evenly over the dataset.
"""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.artefact import Numbers
from chunkscope.prefixes.near_misses import same_start
from chunkscope.prefixes.reuse import BLOCK_SIZE, PrefixReuse
from chunkscope.prefixes.sharing import MOST_PROMPTS, NOTHING, RUN, Sharing
from chunkscope.tokenizers.reference import ID_BYTES

if TYPE_CHECKING:  # numpy: a dataset that shares nothing does without
    from chunkscope.prefixes.tree import PromptTree

MOST_BLOCKS = 1 << 18  # four million tokens
_MOST_TRACE_BLOCKS = 3 << 20
_BLOCK_BYTES = BLOCK_SIZE * ID_BYTES
_SPECIAL = b"\xff" * ID_BYTES  # stands for a token that is put before a text

Measured = tuple[PrefixReuse, Sharing]


class TextComparison:
    """Prompts given as token ids: those that are to be compared, until all have come."""

    def __init__(self) -> None:
        self._offered = 0
        self._every = 1  # so many runs one is compared
        self._rows: list[tuple[int, bytes, bool]] = []  # place, ids, reads
        self._blocks = 0
        self._ends: list[bytes] = []  # the first and the last prompt by their bytes

    def add(
        self, prompts: Sequence[bytes], reads: Sequence[bool] | None = None
    ) -> None:
        """Prompts by their ids; `reads` says whether each reads from vLLM's cache, as most do."""
        candidates = [*self._ends, min(prompts), max(prompts)]
        self._ends = [min(candidates), max(candidates)]
        places = range(self._offered, self._offered + len(prompts))
        rows = zip(places, prompts, reads or [True] * len(prompts), strict=True)
        chosen = [row for row in rows if row[0] // RUN % self._every == 0]
        self._rows += chosen
        self._blocks += sum([len(row[1]) // _BLOCK_BYTES for row in chosen])
        self._offered += len(prompts)
        while self._every < self._offered // RUN and (
            self._blocks > MOST_BLOCKS or len(self._rows) > MOST_PROMPTS
        ):
            self._every *= 2  # from now on compare half as many
            self._rows = [row for row in self._rows if row[0] // RUN % self._every == 0]
            self._blocks = sum([len(row[1]) // _BLOCK_BYTES for row in self._rows])

    def measured(self, *, longest_first: bool = False, **known: Any) -> Measured | None:
        """What they share, in figures and prompt by prompt; None if there are none.

        Sent as they come, or longest first as lm-eval does; with what is `known` of the dataset.
        """
        if not self._rows:
            return None
        known["common_tokens"] = same_start(*self._ends) // ID_BYTES
        _, prompts, reads = zip(*self._rows, strict=True)
        firsts = [ids[:_BLOCK_BYTES] for ids in prompts if len(ids) >= _BLOCK_BYTES]
        if len({*firsts}) < len(firsts):
            from chunkscope.prefixes.tree import tree_of_prompts

            return measure(tree_of_prompts(prompts, reads), longest_first, **known)
        lengths = [len(ids) // ID_BYTES for ids in prompts]
        whole = {"out_of_prompts": len(lengths), "out_of_tokens": sum(lengths)} | known
        reuse = PrefixReuse(prompts=len(lengths), tokens=sum(lengths), **whole)
        lengths = sorted(lengths, reverse=True) if longest_first else lengths
        return reuse, Sharing(
            lengths=Numbers(lengths), ends=Numbers([NOTHING] * len(lengths))
        )


def sent_ids(
    ids: bytes | int, special_tokens: int, most_tokens: int | None = None
) -> bytes | None:
    """Ids with special tokens before them, cut from the left; None where only lengths are known."""
    if isinstance(ids, int):
        return None
    whole = _SPECIAL * special_tokens + ids if special_tokens else ids
    return (
        whole
        if most_tokens is None
        else whole[max(0, len(whole) - most_tokens * ID_BYTES) :]
    )


class TraceComparison:
    """Prompts of a trace, which names their blocks by numbers (`hash_ids`): the first ones."""

    def __init__(self) -> None:
        self._ids = array("q")
        self._counts: list[int] = []
        self._tokens: list[int] = []

    def add(self, tokens: Sequence[int], hash_ids: Sequence[list[int]]) -> None:
        if len(self._ids) < _MOST_TRACE_BLOCKS:
            self._tokens += tokens
            self._counts += map(len, hash_ids)
            self._ids.extend(chain.from_iterable(hash_ids))

    def measured(self, *, longest_first: bool = False, **known: Any) -> Measured | None:
        """None where the blocks do not fit the lengths."""
        import numpy as np

        from chunkscope.prefixes.tree import tree_of_trace

        ids = np.array(self._ids, np.int64)
        tree = tree_of_trace(np.array(self._tokens), np.array(self._counts), ids)
        if tree is None:
            return None
        blocks = int(tree.full[0]) if len(tree.ends) == 1 else 0
        if tree.members[0][:1] == [len(tree.ends)]:  # all begin with the first stretch
            blocks = tree.depths[0]
        known["common_tokens"] = min(blocks * tree.block_size, int(tree.tokens.min()))
        return measure(tree, longest_first, **known)


def measure(tree: "PromptTree", longest_first: bool, **known: Any) -> Measured:
    """All figures."""
    import numpy as np

    from chunkscope.prefixes.cache_curve import curve

    best = tree.in_order(tree.depth_first())
    as_sent = tree
    if (
        longest_first
    ):  # lm-eval's order: of one length those that begin alike are together
        as_sent = best.in_order(np.argsort(-best.tokens, kind="stable"))
    cached = found_if_read = int(as_sent.ideal.sum())
    if not tree.reads.all():
        found_if_read = int(
            replace(as_sent, reads=np.ones_like(tree.reads)).ideal.sum()
        )
    whole = {
        "out_of_prompts": len(tree.ends),
        "out_of_tokens": int(tree.tokens.sum()),
    } | known
    reuse = PrefixReuse(
        prompts=len(tree.ends),
        tokens=int(tree.tokens.sum()),
        cached_tokens=cached,
        unread_tokens=found_if_read - cached,
        block_size=tree.block_size,
        capacities=tuple(curve(as_sent, best, known.get("output_tokens") or 1)),
        **whole,
    )
    first = np.arange(min(len(tree.ends), MOST_PROMPTS))  # a trace may have more
    return reuse, as_sent.in_order(first).sharing()
