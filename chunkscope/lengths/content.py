"""What is in a dataset, as a digest of its records: the same in any order, file and file format."""

import json
from binascii import a2b_base64, b2a_base64
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

MOST_LISTED = 20_000  # rows whose hashes are kept, so that changed ones can be counted
_HASH_BYTES = 6  # kept of each row's hash
_MASK = (1 << 8 * _HASH_BYTES) - 1
_MODULUS = 1 << 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All records of a dataset. `digest` is the sum of their hashes.

    `hashes` are the first bytes of each, sorted, as base64; None where there are too many.
    """

    rows: int
    digest: str
    hashes: str | None = None

    def __add__(self, other: "Content") -> "Content":
        """The content of two parts of a dataset."""
        hashes = None
        if self.hashes is not None and other.hashes is not None:
            hashes = [*self.row_hashes().elements(), *other.row_hashes().elements()]
        total = int(self.digest, 16) + int(other.digest, 16)
        return ContentDigest(self.rows + other.rows, total, hashes).content()

    def row_hashes(self) -> Counter[int]:
        data = a2b_base64(self.hashes or "")
        places = range(0, len(data), _HASH_BYTES)
        return Counter(int.from_bytes(data[place : place + _HASH_BYTES]) for place in places)


def content_changes(before: Content, now: Content) -> tuple[int, int] | None:
    """How many rows were added and removed; None where only a change is certain.

    A row that was changed counts as one added and one removed.
    """
    if (before.rows, before.digest) == (now.rows, now.digest):
        return 0, 0
    if before.hashes is None or now.hashes is None:
        return None
    old, new = before.row_hashes(), now.row_hashes()
    return (new - old).total(), (old - new).total()


class ContentDigest:
    """Adds up the records of a dataset as they are read."""

    def __init__(self, rows: int = 0, total: int = 0, hashes: list[int] | None = None) -> None:
        self._rows = rows
        self._total = total
        self._hashes = hashes if rows else []  # None: too many

    def add(self, records: Iterable[Any]) -> None:
        from xxhash import xxh3_128_intdigest

        hashes = [xxh3_128_intdigest(_canonical(record)) for record in records]
        self._rows += len(hashes)
        self._total += sum(hashes)
        if self._hashes is not None and self._rows <= MOST_LISTED:
            self._hashes += [value & _MASK for value in hashes]
        else:
            self._hashes = None

    def content(self) -> Content:
        listed = None
        if self._hashes is not None and self._rows <= MOST_LISTED:
            data = b"".join(value.to_bytes(_HASH_BYTES) for value in sorted(self._hashes))
            listed = b2a_base64(data, newline=False).decode()
        return Content(rows=self._rows, digest=f"{self._total % _MODULUS:032x}", hashes=listed)


def _canonical(record: Any) -> bytes:
    """One spelling for each record, whether it comes from JSON, a CSV or parquet."""
    if type(record) is dict:
        values = record.values()
        if set(map(type, values)) != {str} or "" in values:
            record = _as_text(record)
    try:
        return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # a lone surrogate, or nested too deeply for orjson
        return json.dumps(record, sort_keys=True, default=str).encode()


def _as_text(value: Any) -> Any:
    """Numbers as a CSV has them; a field without a value is no field."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {str(k): _as_text(v) for k, v in value.items() if v is not None and v != ""}
    if isinstance(value, list | tuple):
        return [_as_text(part) for part in value]
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
