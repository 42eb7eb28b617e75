"""Numbers for people: written, and read with their unit ("200ms", "5%")."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, isclose, log10

NOT_KNOWN = "-"


def number(value: float | None) -> str:
    """
    >>> number(1234.5), number(12.25), number(None)
    ('1,234', '12', '-')
    """
    if value is None:
        return NOT_KNOWN
    return f"{value:,.0f}"


def as_written(value: object) -> str:
    """An argument's value: `8,192`, `0.9`, `auto`."""
    if type(value) is int:
        return f"{value:,}"
    return str(value)


def plural(count: int, one: str) -> str:
    """
    >>> plural(1, "row"), plural(1200, "row")
    ('1 row', '1,200 rows')
    """
    if count == 1:
        return f"1 {one}"
    return f"{count:,} {one}s"


def share(value: float | None) -> str:
    """A percentage; a little is never shown as nothing, nor nearly all as all.

    >>> share(0.07), share(0.0), share(0.0004)
    ('7 %', '0 %', '<0.1 %')
    >>> share(0.9975), share(0.9999), share(42.39)
    ('99.8 %', '>99.9 %', '4,239 %')
    """
    if value is None:
        return NOT_KNOWN
    percent = round(value * 100, 9)  # 0.07 is 7, not 7.000000000000001
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    is_near_an_end = percent < 10 or 99 < percent < 100
    if is_near_an_end and percent != int(percent):
        return f"{percent:,.1f} %"
    return f"{percent:,.0f} %"


def change(old: float | None, new: float | None) -> str:
    """How much more or less `new` is; empty when that cannot be said.

    >>> change(100, 125), change(3, 3), change(0, 5)
    ('+25 %', '0 %', '')
    """
    if not old or new is None:
        return ""
    return by((new - old) / old)


def by(part: float | None) -> str:
    """How much more or less, as a part of what it was.

    >>> by(0.0312), by(-0.209), by(-0.0004), by(None)
    ('+3.1 %', '-21 %', '0 %', '0 %')
    """
    part = round(part or 0.0, 3)
    if part > 0:
        return f"+{share(part)}"
    if part < 0:
        return f"-{share(-part)}"
    return share(0.0)


def _three_digits(value: float) -> str:
    """As many decimals as make three digits; a little is never shown as nothing."""
    if 0 < value < 0.01:
        return f"{value:.1g}"
    if value < 10:
        return f"{value:,.2f}"
    if value < 100:
        return f"{value:,.1f}"
    return f"{value:,.0f}"


def seconds(value: float | None, like: float | None = None) -> str:
    """In the unit that suits it, or the time that it is `like`.

    >>> seconds(0.01234), seconds(0.9999), seconds(75), seconds(120)
    ('12.3 ms', '1.00 s', '75.0 s', '2.00 min')
    >>> seconds(150, like=75)
    '150 s'
    """
    if value is None:
        return NOT_KNOWN
    size = like or value
    if size < 0.9995:  # what is more would be written as 1,000 ms
        return f"{_three_digits(value * 1_000)} ms"
    if size < 120:
        return f"{_three_digits(value)} s"
    if size < 7_200:
        return f"{_three_digits(value / 60)} min"
    return f"{_three_digits(value / 3_600)} h"


def about(value: float | None) -> str:
    """A time that may be several times off: one digit, so that nobody trusts more.

    >>> about(9.98), about(0.984), about(0.0312), about(1_671)
    ('about 10 s', 'about 1 s', 'about 30 ms', 'about 30 min')
    """
    if value is None:
        return NOT_KNOWN
    for unit, size in (("h", 3_600), ("min", 60), ("s", 1)):
        amount = float(f"{value / size:.1g}")
        if amount >= 1:
            return f"about {amount:,g} {unit}"
    amount = float(f"{value * 1_000:.1g}")
    return f"about {amount:g} ms"


def price(value: float) -> str:
    """An amount of money, in any currency, with at least two digits that say something.

    >>> price(1234.5), price(7.25), price(0.0234), price(0.3)
    ('1,234', '7.25', '0.023', '0.30')
    """
    if value >= 1_000:
        return f"{value:,.0f}"
    if value >= 0.1:
        return f"{value:,.2f}"
    return f"{value:.2g}"


def per_second(value: float | None) -> str:
    if value is None:
        return NOT_KNOWN
    rounded = float(f"{value:.3g}")
    return f"{rounded:,g}/s"


def gib(value: float | None) -> str:
    if value is None:
        return NOT_KNOWN
    return f"{_three_digits(value)} GiB"


# A number and its unit: "1.5 GiB".
_WRITTEN = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([^\s0-9.].*?)?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """How a kind of number is read and written.

    `scales` are what one of each unit is worth. A bare number is taken only where there
    is one unit that it can mean: tokens, requests, tokens a second.
    """

    scales: Mapping[str, Fraction | int] = field(default_factory=lambda: {"": 1})
    accepted: str = "850"  # for people: what may be written
    whole: bool = False
    base: str = ""  # what numbers are written in that need many digits
    brief: Callable[[float | None], str] = number  # in three digits or so, for a table

    def read(self, value: object) -> float:
        """The number in its base unit; ValueError says what would have been right."""
        amount = self._amount(value)
        if amount is None or (self.whole and amount.denominator != 1):
            raise ValueError(
                f"{value!r:.40} cannot be read; write it like {self.accepted}"
            )
        if self.whole:
            return int(amount)
        return float(amount)

    def _amount(self, value: object) -> Fraction | None:
        if type(value) not in (int, float, str):
            return None
        match = _WRITTEN.fullmatch(str(value))
        if match is None:
            return None
        scale = self.scales.get(match[2] or "")
        if scale is None:
            return None
        return Fraction(match[1]) * scale

    def write_both(self, limit: float, value: float) -> tuple[str, str]:
        """Two numbers that differ never look the same.

        >>> TOKENS.write_both(2879, 2900.5), TOKENS.write_both(7, 7.0001)
        (('2,879 tokens', '2,900 tokens'), ('7 tokens', '7.0001 tokens'))
        """
        if limit == value or self.brief(limit) != self.brief(value):
            return self.brief(limit), self.brief(value)
        larger = max(abs(limit), abs(value))
        digits = 2 + ceil(log10(larger / abs(limit - value)))
        return self._with_digits(limit, digits), self._with_digits(value, digits)

    def _with_digits(self, value: float, digits: int) -> str:
        size = float(self.scales[self.base])
        return f"{value / size:,.{digits}g} {self.base}".rstrip()


def exceeds(value: float, limit: float) -> bool:
    """Whether it is more than the limit, by more than the last bits of a fraction.

    >>> exceeds(0.1 + 0.2, 0.3), exceeds(10**17 + 1, 10**17)
    (False, True)
    """
    if value <= limit:
        return False
    if isinstance(value, int) and isinstance(limit, int):
        return True
    return not isclose(value, limit, rel_tol=1e-9)


_MS = Fraction(1, 1000)  # in seconds
_GB = Fraction(10**9, 2**30)  # in GiB
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
