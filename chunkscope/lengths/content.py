"""What is in a dataset, as a digest of its records.

It is the same in any order, file and file format.
"""

import marshal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from xxhash import xxh3_128_intdigest

_MODULUS = 1 << 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All records of a dataset: how many, and the sum of their hashes.

    >>> Content.of(["a"]) + Content.of(["b"]) == Content.of(["b", "a"])
    True
    """

    rows: int = 0
    digest: str = "0"

    @classmethod
    def of(cls, records: Iterable[Any]) -> "Content":
        rows = 0
        total = 0
        for record in records:
            rows += 1
            total += xxh3_128_intdigest(_spelled(record))
        return cls(rows=rows, digest=f"{total % _MODULUS:x}")

    def __add__(self, other: "Content") -> "Content":
        """The content of two parts of a dataset."""
        total = int(self.digest, 16) + int(other.digest, 16)
        return Content(rows=self.rows + other.rows, digest=f"{total % _MODULUS:x}")


def _spelled(record: Any) -> bytes:
    """One spelling for each record, whether it comes from JSON, a CSV or Parquet."""
    try:
        return orjson.dumps(_as_texts(record), option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):  # half a character, or nested too deeply
        return marshal.dumps(record, 2)


def _as_texts(value: Any) -> Any:
    """Numbers as a CSV has them; a field without a value is no field."""
    if isinstance(value, str) and not value.endswith(".0"):
        return value  # as most are
    if isinstance(value, dict):
        fields = {}
        for key, inner in value.items():
            if inner is not None and inner != "":
                fields[str(key)] = _as_texts(inner)
        return fields
    if isinstance(value, list | tuple):
        return [_as_texts(element) for element in value]
    # 1 and 1.0 are one number: pandas makes floats where some are missing.
    text = str(value)
    if text.endswith(".0") and text[:-2].lstrip("-").isdigit():
        return text[:-2]
    return text
