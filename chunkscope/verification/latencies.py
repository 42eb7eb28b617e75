"""Time stamps of a repeat -> latencies and throughput; repeats -> their median."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from statistics import median, median_low
from typing import Any

from chunkscope.artefacts.figures import Figures, Latencies
from chunkscope.lengths.histogram import Ranked
from chunkscope.simulation.slo import RequestTimes, Slo, slo_result
from chunkscope.simulation.workload import Workload
from chunkscope.verification.result import Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request as its sender saw it: tokens, at seconds since the repeat began."""

    sent: float
    times: Sequence[float]
    counts: Sequence[int]
    cached: int | None = None  # prompt tokens that came from the prefix cache
    prompt_tokens: int | None = None  # as a server counts them, if it tells
    is_counted: bool = True  # or each piece of a stream was taken for a token

    @property
    def seen(self) -> RequestTimes:
        first = self.times[0] - self.sent
        last = self.times[-1] - self.sent
        return RequestTimes(first, last, self.tokens)

    @property
    def tokens(self) -> int:
        return sum(self.counts)

    @property
    def gaps_s(self) -> list[float]:
        """One per token after the first: tokens that came together share the wait."""
        gaps = []
        for number in range(1, len(self.times)):
            count = self.counts[number]
            gap = (self.times[number] - self.times[number - 1]) / count
            gaps += [gap] * count
        return gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSteps:
    """The steps of one repeat as columns: an entry per step, by a worker's probe."""

    prefill_tokens: Sequence[int]
    prefill_pairs: Sequence[int]
    prefill_requests: Sequence[int]
    decode_requests: Sequence[int]
    decode_context_tokens: Sequence[int]
    duration_s: Sequence[float | None]  # None before a step that waited for requests
    chunks: dict[str, int]  # pieces of a prompt, by request
    preemptions: int


def figures_of(
    answers: Sequence[Answer],
    workload: Workload,
    steps: EngineSteps | None = None,
    slo: Slo = (),
) -> Figures:
    """What one repeat came to.

    The answers are in the order of the workload's requests.
    """
    short: list[Answer] = []
    long: list[Answer] = []
    for answer, request in zip(answers, workload.requests, strict=True):
        is_long = request.prompt_tokens > workload.long_over
        (long if is_long else short).append(answer)
    begin = min(answer.sent for answer in answers)
    end = max(answer.times[-1] for answer in answers)
    makespan = end - begin
    latencies = latencies_of(answers)
    figures = Figures(
        makespan_s=makespan,
        ttft_s=latencies.ttft_s,
        itl_s=latencies.itl_s,
        e2e_s=latencies.e2e_s,
        short=latencies_of(short) if short else None,
        long=latencies_of(long) if long else None,
        input_tokens_per_s=workload.input_tokens / makespan,
        output_tokens_per_s=sum(answer.tokens for answer in answers) / makespan,
        prefix_hit_rate=hit_rate(answers, workload),
    )
    outcome = slo_result(slo, [answer.seen for answer in answers], gaps_of(answers))
    if outcome is not None:
        goodput = outcome.good_requests / makespan
        figures = replace(figures, goodput_per_s=goodput, slo_use=outcome.use)
    if steps is not None:
        figures = with_steps(figures, steps)
    return figures


def with_steps(figures: Figures, steps: EngineSteps) -> Figures:
    """The figures with those that only the scheduler knows."""
    count = len(steps.duration_s)
    tokens = sum(steps.prefill_tokens) + sum(steps.decode_requests)
    pieces = steps.chunks.values()
    return replace(
        figures,
        steps=count,
        tokens_per_step=tokens / count if count else None,
        chunked_prompts=len([number for number in pieces if number > 1]),
        chunks_max=max(pieces, default=None),
        preemptions=steps.preemptions,
    )


def hit_rate(answers: Sequence[Answer], workload: Workload) -> float | None:
    """The share of prompt tokens that were cached; None unless every answer tells."""
    cached = [answer.cached for answer in answers if answer.cached is not None]
    if len(cached) < len(answers):
        return None
    return sum(cached) / workload.input_tokens


def latencies_of(answers: Sequence[Answer]) -> Latencies:
    gaps = gaps_of(answers)
    return Latencies(
        ttft_s=first_tokens_of(answers).percentiles(),
        itl_s=gaps.percentiles() if gaps.count else None,
        e2e_s=Ranked(answer.seen.e2e_s for answer in answers).percentiles(),
    )


def first_tokens_of(answers: Sequence[Answer]) -> Ranked:
    return Ranked(answer.seen.ttft_s for answer in answers)


def gaps_of(answers: Sequence[Answer]) -> Ranked:
    gaps = []
    for answer in answers:
        gaps += answer.gaps_s
    return Ranked(gaps)


def distribution_of(answers: Sequence[Answer]) -> Distribution | None:
    """Every percentile, of the answers of all repeats."""
    if not answers:
        return None
    gaps = gaps_of(answers)
    return Distribution(
        ttft_s=percentiles(first_tokens_of(answers)),
        itl_s=percentiles(gaps) if gaps.count else None,
    )


def percentiles(ranked: Ranked) -> tuple[float, ...]:
    """Percentiles 0, 1, ... 100."""
    return tuple(round(ranked.percentile(percent), 6) for percent in range(101))


def median_of(values: Sequence[Any]) -> Any:
    """The median of the numbers that are known; of dataclasses, field by field.

    Of two counts it is the lower one: half a step was never made.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    kind = type(known[0])
    if is_dataclass(kind):
        medians = {}
        for field in fields(kind):
            medians[field.name] = median_of([getattr(v, field.name) for v in known])
        return kind(**medians)
    return median_low(known) if kind is int else median(known)
