"""The prompts of one dataset as they come, compared one after the other: what they
share.

Prompts are compared until there are too many different blocks, or too many prompts, to
keep: then it is said of how many the figures are.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chunkscope.prefixes.near_misses import same_start
from chunkscope.prefixes.reuse import NearMiss, PrefixReuse, Scoring
from chunkscope.prefixes.sharing import MOST_PROMPTS, Sharing, found_by_rest, served
from chunkscope.prefixes.tree import MOST_BLOCKS, PrefixTree, add_ids, tree_of_trace
from chunkscope.tokenizers.reference import ID_BYTES

SPECIAL = b"\xff" * ID_BYTES  # stands for a token that is put before or after a text


@dataclass(frozen=True, slots=True)
class Measured:
    """What prompts share, in figures and prompt by prompt."""

    reuse: PrefixReuse
    sharing: Sharing


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeDataset:
    """What is known of a dataset beside the prompts that are compared."""

    lengths: Mapping[int, int]  # how many prompts there are of each length
    near_misses: tuple[NearMiss, ...] = ()
    scoring: Scoring | None = None


class TextComparison:
    """Prompts given as token ids: the first ones are compared."""

    def __init__(self) -> None:
        self._tree = PrefixTree()
        self._rest_repeated = 0  # tokens that prompts repeat which are not compared
        self._first: bytes | None = None  # of all prompts, by their bytes
        self._last = b""

    def add(
        self,
        prompts: Sequence[bytes],
        reads: Sequence[bool] | None = None,
        repeated: Sequence[int] | None = None,
    ) -> None:
        """Prompts by their ids; `reads` says whether each reads from vLLM's cache, as
        most do, `repeated` how many tokens it has of an earlier prompt and its
        answer."""
        if self._first is None:
            self._first = self._last = prompts[0]
        self._first = min(self._first, *prompts)
        self._last = max(self._last, *prompts)
        reads = reads or [True] * len(prompts)
        repeated = repeated or [0] * len(prompts)
        for ids, may_read, tokens in zip(prompts, reads, repeated, strict=True):
            if self._is_full:
                self._rest_repeated += served(tokens, len(ids) // ID_BYTES)
            else:
                add_ids(self._tree, ids, reads=may_read, repeated=tokens)

    @property
    def _is_full(self) -> bool:
        tree = self._tree
        return tree.blocks >= MOST_BLOCKS or len(tree.lengths) >= MOST_PROMPTS

    def measured(
        self, whole: WholeDataset | None = None, *, longest_first: bool = False
    ) -> Measured | None:
        """What they share; None if there are none.

        Sent as they come, or longest first as lm-eval does.
        """
        if self._first is None:
            return None
        common = same_start(self._first, self._last) // ID_BYTES
        measured = measure(self._tree, whole, common, longest_first=longest_first)
        rest = max(measured.reuse.rest_found_tokens, self._rest_repeated)
        return replace(measured, reuse=replace(measured.reuse, rest_found_tokens=rest))


def sent_ids(
    ids: bytes | int,
    special_tokens: int,
    most_tokens: int | None = None,
    *,
    appended: int = 0,
) -> bytes | None:
    """Ids with the special tokens around them, cut from the left; None where only
    lengths are known. The last `appended` of the special tokens come after the
    prompt."""
    if isinstance(ids, int):
        return None
    after = min(appended, special_tokens)
    whole = SPECIAL * (special_tokens - after) + ids + SPECIAL * after
    if most_tokens is None:
        return whole
    return whole[max(0, len(whole) - most_tokens * ID_BYTES) :]


class TraceComparison:
    """Prompts of a trace, which names their blocks by numbers (`hash_ids`): the first
    ones."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._hash_ids: list[list[int]] = []
        self._repeated: list[int] = []
        self._blocks: set[int] = set()

    def add(
        self,
        tokens: Sequence[int],
        hash_ids: Sequence[list[int]],
        repeated: Sequence[int] | None = None,
    ) -> None:
        repeated = repeated or [0] * len(tokens)
        for length, numbers, kept in zip(tokens, hash_ids, repeated, strict=True):
            if len(self._blocks) >= MOST_BLOCKS or len(self._tokens) >= MOST_PROMPTS:
                return
            self._tokens.append(length)
            self._hash_ids.append(numbers)
            self._repeated.append(kept)
            self._blocks.update(numbers)

    def measured(
        self, whole: WholeDataset | None = None, *, longest_first: bool = False
    ) -> Measured | None:
        """None where the blocks do not fit the lengths."""
        tree = tree_of_trace(self._tokens, self._hash_ids)
        if tree is None:
            return None
        tree.repeated = self._repeated
        common = 0
        for number, node in enumerate(tree.nodes):
            if node.prompts == len(tree.lengths):
                common = max(common, tree.tokens_up_to(number))
        common = min(common, *tree.lengths)
        return measure(tree, whole, common, longest_first=longest_first)


def measure(
    tree: PrefixTree,
    whole: WholeDataset | None,
    common_tokens: int,
    *,
    longest_first: bool,
) -> Measured:
    """All figures of the prompts that were compared."""
    order = list(range(len(tree.lengths)))
    sharing = tree.sharing(order)
    if longest_first:
        # Of one length lm-eval sends those that begin alike one after the other.
        order.sort(key=lambda place: (-tree.lengths[place], sharing.ends[place]))
        sharing = tree.sharing(order)
    if whole is None:
        whole = WholeDataset(lengths=Counter(tree.lengths))
    cached = found = tree.cached(order)
    if not all(tree.reads):
        found = tree.cached(order, all_read=True)
    reuse = PrefixReuse(
        prompts=len(order),
        tokens=sum(tree.lengths),
        out_of_prompts=len(order),
        out_of_tokens=sum(tree.lengths),
        common_tokens=common_tokens,
        cached_tokens=cached,
        unread_tokens=found - cached,
        block_size=tree.block_size,
        near_misses=whole.near_misses,
        scoring=whole.scoring,
    )
    return Measured(of_whole(reuse, sharing, whole.lengths), sharing)


def of_whole(
    reuse: PrefixReuse, sharing: Sharing, lengths: Mapping[int, int]
) -> PrefixReuse:
    """Figures of the prompts that were compared, as a part of all with these
    lengths."""
    return replace(
        reuse,
        out_of_prompts=sum(lengths.values()),
        out_of_tokens=sum(tokens * count for tokens, count in lengths.items()),
        rest_found_tokens=found_by_rest(sharing, lengths),
    )
