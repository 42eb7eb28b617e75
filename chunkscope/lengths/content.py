"""What is in a dataset, as a digest of its records: the same in any order, file and file format."""

import marshal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from orjson import OPT_SORT_KEYS, dumps
from xxhash import xxh3_128_intdigest

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers

MOST_LISTED = 20_000  # rows whose hashes are kept, so that changed ones can be counted
_MASK = (1 << 40) - 1  # of each row's hash
_MODULUS = 1 << 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All records of a dataset: the sum of their hashes, and the hashes, sorted, of not too many.

    >>> Content.of([{"q": "a"}]) + Content.of([{"q": "b"}]) == Content.of([{"q": "b"}, {"q": "a"}])
    True
    """

    rows: int = 0
    digest: str = "0"
    hashes: Numbers | None = NO_NUMBERS

    @classmethod
    def of(cls, records: Sequence[Any]) -> "Content":
        cells, hashes, rows, flat = records, list[int](), records, False
        while (kinds := {*map(type, cells)}) in ({dict}, {list}):
            flat = kinds == {dict} and cells is records
            cells = [
                *chain.from_iterable(
                    map(dict.values, cells) if kinds == {dict} else cells
                )
            ]
        if kinds == {str, int} and flat:  # numbers as a CSV has them
            rows, kinds = [{k: str(v) for k, v in r.items()} for r in records], {str}
        if (
            kinds == {str} and "" not in cells
        ):  # nothing else in any of them: all at once
            with suppress(TypeError, RecursionError):
                hashes = [
                    xxh3_128_intdigest(dumps(r, option=OPT_SORT_KEYS)) for r in rows
                ]
        hashes = hashes or [
            xxh3_128_intdigest(_canonical(record)) for record in records
        ]
        listed = (
            Numbers(sorted(n & _MASK for n in hashes))
            if len(hashes) <= MOST_LISTED
            else None
        )
        return cls(
            rows=len(hashes), digest=f"{sum(hashes) % _MODULUS:x}", hashes=listed
        )

    def __add__(self, other: "Content") -> "Content":
        """The content of two parts of a dataset."""
        rows, total = (
            self.rows + other.rows,
            int(self.digest, 16) + int(other.digest, 16),
        )
        both = (
            [*(self.hashes or ()), *(other.hashes or ())]
            if rows <= MOST_LISTED
            else None
        )
        hashes = None if both is None else Numbers(sorted(both))
        return Content(rows=rows, digest=f"{total % _MODULUS:x}", hashes=hashes)


def content_changes(before: Content, now: Content) -> tuple[int, int] | None:
    """How many rows were added and removed, changed ones as both; None: nobody can tell."""
    if (before.rows, before.digest) == (now.rows, now.digest):
        return 0, 0
    if before.hashes is None or now.hashes is None:
        return None
    old, new = Counter(before.hashes), Counter(now.hashes)
    return (new - old).total(), (old - new).total()


def _canonical(row: Any) -> bytes:
    """One spelling for each record, whether it comes from JSON, a CSV or parquet."""
    try:
        if type(row) is dict:
            row = _as_text(row)
        return dumps(row, option=OPT_SORT_KEYS)
    except (TypeError, RecursionError):  # a lone surrogate, or nested too deeply
        return marshal.dumps(row, 2)


def _as_text(value: Any) -> Any:
    """Numbers as a CSV has them; a field without a value is no field."""
    if isinstance(value, dict):
        own = [(str(k), v) for k, v in value.items() if v is not None and v != ""]
        return {k: str(v) if type(v) in (str, int) else _as_text(v) for k, v in own}
    if isinstance(value, list | tuple):
        cells = [
            c
            for part in value
            for c in (part.values() if type(part) is dict else [part])
        ]
        is_text = {*map(type, cells)} == {str} and "" not in cells
        return value if is_text else [_as_text(part) for part in value]
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
