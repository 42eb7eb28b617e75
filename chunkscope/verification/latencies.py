"""Time stamps of a repeat -> latencies and throughput; repeats -> their median."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from statistics import median, median_low
from typing import Any

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers
from chunkscope.artefacts.figures import Figures, Latencies
from chunkscope.lengths.histogram import Ranked
from chunkscope.simulation.result import MICROSECONDS, RequestRows
from chunkscope.simulation.slo import RequestTimes, Slo, slo_result
from chunkscope.verification.inside.chunkscope_sessions import Answer
from chunkscope.verification.result import Distribution

Repeats = Sequence[Sequence[Answer]]


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
    long_over: int,
    steps: EngineSteps | None = None,
    slo: Slo = (),
) -> Figures:
    """What one repeat came to. Prompts over `long_over` tokens are long."""
    short: list[Answer] = []
    long: list[Answer] = []
    for answer in answers:
        is_long = answer.prompt_tokens > long_over
        (long if is_long else short).append(answer)
    begin = min(answer.sent for answer in answers)
    end = max(answer.times[-1] for answer in answers)
    makespan = end - begin
    input_tokens = sum(answer.prompt_tokens for answer in answers)
    latencies = latencies_of(answers)
    figures = Figures(
        makespan_s=makespan,
        requests_per_s=len(answers) / makespan,
        ttft_s=latencies.ttft_s,
        itl_s=latencies.itl_s,
        e2e_s=latencies.e2e_s,
        short=latencies_of(short) if short else None,
        long=latencies_of(long) if long else None,
        input_tokens_per_s=input_tokens / makespan,
        output_tokens_per_s=sum(answer.tokens for answer in answers) / makespan,
        prefix_hit_rate=hit_rate(answers),
    )
    seen = [RequestTimes(a.ttft_s, a.e2e_s, a.tokens) for a in answers]
    outcome = slo_result(slo, seen, gaps_of(answers))
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


def hit_rate(answers: Sequence[Answer]) -> float | None:
    """The share of prompt tokens that were cached; None unless every answer tells."""
    cached = [answer.cached for answer in answers if answer.cached is not None]
    if len(cached) < len(answers):
        return None
    return sum(cached) / sum(answer.prompt_tokens for answer in answers)


def latencies_of(answers: Sequence[Answer]) -> Latencies:
    gaps = gaps_of(answers)
    return Latencies(
        ttft_s=Ranked(answer.ttft_s for answer in answers).percentiles(),
        itl_s=gaps.percentiles() if gaps.count else None,
        e2e_s=Ranked(answer.e2e_s for answer in answers).percentiles(),
    )


def gaps_of(answers: Sequence[Answer]) -> Ranked:
    gaps = []
    for answer in answers:
        gaps += answer.gaps_s
    return Ranked(gaps)


def distribution_of(repeats: Repeats) -> Distribution | None:
    """Every percentile, of the answers of all repeats."""
    answers = [answer for repeat in repeats for answer in repeat]
    if not answers:
        return None
    gaps = gaps_of(answers)
    return Distribution(
        ttft_s=percentiles(Ranked(answer.ttft_s for answer in answers)),
        itl_s=percentiles(gaps) if gaps.count else None,
    )


def rows_of(answers: Sequence[Answer]) -> RequestRows:
    """Every request that ended; no cached tokens unless all answers tell of them."""
    cached = [answer.cached for answer in answers if answer.cached is not None]
    is_told = len(cached) == len(answers)
    return RequestRows(
        session=Numbers(answer.session for answer in answers),
        turn=Numbers(answer.turn for answer in answers),
        prompt_tokens=Numbers(answer.prompt_tokens for answer in answers),
        cached_tokens=Numbers(cached) if is_told else NO_NUMBERS,
        output_tokens=Numbers(answer.tokens for answer in answers),
        start_us=microseconds([answer.sent for answer in answers]),
        first_token_us=microseconds([answer.times[0] for answer in answers]),
        end_us=microseconds([answer.times[-1] for answer in answers]),
    )


def microseconds(times: Sequence[float]) -> Numbers:
    return Numbers(round(seconds * MICROSECONDS) for seconds in times)


def ended_by(rows: RequestRows, limit_s: float) -> list[Answer]:
    """The simulated requests that had ended when a run was cut off.

    Of an answer only its first token and its end are known.
    """
    answers = []
    for place, end_us in enumerate(rows.end_us):
        if end_us > limit_s * MICROSECONDS:
            continue
        answer = Answer(
            session=rows.session[place],
            turn=rows.turn[place],
            prompt_tokens=rows.prompt_tokens[place],
            sent=rows.start_us[place] / MICROSECONDS,
            times=[rows.first_token_us[place] / MICROSECONDS, end_us / MICROSECONDS],
            counts=[1, rows.output_tokens[place] - 1],
            cached=rows.cached_tokens[place],
        )
        answers.append(answer)
    return answers


def served_from_cache_by_turn(rows: Sequence[RequestRows]) -> dict[int, float]:
    """The share of the prompt tokens that were cached; empty where nobody told."""
    prompt_tokens: Counter[int] = Counter()
    cached_tokens: Counter[int] = Counter()
    for repeat in rows:
        for place, cached in enumerate(repeat.cached_tokens):
            turn = repeat.turn[place]
            prompt_tokens[turn] += repeat.prompt_tokens[place]
            cached_tokens[turn] += cached
    shares = {}
    for turn in sorted(prompt_tokens):
        shares[turn] = cached_tokens[turn] / prompt_tokens[turn]
    return shares


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
