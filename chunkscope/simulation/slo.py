"""Limits on latencies (`ttft_p95=1s,itl_p99=50ms`), and what became of them in a run.

A limit is on a percentile over all requests or gaps. Goodput counts single requests, as
`vllm bench serve` and aiperf do: those whose first token, mean gap and end all came in
time.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from chunkscope.artefacts.numbers import SECONDS, exceeds
from chunkscope.errors import UsageError
from chunkscope.lengths.histogram import Ranked

# First token, gap between tokens, mean gap of a request, whole answer.
METRICS = ("ttft", "itl", "tpot", "e2e")
GROWING = "queue"  # instead of a limit's name: the queue grows
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
        if self.at == "mean":
            return None
        if self.at == "max":
            return 100.0
        return float(self.at[1:])

    def __str__(self) -> str:
        return f"{self.name} {SECONDS.brief(self.seconds)}"


Slo = tuple[LatencyLimit, ...]


def read_slo(given: str | Iterable[str | LatencyLimit] | None) -> Slo:
    """What `--slo` says, in one text or several, and limits; UsageError where it says
    none."""
    parts = [given] if isinstance(given, str) else given or ()
    limits: list[LatencyLimit] = []
    for part in parts:
        if isinstance(part, LatencyLimit):
            limits.append(part)
        else:
            limits += [_limit(text) for text in part.split(",")]
    seen = set()
    for limit in limits:
        if (limit.metric, limit.percent) in seen:
            hint = f"write it like {EXAMPLE}"
            raise UsageError(f"--slo limits {limit.name} twice", hint=hint)
        seen.add((limit.metric, limit.percent))
    return tuple(limits)


def _limit(text: str) -> LatencyLimit:
    name, _, value = text.partition("=")
    metric, _, at = name.strip().lower().rpartition("_")
    if metric not in METRICS or not _RANK.fullmatch(at):
        metrics = ", ".join(METRICS)
        raise UsageError(
            f"--slo has no metric {name.strip() or text!r}",
            hint=f"write it like {EXAMPLE}: {metrics} with _p50 to _p99, _max or _mean",
        )
    try:
        seconds = SECONDS.read(value.strip())
    except ValueError as error:
        raise UsageError(f"--slo {name}: {error}") from None
    if not seconds:
        hint = f"write it like {EXAMPLE}"
        raise UsageError(f"--slo {name} must be over 0", hint=hint)
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

    def value(self, metric: str) -> float:
        """Its time of a metric. Of the gaps, a request is judged by their mean."""
        if metric == "ttft":
            return self.ttft_s
        if metric == "e2e":
            return self.e2e_s
        return self.tpot_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SloResult:
    """The figure of each limit, and how many requests met all of them."""

    limits: Slo
    found_s: tuple[float | None, ...]
    good_requests: int

    def found_of(self, limit: LatencyLimit) -> float | None:
        return self.found_s[self.limits.index(limit)]

    def use_of(self, limit: LatencyLimit) -> float:
        """Its figure as a share of it: over 1 it is broken."""
        return (self.found_of(limit) or 0.0) / limit.seconds

    @property
    def tightest(self) -> LatencyLimit:
        return max(self.limits, key=self.use_of)

    @property
    def use(self) -> float:
        return self.use_of(self.tightest)

    @property
    def is_met(self) -> bool:
        return not exceeds(self.use, 1.0)


def slo_result(
    limits: Slo, requests: Sequence[RequestTimes], gaps: Ranked
) -> SloResult | None:
    """`gaps`: between tokens. None without limits."""
    if not limits:
        return None
    good = 0
    for request in requests:
        if all(request.value(limit.metric) <= limit.seconds for limit in limits):
            good += 1
    found = tuple(_found(limit, requests, gaps) for limit in limits)
    return SloResult(limits=limits, found_s=found, good_requests=good)


def _found(
    limit: LatencyLimit, requests: Sequence[RequestTimes], gaps: Ranked
) -> float | None:
    """None where nothing happened that could be too late."""
    ranked = gaps
    if limit.metric != "itl":
        times = []
        for request in requests:
            if limit.metric != "tpot" or request.output_tokens > 1:
                times.append(request.value(limit.metric))
        ranked = Ranked(times)
    if not ranked.count:
        return None
    if limit.percent is None:
        return ranked.total / ranked.count
    return ranked.percentile(limit.percent)


# -- a queue that grows --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """How many waited for their first token, on average, while the first half of all
    requests came, and while the second half did."""

    early: float
    late: float

    @property
    def grows(self) -> bool:
        """By more than chance explains, three standard deviations: then it grows
        without end."""
        return self.late - self.early > 3 * sqrt(self.late + self.early)


def backlog(sent_s: Sequence[float], waited_s: Sequence[float]) -> Backlog | None:
    """By Little's law, from when requests were sent, in order, and how long each
    waited; None where all came at once."""
    half, last = len(sent_s) // 2, len(sent_s) - 1
    first_s, half_s, last_s = sent_s[0], sent_s[half], sent_s[last]
    if not first_s < half_s < last_s:
        return None
    early = sum(waited_s[:half]) / (half_s - first_s)
    late = sum(waited_s[half:last]) / (last_s - half_s)
    return Backlog(early=early, late=late)
