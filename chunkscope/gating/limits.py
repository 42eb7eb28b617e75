"""A figure of today -> a limit that it keeps, with a little room, as a budget file writes it."""

from math import ceil, floor, log10

from chunkscope.artefacts.figures import BY_PROMISE, Better
from chunkscope.artefacts.units import COUNT, SECONDS, SHARE, SIZE, TOKENS, Unit
from chunkscope.gating.promises.data import AT_LEAST

ROOM = 0.1
SLOWER = 0.25  # timings differ from run to run
_COUNTS = ("min_rows", "bad_rows", "kv_requests_of_p95")
_EXACT = ("bad_rows", "equal")

Key = tuple[str, ...]  # its place in a budget: ("data", "p95")


def limit_of(key: Key, found: float) -> int | str | None:
    """None where a figure is so small that no limit below it would promise anything.

    >>> limit_of(("data", "longest_prompt"), 23_235), limit_of(("speed", "ttft_p95"), 0.5)
    (26000, '630ms')
    """
    unit, name = unit_of(key), key[-1]
    room = 0.0 if name in _EXACT else SLOWER if key[0] == "speed" else ROOM
    if _is_at_least(key):
        least = floor(found * (1 - room) * (100 if unit is SHARE else 1))
        if unit is SHARE:
            return f"{least}%" if least else None
        return max(1, least) if found > 0 else None
    if unit is SECONDS:
        return f"{decimals(roomy(found * 1000, room))}ms"
    if unit is SIZE:
        return f"{decimals(roomy(found, room))}GiB"
    return ceil(roomy(found, room)) if room else int(found)


def unit_of(key: Key) -> Unit:
    name = key[-1]
    if name in _COUNTS:
        return COUNT
    if name in ("prefix_hit_rate", "equal"):
        return SHARE
    return TOKENS if key[0] == "data" else BY_PROMISE[name].unit


def _is_at_least(key: Key) -> bool:
    figure = BY_PROMISE.get(key[-1])
    more = figure is not None and figure.better is Better.MORE
    return more or key[-1] in (*AT_LEAST, "kv_requests_of_p95", "equal")


def roomy(value: float, room: float) -> float:
    """A little more, in two digits: a limit that nobody reads as exact.

    >>> roomy(0.84, 0.1)
    0.93
    """
    wanted = value * (1 + room)
    if wanted < 1e-6:
        return wanted  # too little for anyone to measure
    digits = 1 - floor(log10(wanted))
    step = 10.0**-digits
    return max(round(ceil(wanted / step) * step, max(digits, 0)), value)


def decimals(value: float) -> str:
    """Not less than it is, and without an exponent: a budget file takes none.

    >>> decimals(0.93), decimals(139.80078125)
    ('0.93', '139.801')
    """
    return f"{ceil(round(value * 1000, 6)) / 1000:.3f}".rstrip("0").rstrip(".")
