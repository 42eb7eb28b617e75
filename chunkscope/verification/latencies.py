"""Time stamps of one repeat -> latencies and throughput; several repeats -> their median."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from statistics import median, median_low
from typing import Any

from chunkscope.artefacts.figures import Figures, Latencies
from chunkscope.lengths.histogram import Ranked
from chunkscope.simulation.slo import RequestTimes, Slo, slo_result
from chunkscope.simulation.workload import Workload
from chunkscope.verification.result import Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request as its sender saw it: seconds since the repeat began, and tokens at each."""

    sent: float
    times: Sequence[float]
    counts: Sequence[int]
    cached: int | None = None  # prompt tokens that came from the prefix cache
    prompt_tokens: int | None = None  # as a server counts them, if it tells
    is_counted: bool = True  # or each piece of a stream was taken for a token

    @property
    def seen(self) -> RequestTimes:
        first, last = self.times[0] - self.sent, self.times[-1] - self.sent
        return RequestTimes(first, last, sum(self.counts))

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
    end = max(answer.times[-1] for answer in answers)
    makespan = end - min(answer.sent for answer in answers)
    pairs = list(zip(answers, workload.requests, strict=True))
    short = [a for a, r in pairs if r.prompt_tokens <= workload.long_over]
    long = [a for a, r in pairs if r.prompt_tokens > workload.long_over]
    cached = [answer.cached for answer in answers if answer.cached is not None]
    scheduled: dict[str, Any] = {}
    if steps is not None:
        count, chunks = (
            len(steps["duration_s"]),
            steps["chunks"].values(),
        )  # of each prompt
        tokens = sum(steps["prefill_tokens"]) + sum(steps["decode_requests"])
        scheduled = {
            "steps": count,
            "tokens_per_step": tokens / count if count else None,
            "chunked_prompts": sum(of_one > 1 for of_one in chunks),
            "chunks_max": max(chunks, default=None),
            "preemptions": steps["preemptions"],
        }
    met = slo_result(slo, [answer.seen for answer in answers], _ranked(answers)[1])
    return Figures(
        makespan_s=makespan,
        **_percentiles(answers),
        short=Latencies(**_percentiles(short)) if short else None,
        long=Latencies(**_percentiles(long)) if long else None,
        input_tokens_per_s=workload.input_tokens / makespan,
        output_tokens_per_s=sum(sum(answer.counts) for answer in answers) / makespan,
        prefix_hit_rate=(
            sum(cached) / workload.input_tokens if len(cached) == len(answers) else None
        ),
        goodput_per_s=met.good_requests / makespan if met else None,
        slo_use=met.use if met else None,
        **scheduled,
    )


def _ranked(answers: Sequence[Answer]) -> tuple[Ranked, Ranked, Ranked]:
    """Times to first tokens, gaps, and times of whole answers."""
    times = [answer.seen for answer in answers]
    gaps = (gap for answer in answers for gap in answer.gaps_s)
    return (
        Ranked(one.ttft_s for one in times),
        Ranked(gaps),
        Ranked(one.e2e_s for one in times),
    )


def _percentiles(answers: Sequence[Answer]) -> dict[str, Any]:
    """The fields of `Latencies`."""
    times = [
        ranked.percentiles() if ranked.count else None for ranked in _ranked(answers)
    ]
    return dict(zip(("ttft_s", "itl_s", "e2e_s"), times, strict=True))


def distribution_of(answers: Sequence[Answer]) -> Distribution | None:
    """Every percentile, of the answers of all repeats."""
    first, gaps = (
        tuple(round(times.percentile(p), 6) for p in range(101))
        if times.count
        else None
        for times in _ranked(answers)[:2]
    )
    return Distribution(ttft_s=first, itl_s=gaps) if first else None


def median_of(values: Sequence[Any]) -> Any:
    """Of the numbers that are known, field by field of a dataclass; of two counts the lower."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    kind = type(numbers[0])
    if is_dataclass(kind):
        parts = {
            f.name: [getattr(value, f.name) for value in numbers] for f in fields(kind)
        }
        return kind(**{name: median_of(part) for name, part in parts.items()})
    return median_low(numbers) if kind is int else median(numbers)
