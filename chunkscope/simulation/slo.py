"""Limits on latencies (`ttft_p95=1s,itl_p99=50ms`), and what became of them in a run.

A limit is on a percentile over all requests or gaps. Goodput counts single requests, as
`vllm bench serve` and aiperf do: those whose first token, mean gap and end all came in time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from chunkscope.artefacts.numbers import SECONDS, exceeds
from chunkscope.errors import UsageError
from chunkscope.lengths.histogram import Ranked
from chunkscope.simulation.clock import Clock
from chunkscope.simulation.requests import RequestState

METRICS = ("ttft", "itl", "tpot", "e2e")  # first token, gap, mean gap of a request, whole answer
GROWING = "queue"  # instead of a limit's name: the queue grows
ROUNDED = 1 + 2e-9  # what is over a limit by less is not over it
EXAMPLE = "ttft_p95=1s,itl_p99=50ms"
_RANK = re.compile(r"max|mean|p(?=.*[1-9])\d{1,2}(\.\d+)?")  # p99.9, and no p0 or p100


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLimit:
    """`at`: max, mean, or a percentile such as p95."""

    metric: str
    at: str
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.metric}_{self.at}"

    @property
    def percent(self) -> float | None:
        """None: it is on the mean."""
        return {"max": 100.0, "mean": None}[self.at] if self.at[0] == "m" else float(self.at[1:])

    def __str__(self) -> str:
        return f"{self.name} {SECONDS.brief(self.seconds)}"


Slo = tuple[LatencyLimit, ...]


def read_slo(text: str | None) -> Slo:
    """What `--slo` says; UsageError with what there is where it says something else.

    >>> [str(limit) for limit in read_slo("ttft_p95=1s, e2e_max=30s")]
    ['ttft_p95 1.00 s', 'e2e_max 30.0 s']
    """
    if text is None:
        return ()
    limits = tuple(_limit(part.strip()) for part in text.split(","))
    names = [limit.name for limit in limits]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--slo limits {twice} twice", hint=f"write it like {EXAMPLE}")
    return limits


def _limit(text: str) -> LatencyLimit:
    name, _, value = text.partition("=")
    metric, _, at = name.strip().lower().rpartition("_")
    if metric not in METRICS or not _RANK.fullmatch(at):
        raise UsageError(
            f"--slo has no metric {name.strip() or text!r}",
            hint=f"write it like {EXAMPLE}: {', '.join(METRICS)} with _p50 to _p99, _max or _mean",
        )
    try:
        seconds = SECONDS.read(value.strip())
    except ValueError as error:
        raise UsageError(f"--slo {name}: {error}") from None
    if not seconds:
        raise UsageError(f"--slo {name} must be over 0", hint=f"write it like {EXAMPLE}")
    return LatencyLimit(metric=metric, at=at, seconds=seconds)


class RequestTimes(NamedTuple):
    """What one request saw, in seconds."""

    ttft_s: float
    e2e_s: float
    output_tokens: int

    @property
    def tpot_s(self) -> float:
        """As vLLM has it: 0 where there is no second token."""
        return (self.e2e_s - self.ttft_s) / max(1, self.output_tokens - 1)

    def meets(self, limit: LatencyLimit) -> bool:
        """Of the gaps, single requests are judged by their mean."""
        metric = "tpot" if limit.metric == "itl" else limit.metric
        return bool(getattr(self, f"{metric}_s") <= limit.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class SloResult:
    """The figure of each limit, and how many requests met all of them."""

    limits: Slo
    found_s: tuple[float | None, ...]
    good_requests: int

    def found_of(self, limit: LatencyLimit) -> float | None:
        return self.found_s[self.limits.index(limit)]

    @property
    def tightest(self) -> LatencyLimit:
        return max(self.limits, key=lambda limit: (self.found_of(limit) or 0.0) / limit.seconds)

    @property
    def use(self) -> float:
        """Of the tightest limit, as a share: over 1 it is broken."""
        return (self.found_of(self.tightest) or 0.0) / self.tightest.seconds

    @property
    def is_met(self) -> bool:
        return not exceeds(self.use, 1.0)


def slo_result(limits: Slo, requests: Sequence[RequestTimes], gaps: Ranked) -> SloResult | None:
    """`gaps`: between tokens. None without limits."""
    if not limits:
        return None

    def found(limit: LatencyLimit) -> float | None:
        """None where nothing happened that could be too late."""
        ranked, name = gaps, f"{limit.metric}_s"
        if limit.metric != "itl":
            several = (r for r in requests if limit.metric != "tpot" or r.output_tokens > 1)
            ranked = Ranked((getattr(request, name), 1) for request in several)
        if limit.percent is None or not ranked.count:
            return ranked.total / ranked.count if ranked.count else None
        return ranked.percentile(limit.percent)

    good = sum(all(request.meets(limit) for limit in limits) for request in requests)
    return SloResult(limits=limits, found_s=tuple(map(found, limits)), good_requests=good)


# -- what is sure before the end -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """How many waited for their first token, on average, while the first half of all requests
    came, and while the second half did."""

    early: float
    late: float

    @property
    def grows(self) -> bool:
        """By more than chance explains, three standard deviations: then it grows without end."""
        return self.late - self.early > 3 * sqrt(self.late + self.early)


def backlog(states: Sequence[RequestState], waits: Sequence[float]) -> Backlog | None:
    """By Little's law, from how long they waited; None where all came at once."""
    half, last = len(states) // 2, len(states) - 1
    first_s, half_s, last_s = (states[place].arrival_s for place in (0, half, last))
    if not first_s < half_s < last_s:
        return None
    early = sum(waits[:half]) / (half_s - first_s)
    late = sum(waits[half:last]) / (last_s - half_s)
    return Backlog(early=early, late=late)


class Outlook(NamedTuple):
    """`broken`: a limit that surely is, or the queue that grows. `pressure`: of those that may be
    late, how many will be at this pace, and one more, for a percentile is between two ranks: less
    than 1 at the end, and no limit of which something is sure is broken."""

    broken: str | None = None
    pressure: float = 0.0


def outlook(
    slo: Slo,
    times: float,
    counts: dict[str, int],
    states: Sequence[RequestState],
    clock: Clock,
    *,
    is_open: bool,
) -> Outlook:
    """Late is what takes so many `times` as long as a limit allows. Nothing is sure of a mean or of
    whole answers. `counts`: requests (`ttft`) and gaps (`itl`) of all replicas, `states` of one.
    `is_open`: who still waits has waited since it came.
    """
    steps, now, pressure = len(clock.ends), clock.now if is_open else 0.0, 0.0
    served = [0 <= state.first_step < steps for state in states]
    waits = [
        max(0.0, (clock.ends[state.first_step] if is_served else now) - state.arrival_s)
        for state, is_served in zip(states, served, strict=True)
    ]
    values = {"ttft": {1: waits}, "itl": clock.gaps}
    for limit in slo:
        count, late_s = counts.get(limit.metric, 0), limit.seconds * times * ROUNDED
        if not count or limit.percent is None:
            continue
        most = count - int((count - 1) * limit.percent / 100)  # with so many late it is broken
        counted = values[limit.metric].items()
        late = sum(n * len([s for s in some if s > late_s]) for n, some in counted)
        pressure = max(pressure, (late + 1) / most * counts["ttft"] / max(1, sum(served)))
        if late >= most:
            return Outlook(limit.name, pressure)
    # When the first half is served, only the second waits longer.
    is_whole = len(states) == counts["ttft"]
    if is_open and is_whole and times <= 1 and all(served[: len(states) // 2]):
        queue = backlog(states, waits)
        return Outlook(GROWING if queue and queue.grows else None, pressure)
    return Outlook(None, pressure)
