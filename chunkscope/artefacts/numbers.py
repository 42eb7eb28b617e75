"""Numbers for people: written, and read with their unit as in a budget file ("200ms", "5%")."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, inf, isclose, log10
from typing import Any


def number(value: float | None) -> str:
    """
    >>> number(1234.5), number(12.25), number(None)
    ('1,234', '12', '-')
    """
    return "-" if value is None else f"{value:,.0f}"


def as_written(value: object) -> str:
    """An argument's value: `8,192`, `0.9`, `auto`."""
    return f"{value:,}" if type(value) is int else str(value)


def plural(count: int, one: str) -> str:
    """
    >>> plural(1, "row"), plural(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {one}{'s' * (count != 1)}"


def share(value: float | None) -> str:
    """A share as a percentage; a little is never shown as nothing, nor nearly all as all.

    >>> share(0.07), share(0.0), share(0.0004), share(0.9975), share(0.9999), share(42.39)
    ('7 %', '0 %', '<0.1 %', '99.8 %', '>99.9 %', '4,239 %')
    """
    if value is None:
        return "-"
    percent = round(value * 100, 9)  # 0.07 is 7, not 7.000000000000001
    if 0 < percent < 0.1 or 99.9 < percent < 100:
        return "<0.1 %" if percent < 1 else ">99.9 %"
    digits = int((percent < 10 or 99 < percent < 100) and percent != int(percent))
    return f"{percent:,.{digits}f} %"


def change(old: float | None, new: float | None) -> str:
    """How much more or less `new` is; empty when that cannot be said.

    >>> change(100, 125), change(3, 3), change(0, 5)
    ('+25 %', '0 %', '')
    """
    return by((new - old) / old) if old and new is not None else ""


def by(part: float | None) -> str:
    """How much more or less, as a part of what it was.

    >>> by(0.0312), by(-0.209), by(-0.0004), by(None)
    ('+3.1 %', '-21 %', '0 %', '0 %')
    """
    part = round(part or 0.0, 3)
    return f"{'+' if part > 0 else '-' if part < 0 else ''}{share(abs(part))}"


def _three_digits(value: float) -> str:
    """As many decimals as make three digits; a little is never shown as nothing."""
    if 0 < value < 0.01:
        return f"{value:.1g}"
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def seconds(value: float | None, like: float | None = None) -> str:
    """
    >>> seconds(0.01234), seconds(0.9999), seconds(75), seconds(120), seconds(150, like=75)
    ('12.3 ms', '1.00 s', '75.0 s', '2.00 min', '150 s')
    """
    if value is None:
        return "-"
    units = (
        (0.9995, 0.001, "ms"),
        (120, 1, "s"),
        (7_200, 60, "min"),
        (inf, 3_600, "h"),
    )
    size, unit = next(
        (size, unit) for below, size, unit in units if (like or value) < below
    )
    return f"{_three_digits(value / size)} {unit}"


def per_second(value: float | None) -> str:
    return "-" if value is None else f"{float(f'{value:.3g}'):,g}/s"


def gib(value: float | None) -> str:
    return "-" if value is None else f"{_three_digits(value)} GiB"


_WRITTEN = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([^\s0-9.].*?)?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """How a kind of number is read and written. `scales` are what one of each unit is worth; a bare
    number is taken only where there is one unit it can mean: tokens, requests, tokens a second.
    """

    scales: Mapping[str, Fraction | int] = field(default_factory=lambda: {"": 1})
    accepted: str = "850"  # for people: what may be written
    whole: bool = False
    base: str = ""  # what numbers are written in that need many digits
    brief: Callable[[float | None], str] = number  # in three digits or so, for a table

    def read(self, given: Any) -> float:
        """The number in its base unit; ValueError says what would have been right."""
        match = (
            _WRITTEN.fullmatch(str(given)) if type(given) in (int, float, str) else None
        )
        scale = self.scales.get(match[2] or "") if match else None
        amount = Fraction(match[1]) * scale if match and scale else None
        if amount is None or (self.whole and amount.denominator != 1):
            raise ValueError(
                f"{given!r:.40} cannot be read; write it like {self.accepted}"
            )
        return int(amount) if self.whole else float(amount)

    def write_both(self, limit: float, value: float) -> tuple[str, str]:
        """Two numbers that differ never look the same.

        >>> TOKENS.write_both(2879, 2900.5), TOKENS.write_both(7, 7.0001)
        (('2,879 tokens', '2,900 tokens'), ('7 tokens', '7.0001 tokens'))
        """
        if limit == value or self.brief(limit) != self.brief(value):
            return self.brief(limit), self.brief(value)
        size = float(self.scales[self.base])
        digits = 2 + ceil(log10(max(abs(limit), abs(value)) / abs(limit - value)))
        exact = [
            f"{one / size:,.{digits}g} {self.base}".rstrip() for one in (limit, value)
        ]
        return exact[0], exact[1]


def exceeds(found: float, limit: float) -> bool:
    """More than the limit; the last bits of a fraction are no more.

    >>> exceeds(0.1 + 0.2, 0.3), exceeds(10**17 + 1, 10**17)
    (False, True)
    """
    whole = isinstance(found, int) and isinstance(limit, int)
    return not found <= limit and (whole or not isclose(found, limit, rel_tol=1e-9))


_MS, _GB = Fraction(1, 1000), Fraction(10**9, 2**30)
TOKENS = Unit(
    scales={"": 1, "tokens": 1, "K": 1024, "k": 1000},  # as vLLM reads them
    accepted='2048 or "2K" (K is 1024, k is 1000)',
    whole=True,
    base="tokens",
    brief=lambda value: f"{number(value)} tokens",
)
COUNT = Unit(whole=True)
MANY = Unit(brief="{:,.1f}".format)  # on average, so a part of one counts
SHARE = Unit(
    scales={"%": Fraction(1, 100)}, accepted='"5%" (with the %)', base="%", brief=share
)
SECONDS = Unit(
    scales={"us": _MS / 1000, "ms": _MS, "s": 1, "min": 60, "h": 3600},
    accepted='"200ms" or "1.5s" (us, ms, s, min, h)',
    base="s",
    brief=seconds,
)
SIZE = Unit(  # in GiB
    scales={
        "GiB": 1,
        "MiB": Fraction(1, 1024),
        "TiB": 1024,
        "GB": _GB,
        "MB": _GB / 1000,
    },
    accepted='"80GiB" (MiB, GiB, TiB, MB, GB)',
    base="GiB",
    brief=gib,
)
RATE = Unit(
    scales={"": 1, "/s": 1, "tokens/s": 1},
    accepted='4500 or "4500 tokens/s"',
    base="tokens/s",
)
