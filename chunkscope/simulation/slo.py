"""Limits on latencies (`ttft_p95=1s,itl_p99=50ms`), and what became of them in a run.

A limit is on a percentile over all requests or gaps. Goodput counts single requests, as
`vllm bench serve` and aiperf do: those whose first token, mean gap and end all came in time.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from operator import attrgetter
from typing import NamedTuple

from chunkscope.artefacts.numbers import SECONDS, exceeds
from chunkscope.errors import UsageError
from chunkscope.lengths.histogram import Ranked
from chunkscope.simulation.clock import Clock
from chunkscope.simulation.requests import RequestState

METRICS = (
    "ttft",
    "itl",
    "tpot",
    "e2e",
)  # first token, gap, mean gap of a request, whole answer
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
        return (
            {"max": 100.0, "mean": None}[self.at]
            if self.at[0] == "m"
            else float(self.at[1:])
        )

    def __str__(self) -> str:
        return f"{self.name} {SECONDS.brief(self.seconds)}"

    def late(self, seconds: Iterable[float], times: float) -> float:
        """How many take over so many `times` what it allows; of a mean, their sum in that."""
        late_s = self.seconds * times * ROUNDED
        return (
            len([s for s in seconds if s > late_s])
            if self.percent
            else sum(seconds) / late_s
        )


Slo = tuple[LatencyLimit, ...]
States = Sequence[RequestState]


def read_slo(given: str | Iterable[str | LatencyLimit] | None) -> Slo:
    """What `--slo` says, in one text or several, and limits; UsageError where it says none."""
    parts = [given] if isinstance(given, str) else given or ()
    texts = (
        map(_limit, one.split(",")) if isinstance(one, str) else [one] for one in parts
    )
    limits = tuple(limit for some in texts for limit in some)
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
        raise UsageError(
            f"--slo {name} must be over 0", hint=f"write it like {EXAMPLE}"
        )
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
        return max(
            self.limits, key=lambda limit: (self.found_of(limit) or 0.0) / limit.seconds
        )

    @property
    def use(self) -> float:
        """Of the tightest limit, as a share: over 1 it is broken."""
        return (self.found_of(self.tightest) or 0.0) / self.tightest.seconds

    @property
    def is_met(self) -> bool:
        return not exceeds(self.use, 1.0)


def slo_result(
    limits: Slo, requests: Sequence[RequestTimes], gaps: Ranked
) -> SloResult | None:
    """`gaps`: between tokens. None without limits."""
    if not limits:
        return None

    def found(limit: LatencyLimit) -> float | None:
        """None where nothing happened that could be too late."""
        ranked, name = gaps, f"{limit.metric}_s"
        if limit.metric != "itl":
            several = (
                r for r in requests if limit.metric != "tpot" or r.output_tokens > 1
            )
            ranked = Ranked(getattr(request, name) for request in several)
        if limit.percent is None or not ranked.count:
            return ranked.total / ranked.count if ranked.count else None
        return ranked.percentile(limit.percent)

    # Of the gaps, single requests are judged by their mean.
    most = [
        (f"{limit.metric}_s".replace("itl", "tpot"), limit.seconds) for limit in limits
    ]
    good = sum(
        all(getattr(r, name) <= seconds for name, seconds in most) for r in requests
    )
    return SloResult(
        limits=limits, found_s=tuple(map(found, limits)), good_requests=good
    )


def request_times(
    state: RequestState, ends: Mapping[int, float], now: float = 0.0
) -> RequestTimes:
    """What a request saw; while its steps have not ended, what it will have seen at least."""
    came, first, last = state.arrival_s, state.first_step, state.last_step
    first_s = ends.get(first, max(now, came))
    last_s = ends[last] if state.has_ended and last in ends else max(now, first_s)
    return RequestTimes(first_s - came, last_s - came, state.max_tokens)


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


def backlog(states: States, waits: Sequence[float]) -> Backlog | None:
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
    than 1 at the end, and no limit is broken."""

    broken: str | None = None
    pressure: float = 0.0


def outlook_of(
    slo: Slo, times: float, every: States, own: States, *, is_open: bool
) -> Callable[[Clock], Outlook]:
    """Late is what takes so many `times` as long as a limit allows. `own`: those of one replica,
    of `every` request. `is_open`: who still waits has waited since it came."""
    later = [state.max_tokens - 1 for state in every if state.max_tokens > 1]
    counts = {"itl": sum(later), "tpot": len(later)}
    late = {limit: 0.0 for limit in slo if counts.setdefault(limit.metric, len(every))}
    counted = Counter[int]()  # gaps, by how many wait for each
    half, on_requests = len(own) // 2, any(limit.metric != "itl" for limit in late)

    def outlook(clock: Clock) -> Outlook:
        ends, now, pressure = clock.ends, clock.now if is_open else 0.0, 0.0
        came = own[: bisect_right(own, clock.now, key=attrgetter("arrival_s"))]
        served = [state.first_step in ends for state in came]
        # When the first half is served, only the second waits longer.
        is_judged = (
            is_open
            and len(own) == len(every)
            and times <= 1
            and sum(served[:half]) == half
        )
        seen = [
            request_times(state, ends, now)
            for state in came
            if is_judged or on_requests
        ]
        for limit in late:
            if limit.metric == "itl":
                new = ((n, gaps[counted[n] :]) for n, gaps in clock.gaps.items())
                late[limit] += sum(n * limit.late(gaps, times) for n, gaps in new)
            else:
                late[limit] = limit.late(
                    map(attrgetter(f"{limit.metric}_s"), seen), times
                )
            count = counts[limit.metric]
            most = count - int(
                (count - 1) * (limit.percent or 0.0) / 100
            )  # then it is broken
            pressure = max(
                pressure, (late[limit] + 1) / most * len(every) / max(1, sum(served))
            )
            if late[limit] >= most:
                return Outlook(limit.name, pressure)
        counted.update({n: len(gaps) - counted[n] for n, gaps in clock.gaps.items()})
        queue = (
            backlog(own, [request.ttft_s for request in seen]) if is_judged else None
        )
        return Outlook(GROWING if queue and queue.grows else None, pressure)

    return outlook
