"""Limits on latencies (`ttft_p95=1s,itl_p99=50ms`), and what became of them in a run.

A limit is on a percentile over all requests or gaps. Goodput counts single requests, as
`vllm bench serve` and aiperf do: those whose first token, mean gap and end all came in time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chunkscope.artefacts.numbers import SECONDS, exceeds
from chunkscope.errors import UsageError
from chunkscope.lengths.histogram import Ranked

METRICS = ("ttft", "itl", "tpot", "e2e")  # first token, gap, mean gap of a request, whole answer
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

    def __str__(self) -> str:
        """
        >>> str(LatencyLimit(metric="itl", at="p99", seconds=0.05))
        'itl_p99 50.0 ms'
        """
        return f"{self.name} {SECONDS.brief(self.seconds)}"

    def figure(self, ranked: Ranked) -> float | None:
        """The figure that is limited; None where nothing happened that could be too late."""
        if not ranked.count:
            return None
        if self.at == "mean":
            return ranked.total / ranked.count
        return ranked.percentile(100.0 if self.at == "max" else float(self.at[1:]))


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
            f"--slo knows no {name.strip() or text!r}",
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

    def ranked(metric: str) -> Ranked:
        if metric == "itl":
            return gaps
        several = (one for one in requests if metric != "tpot" or one.output_tokens > 1)
        return Ranked((getattr(one, f"{metric}_s"), 1) for one in several)

    good = sum(all(request.meets(limit) for limit in limits) for request in requests)
    figures = tuple(limit.figure(ranked(limit.metric)) for limit in limits)
    return SloResult(limits=limits, found_s=figures, good_requests=good)
