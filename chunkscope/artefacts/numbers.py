"""How numbers are written for people."""

NOT_MEASURED = "not measured"


def number(value: float | None) -> str:
    """
    >>> number(1234.5), number(12.25), number(None)
    ('1,234', '12', '-')
    """
    return "-" if value is None else f"{value:,.0f}" if value != int(value) else f"{int(value):,}"


def as_written(value: object) -> str:
    """An argument's value: `8,192`, `0.9`, `auto`."""
    return f"{value:,}" if type(value) is int else str(value)


def share(value: float | None) -> str:
    """A share as a percentage; a little is never shown as nothing, nor nearly all as all.

    >>> share(0.25), share(0.0), share(0.0004), share(0.9999), share(42.39), share(None)
    ('25 %', '0 %', '<0.1 %', '>99.9 %', '4,239 %', '-')
    """
    if value is None:
        return "-"
    percent = value * 100
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return (
        f"{percent:.1f} %" if 0 < percent < 10 and percent != int(percent) else f"{percent:,.0f} %"
    )


def ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    """
    >>> seconds(0.01234), seconds(0.9999), seconds(75), seconds(None)
    ('12.3 ms', '1.00 s', '75.0 s', 'not measured')
    """
    if value is None:
        return NOT_MEASURED
    if value < 0.9995:
        return f"{_three_digits(value * 1_000)} ms"
    return f"{_three_digits(value)} s"


def per_second(value: float | None) -> str:
    """
    >>> per_second(12.345), per_second(0.05), per_second(None)
    ('12.3/s', '0.05/s', '-')
    """
    return "-" if value is None else f"{_three_digits(value)}/s"


def duration(hours: float) -> str:
    """
    >>> duration(0.01), duration(0.5), duration(3)
    ('36.0 s', '30.0 min', '3.00 h')
    """
    if hours < 2 / 60:
        return seconds(hours * 3_600)
    return f"{_three_digits(hours * 60)} min" if hours < 2 else f"{_three_digits(hours)} h"


def money(value: float) -> str:
    """
    >>> money(1234.5), money(0.001)
    ('1,234.50', 'under 0.01')
    """
    return "under 0.01" if value < 0.01 else f"{value:,.2f}"


def gib(value: float | None) -> str:
    """
    >>> gib(0.84375), gib(112.05), gib(None)
    ('0.84 GiB', '112 GiB', 'not measured')
    """
    return NOT_MEASURED if value is None else f"{_three_digits(value)} GiB"


def _three_digits(value: float) -> str:
    """As many decimals as make three digits; a little is never shown as nothing."""
    if 0 < value < 0.01:
        return f"{value:.1g}"
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{decimals}f}"


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


def plural(count: int, one: str, many: str | None = None) -> str:
    """
    >>> plural(1, "row"), plural(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
