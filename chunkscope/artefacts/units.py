"""Numbers as people write them in a budget file ("200ms", "80GiB", "5%"), and back.

A bare number is taken only where there is one unit it can mean: tokens, requests, tokens a second.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isclose
from typing import Any

from chunkscope.artefacts.numbers import gib, number, per_second, seconds, share

_WRITTEN = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([^\s0-9.].*?)?\s*")
MOST_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """How a kind of number is read and written. `scales` are what one of each unit is worth."""

    scales: Mapping[str, Fraction]
    accepted: str  # for people: what may be written
    most: int = 10**12  # nothing is ever more: a limit that high promises nothing
    bare: bool = False  # is a number without a unit clear?
    whole: bool = False
    shown: tuple[tuple[float, str], ...] = ((1.0, ""),)  # smallest unit first
    digits: int = 2
    brief: Callable[[float | None], str] = number  # in three digits or so, for a table

    def read(self, given: Any) -> float:
        """The number in its base unit; ValueError says what would have been right."""
        amount, is_number = None, isinstance(given, int | float) and not isinstance(given, bool)
        if isinstance(given, str) and (match := _WRITTEN.fullmatch(given)):
            scale = self.scales.get(match[2] or "")
            amount = None if scale is None else Fraction(match[1]) * scale
        elif self.bare and is_number and 0 <= given <= self.most:
            amount = Fraction(given)
        if amount is None or amount > self.most or (self.whole and amount.denominator != 1):
            text = repr(given)
            text = text if len(text) <= 40 else f"{text[:36]}..."
            raise ValueError(f"{text} is not a limit of this kind; write it like {self.accepted}")
        return int(amount) if self.whole else float(amount)

    def write(self, value: float | None, *, like: float | None = None, digits: int = 2) -> str:
        """For people; `like` decides between seconds and milliseconds.

        >>> SECONDS.write(0.25), SECONDS.write(0.25, like=2.0), SIZE.write(None)
        ('250 ms', '0.25 s', 'not known')
        """
        if value is None:
            return "not known"
        size = abs(value if like is None else like)
        scale, name = next((s for s in reversed(self.shown) if size >= s[0]), self.shown[0])
        text = f"{value / scale:,.{digits}f}" if value != int(value) or scale != 1 else f"{value:,}"
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        return f"{text} {name}".rstrip()

    def write_both(self, limit: float, found: float | None) -> tuple[str, str]:
        """Two numbers that differ never look the same.

        >>> TOKENS.write_both(2879, 2879.65), TOKENS.write_both(7, 7.0001)
        (('2,879 tokens', '2,879.65 tokens'), ('7 tokens', '7.0001 tokens'))
        """
        for digits in range(self.digits, MOST_DIGITS):
            texts = self.write(limit, digits=digits), self.write(found, like=limit, digits=digits)
            if limit == found or texts[0] != texts[1]:
                break
        return texts


def exceeds(found: float, limit: float) -> bool:
    """More than the limit; the last bits of a fraction are no more.

    >>> exceeds(0.1 + 0.2, 0.3), exceeds(10**17 + 1, 10**17)
    (False, True)
    """
    whole = isinstance(found, int) and isinstance(limit, int)
    return not found <= limit and (whole or not isclose(found, limit, rel_tol=1e-9))


_ONE = Fraction(1)
# K and k as vLLM reads them: 4K is 4096, 4k is 4000.
TOKENS = Unit(
    scales={"": _ONE, "tokens": _ONE, "K": Fraction(1024), "k": Fraction(1000)},
    accepted='2048 or "2K" (K is 1024, k is 1000)',
    most=10**10,
    bare=True,
    whole=True,
    shown=((1.0, "tokens"),),
)
COUNT = Unit(scales={"": _ONE}, accepted="850", bare=True, whole=True)
MANY = replace(COUNT, whole=False, brief="{:,.1f}".format)  # on average, so a part of one counts
SHARE = Unit(
    scales={"%": Fraction(1, 100)},
    accepted='"5%" (with the %)',
    most=1000,
    shown=((0.01, "%"),),
    digits=1,
    brief=share,
)
SECONDS = Unit(
    scales={
        "us": Fraction(1, 1_000_000),
        "ms": Fraction(1, 1000),
        "s": _ONE,
        "min": Fraction(60),
        "h": Fraction(3600),
    },
    accepted='"200ms" or "1.5s" (us, ms, s, min, h)',
    most=10**8,
    shown=((0.001, "ms"), (1.0, "s")),
    brief=seconds,
)
SIZE = Unit(  # in GiB
    scales={
        "GiB": _ONE,
        "MiB": Fraction(1, 1024),
        "TiB": Fraction(1024),
        "GB": Fraction(10**9, 2**30),
        "MB": Fraction(10**6, 2**30),
    },
    accepted='"80GiB" (MiB, GiB, TiB, MB, GB)',
    most=10**6,
    shown=((1.0, "GiB"),),
    brief=gib,
)
REQUESTS = Unit(
    scales={"": _ONE, "/s": _ONE},
    accepted='4 or "4/s"',
    bare=True,
    shown=((1.0, "/s"),),
    brief=per_second,
)
RATE = Unit(
    scales={"": _ONE, "/s": _ONE, "tokens/s": _ONE},
    accepted='4500 or "4500 tokens/s"',
    bare=True,
    shown=((1.0, "tokens/s"),),
    digits=1,
)
