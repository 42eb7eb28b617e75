"""Time stamps of one repeat -> latencies and throughput; several repeats -> their median."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from statistics import median, median_low
from typing import Any, cast

from chunkscope.simulation.slo import RequestTimes, Slo, SloFound, slo_found
from chunkscope.simulation.workload import Workload
from chunkscope.verification.result import Distribution, Figures, Latency, Quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request as its sender saw it: seconds since the repeat began, and tokens at each."""

    sent: float
    times: Sequence[float]
    counts: Sequence[int]
    cached: int | None = None  # prompt tokens that came from the prefix cache
    prompt_tokens: int | None = None  # as a server counts them, if it tells
    whole: bytes = b""  # what was sent back, if it is to be kept
    is_counted: bool = True  # or each piece of a stream was taken for a token

    @property
    def first_s(self) -> float:
        return self.times[0] - self.sent

    @property
    def all_s(self) -> float:
        return self.times[-1] - self.sent

    @property
    def gaps_s(self) -> list[float]:
        """One per token after the first: tokens that came together share the wait."""
        waits = zip(self.times, self.times[1:], self.counts[1:], strict=False)
        return [(later - earlier) / n for earlier, later, n in waits for _ in range(n)]


def figures_of(
    answers: Sequence[Answer],
    workload: Workload,
    steps: Mapping[str, Any] | None = None,
    slo: Slo = (),
) -> Figures:
    """`steps`: what the scheduler did in this repeat, as a worker's probe tells it."""
    is_long = [r.prompt_tokens > workload.long_over for r in workload.requests]
    end = max(answer.times[-1] for answer in answers)
    makespan = end - min(answer.sent for answer in answers)
    ttft = _latency(answers, is_long, lambda answer: [answer.first_s])
    e2e = _latency(answers, is_long, lambda answer: [answer.all_s])
    if ttft is None or e2e is None:
        raise ValueError("a repeat without answers has no figures")
    met = _met(answers, slo)
    return Figures(
        makespan_s=makespan,
        ttft_s=ttft,
        itl_s=_latency(answers, is_long, lambda answer: answer.gaps_s),
        e2e_s=e2e,
        input_tokens_per_s=workload.input_tokens / makespan,
        output_tokens_per_s=sum(sum(answer.counts) for answer in answers) / makespan,
        prefix_hit_rate=_hit_rate(answers, workload),
        goodput_per_s=met.good_requests / makespan if met else None,
        slo_use=met.use if met else None,
        **_scheduled(steps),
    )


def _met(answers: Sequence[Answer], slo: Slo) -> SloFound | None:
    times = [
        RequestTimes(ttft_s=one.first_s, e2e_s=one.all_s, output_tokens=sum(one.counts))
        for one in answers
    ]
    return slo_found(slo, times, ((gap, 1) for answer in answers for gap in answer.gaps_s))


def _scheduled(steps: Mapping[str, Any] | None) -> dict[str, Any]:
    if steps is None:
        return {}
    count, chunks = len(steps["duration_s"]), steps["chunks"].values()  # chunks of each prompt
    tokens = sum(steps["prefill_tokens"]) + sum(steps["decode_requests"])
    return {
        "steps": count,
        "tokens_per_step": tokens / count if count else None,
        "chunked_prompts": sum(of_one > 1 for of_one in chunks),
        "chunks_max": max(chunks, default=None),
        "preemptions": steps["preemptions"],
    }


def _hit_rate(answers: Sequence[Answer], workload: Workload) -> float | None:
    known = [answer.cached for answer in answers if answer.cached is not None]
    return sum(known) / workload.input_tokens if len(known) == len(answers) else None


def _latency(
    answers: Sequence[Answer], is_long: Sequence[bool], seconds: Callable[[Answer], list[float]]
) -> Latency | None:
    short = [s for a, long in zip(answers, is_long, strict=True) if not long for s in seconds(a)]
    long = [s for a, long in zip(answers, is_long, strict=True) if long for s in seconds(a)]
    everything = quantiles([*short, *long])
    if everything is None:
        return None
    return Latency(all=everything, short=quantiles(short), long=quantiles(long))


def quantiles(values: Sequence[float]) -> Quantiles | None:
    """Linear interpolation, as everywhere; None of nothing."""
    import numpy as np

    if not values:
        return None
    p50, p95, p99 = (float(q) for q in np.percentile(values, (50, 95, 99)))
    return Quantiles(p50=p50, p95=p95, p99=p99, max=float(max(values)))


def distribution_of(answers: Sequence[Answer]) -> Distribution | None:
    """Every percentile, of the answers of all repeats."""
    import numpy as np

    def percentiles(values: list[float]) -> tuple[float, ...]:
        return tuple(round(float(q), 6) for q in np.percentile(values, range(101)))

    gaps = [gap for answer in answers for gap in answer.gaps_s]
    if not answers:
        return None
    return Distribution(
        ttft_s=percentiles([answer.first_s for answer in answers]),
        itl_s=percentiles(gaps) if gaps else None,
    )


def median_of(repeats: Sequence[Figures]) -> Figures:
    """Figure by figure. Counts stay whole numbers: the lower of two in the middle."""
    return cast("Figures", _median(repeats))


def _median(values: Sequence[Any]) -> Any:
    """Of numbers, or part by part of what holds numbers; of those that are known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    kind = type(known[0])
    if is_dataclass(kind):
        return kind(**{f.name: _median([getattr(v, f.name) for v in known]) for f in fields(kind)})
    return median_low(known) if kind is int else median(known)
