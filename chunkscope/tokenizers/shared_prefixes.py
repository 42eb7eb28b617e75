"""A beginning that many prompts share is counted once; a very long row is counted in pieces.

Few-shot prompts share most of their text. Such beginnings are found while the rows come by, and
cut off where `cutting` permits it.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from chunkscope.tokenizers.cutting import last_cut
from chunkscope.tokenizers.engines import ID_BYTES, Counts

_KEY = 256  # characters that must be alike before a shared beginning is looked for
_LONGEST_PREFIX = 1 << 15
_PIECE = 1 << 18  # rows longer than twice this are counted in pieces
_MAX_CANDIDATES = 1024  # texts seen once, kept in case a second one begins alike
_TRIAL_ROWS = 2000  # by then a dataset has shown whether its prompts share anything


@dataclass(slots=True, eq=False)
class Prefix:
    """A beginning that several prompts share; `tokens` is known once it was counted."""

    text: str
    parent: "Prefix | None"
    tokens: int = -1
    ids: bytes = b""  # its own, without the parent's, where ids are asked for
    children: dict[str, "Prefix | str"] = field(default_factory=dict)

    def counted(self, own_tokens: int) -> None:
        self.tokens = own_tokens + (self.parent.tokens if self.parent else 0)


@dataclass(slots=True)
class _Batch:
    """Rows cut into texts for an engine, and how the counts add up to the lengths of the rows.

    The first `rows` texts are what is left of each row after its shared beginning. Behind them
    come beginnings that are new and further pieces of very long rows, described by `tail`.
    """

    texts: list[str]
    rows: int
    heads: list[Prefix | None] | None
    tail: list[Prefix | int]

    def lengths(self, counts: Counts) -> Counts:
        lengths = counts[: self.rows]
        for target, count in zip(self.tail, islice(counts, self.rows, None), strict=True):
            if isinstance(target, Prefix):
                target.counted(count)
            else:
                lengths[target] += count
        if self.heads is None:
            return lengths
        return [n + h.tokens if h else n for n, h in zip(lengths, self.heads, strict=True)]

    def own_ids(self, ids: list[bytes]) -> list[bytes]:
        """The ids of each row after its shared beginning; new beginnings learn theirs."""
        own = ids[: self.rows]
        for target, found in zip(self.tail, islice(ids, self.rows, None), strict=True):
            if isinstance(target, Prefix):
                target.ids = found
            else:
                own[target] += found
        return own


class TakenRows(NamedTuple):
    """Rows with their lengths, their shared beginnings and the ids after those."""

    lengths: Counts
    heads: Sequence[Prefix | None]
    own_ids: list[bytes]


class SharedPrefixes:
    """Cuts rows into texts to count, and adds their counts up again. One per dataset.

    Rows use beginnings that earlier rows brought, whose counts must be there before their own.
    So counts come back in the order in which the texts went out, however threads finish: the
    batches wait here in a queue, and `lengths` is always about the oldest.
    """

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self._sharing = allowed
        self._root: dict[str, Prefix | str] = {}
        self._rows = 0
        self._hits = 0
        self._waiting: deque[_Batch] = deque()

    def cut(self, texts: list[str]) -> list[str]:
        """What to count for these rows."""
        batch = self._batch(texts)
        self._waiting.append(batch)
        return batch.texts

    def lengths(self, counts: Counts) -> Counts:
        """The lengths of the oldest rows that were cut and not yet asked for, from their counts."""
        return self._waiting.popleft().lengths(counts)

    def taken(self, ids: list[bytes]) -> TakenRows:
        """The oldest rows, likewise, from the ids of their texts."""
        batch = self._waiting.popleft()
        return TakenRows(
            batch.lengths([len(found) // ID_BYTES for found in ids]),
            batch.heads or [None] * batch.rows,
            batch.own_ids(ids),
        )

    def _batch(self, texts: list[str]) -> _Batch:
        if not self._allowed:
            return _Batch(texts, len(texts), None, [])
        heads, rests, new = self._share(texts) if self._sharing else (None, texts, [])
        self._rows += len(texts)
        if self._sharing and self._rows > _TRIAL_ROWS and self._hits * 50 < self._rows:
            self._sharing = False
            self._root.clear()
        batch = _Batch([*rests, *(prefix.text for prefix in new)], len(texts), heads, [*new])
        _cut_long_rows(batch)
        return batch

    def _share(self, texts: list[str]) -> tuple[list[Prefix | None], list[str], list[Prefix]]:
        heads: list[Prefix | None] = []
        rests: list[str] = []
        new: list[Prefix] = []
        for text in texts:
            head, start = self._place(text, new) if len(text) > _KEY else (None, 0)
            heads.append(head)
            rests.append(text[start:] if start else text)
            self._hits += head is not None
        return heads, rests, new

    def _place(self, text: str, new: list[Prefix]) -> tuple[Prefix | None, int]:
        """Walk down the known beginnings as far as `text` follows them; learn one where it ends."""
        node: Prefix | None = None
        table, start = self._root, 0
        while True:
            key = text[start : start + _KEY]
            known = table.get(key)
            if known is None:
                _remember(table, key, text[start : start + _LONGEST_PREFIX])
                return node, start
            if isinstance(known, Prefix) and _follows(text, start, known.text):
                node, table, start = known, known.children, start + len(known.text)
                continue
            alike = known.text if isinstance(known, Prefix) else known
            if (length := _shared_length(alike, text, start)) < _KEY:
                return node, start
            # Either a second text like one seen once, or a beginning that is shorter than it
            # looked. A new node, because earlier batches still refer to the old one.
            node = table[key] = Prefix(alike[:length], node)
            new.append(node)
            return node, start + length


def _follows(text: str, start: int, prefix: str) -> bool:
    end = start + len(prefix)
    return text.startswith(prefix, start) and text[end : end + 1] in (" ", "\n")


def _remember(table: dict[str, Prefix | str], key: str, text: str) -> None:
    if len(key) < _KEY:
        return
    if len(table) >= _MAX_CANDIDATES:  # forget those that nobody shared
        for old in [k for k, known in table.items() if isinstance(known, str)]:
            del table[old]
        if len(table) >= _MAX_CANDIDATES:
            return
    table[key] = text


def _shared_length(alike: str, text: str, start: int) -> int:
    """How far `alike` and `text[start:]` run together, back to an allowed cut in both."""
    low, high = 0, min(len(alike), len(text) - start)
    while low < high:
        middle = (low + high + 1) // 2
        if text.startswith(alike[low:middle], start + low):
            low = middle
        else:
            high = middle - 1
    # Both must go on with white space after the cut, so the cut lies before the difference.
    return last_cut(alike, _KEY, min(low - 1, len(text) - start - 1))


def _cut_long_rows(batch: _Batch) -> None:
    """Count a row of many megabytes in pieces: an engine's result is several times its text."""
    for row in range(batch.rows):
        text = batch.texts[row]
        if len(text) <= 2 * _PIECE:
            continue
        pieces = list(_pieces(text))
        batch.texts[row] = pieces[0]
        batch.texts += pieces[1:]
        batch.tail += [row] * (len(pieces) - 1)


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > 2 * _PIECE:
        cut = last_cut(text, start + 1, start + _PIECE)
        if cut < 0:
            break  # nothing to cut at for a quarter of a million characters: take it whole
        yield text[start:cut]
        start = cut
    yield text[start:]
