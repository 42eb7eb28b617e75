"""The numbers of the memory and step-time models, which stand in constants.csv only.

Each is a row: its unit, whether it was measured, assumed or read in vLLM's code, where
that was, and the test that computes it again from what was measured.
"""

import csv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    name: str
    value: str  # as it is written
    unit: str
    basis: str  # "measured", "assumed" or "read in vLLM"
    source: str
    test: str  # FILE::NAME; empty where nothing was measured


def _read() -> dict[str, Constant]:
    text = Path(__file__).with_name("constants.csv").read_text(encoding="utf-8")
    constants = {}
    for row in csv.DictReader(text.splitlines()):
        constants[row["name"]] = Constant(**row)
    return constants


CONSTANTS = _read()


def constant(name: str) -> float:
    """The value of a row.

    >>> constant("usable_headroom")
    0.9
    """
    return float(CONSTANTS[name].value)


def whole(name: str) -> int:
    """The value of a row that counts something.

    >>> whole("graphed_tokens")
    512
    """
    return int(CONSTANTS[name].value)
