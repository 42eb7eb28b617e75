"""Where the values of an axis stand, and which of them are labelled."""

from dataclasses import dataclass
from math import ceil, floor, log10

from chunkscope.artefacts.numbers import SECONDS, Unit, seconds
from chunkscope.report.charts import Axis

TICK_ROOM = 64.0  # px that the label of a tick takes
LEAST_ROOM = 0.06  # beside the values on an axis, as a part of the largest
STRETCHED_FROM = 0.9  # of a stretched axis, the value in its middle


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Values of an axis from `low` to `high` at places from `start` to `end`, in px."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value stands."""
        return self.start + self._part(value) * (self.end - self.start)

    def _part(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        if self.axis.logarithmic:
            return log10(value / self.low) / log10(self.high / self.low)
        if self.axis.stretched and value < STRETCHED_FROM:
            return 0.5 * value / STRETCHED_FROM
        if self.axis.stretched:
            return 0.5 + 0.5 * (value - STRETCHED_FROM) / (1 - STRETCHED_FROM)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, room: float = TICK_ROOM) -> list[float]:
        """Round values, as many as have `room` px each."""
        if self.axis.stretched:
            return [0.0, 0.5, 0.9, 0.95, 0.99, 1.0]
        most = max(2, int(abs(self.end - self.start) / room))
        if self.axis.logarithmic:
            ticks = _log_ticks(self.low, self.high, most)
            if len(ticks) > 1:
                return ticks
        return _linear_ticks(self.low, self.high, most, self.axis.unit)

    def figure(self, value: float) -> str:
        """A value with its axis's label."""
        return f"{self.axis.label} {self.axis.unit.brief(value)}"

    def written(self, value: float) -> str:
        """A tick's label."""
        if value == 0:
            return "0"
        text = self.axis.unit.brief(value)
        if self.axis.unit is SECONDS and not self.axis.logarithmic:
            text = seconds(value, like=self.high)
        return without_zeros(text)


def scale_of(
    axis: Axis, values: list[float], ends: tuple[float, float], *, from_zero: bool
) -> Scale:
    """A scale on which all values have a place, with some room at its ends."""
    start, end = ends
    low, high = min(values), max(values)
    if axis.stretched:
        return Scale(axis=axis, low=0.0, high=1.0, start=start, end=end)
    if axis.logarithmic:
        high = max(high, 1e-9)
        low = max(low, high / 1e5)  # 0 has no place
        return Scale(axis=axis, low=low / 1.3, high=high * 1.3, start=start, end=end)
    if from_zero:
        top = 1.05 * high or 1.0
        return Scale(axis=axis, low=0.0, high=top, start=start, end=end)
    # A difference of a percent must not fill the picture.
    room = max(0.1 * (high - low), LEAST_ROOM * high) or 1.0
    low = max(0.0, low - room)
    return Scale(axis=axis, low=low, high=high + room, start=start, end=end)


def _linear_ticks(low: float, high: float, most: int, unit: Unit) -> list[float]:
    """Multiples of 1, 2 or 5, in the unit in which they are written."""
    base = 1.0
    if unit is SECONDS and high >= 7_200:
        base = 3_600.0
    elif unit is SECONDS and high >= 120:
        base = 60.0
    rough = (high - low) / base / most
    power = 10.0 ** floor(log10(rough))
    step = 10 * power
    for factor in (1, 2, 5):
        if factor * power >= rough:
            step = factor * power
            break
    first = ceil(low / base / step)
    last = floor(high / base / step)
    return [number * step * base for number in range(first, last + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """1, 2, 5, 10 ...; fewer of them where there is no room for so many."""
    ticks: list[float] = []
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = []
        for power in range(floor(log10(low)), ceil(log10(high)) + 1):
            for factor in factors:
                tick = factor * 10.0**power
                if low <= tick <= high:
                    ticks.append(tick)
        if len(ticks) <= most:
            break
    return ticks


def without_zeros(text: str) -> str:
    """
    >>> without_zeros("1.50 s"), without_zeros("10.0 GiB"), without_zeros("1,000")
    ('1.5 s', '10 GiB', '1,000')
    """
    number, blank, unit = text.partition(" ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number}{blank}{unit}"
