"""`--objective latency`: budget and requests whose slowest step stays short. All estimates."""

from dataclasses import dataclass

from chunkscope.artefacts.labels import Label
from chunkscope.artefacts.numbers import by
from chunkscope.errors import UsageError
from chunkscope.hardware.step_time import StepModel
from chunkscope.planning.plan import Argument
from chunkscope.planning.problem import LADDER, Problem
from chunkscope.planning.search import Trials, trials_of
from chunkscope.vllm.settings import Settings

STEP_MULTIPLE = 64
# Judgement, not measurement: a larger budget must make the step model's throughput this much
# better. It lies between what 4096 -> 8192 (3.1 %) and 8192 -> 16384 (1.6 %) give on the H200.
WORTH_SPEED = 0.025
MAX_KV_LOSS = 0.10  # of the KV cache, for a larger budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Smooth:
    """A setting whose every gap stays under the limit, by estimate and simulation."""

    settings: Settings
    budget: Argument
    seqs: Argument
    advice: str


def smooth(p: Problem, *, cap: int | None) -> Smooth:
    """vLLM's own where it is smooth enough; else the most requests at once that are.

    Every step stays under the limit by itself; preempted requests wait longer, so fewer run: half
    as many, should that be faster.
    """
    trials = trials_of(p)  # a gap is promised of all requests
    if _is_smooth(trials, p.own) and cap is None:
        return _left_alone(p, trials)
    most = latency_seqs(p)
    counts = list(dict.fromkeys(max(1, int(most.value or 1) >> n) for n in range(10)))
    offers = {count: latency_budget(p, cap=cap, seqs=count) for count in counts}
    tried = [_at(p, count, int(offers[count].value or count), cap) for count in counts]
    first_smooth = next((n for n, one in enumerate(tried) if _is_smooth(trials, one)), 0)
    first, *others = tried[first_smooth : first_smooth + (1 if first_smooth else 2)]
    found = trials.best((one for one in others if _is_smooth(trials, one)), first)
    running = found.max_num_seqs or 1
    if running == counts[0]:
        seqs = most
    else:
        if found == first:
            gap = _longest_gap(trials, tried[first_smooth - 1]) or 0.0
            why = f"with {2 * running:,}, preempted requests would wait {gap:,.1f} s (simulated)"
        else:
            gain = trials.seconds(first) / trials.seconds(found) - 1
            why = f"{by(gain)} throughput over {first.max_num_seqs:,} requests at once (simulated)"
        seqs = Argument.chosen("max_num_seqs", running, p.own.max_num_seqs, why, Label.PREDICTED)
    gaps = [_ms(_longest_gap(trials, one)) for one in (found, p.own)]
    said = f"the longest gap between tokens is {gaps[0]} instead of {gaps[1]} (simulated)"
    size = offers[running].value or 0
    advice = f"Set {running:,} requests at once and {size:,} tokens a step: {said}."
    return Smooth(settings=found, budget=offers[running], seqs=seqs, advice=advice)


def _left_alone(p: Problem, trials: Trials) -> Smooth:
    gap = _ms(_longest_gap(trials, p.own))
    reason = f"with vLLM's own the longest gap is {gap}, under {p.max_itl_ms:g} ms (simulated)"
    budget, seqs = (
        Argument.chosen(name, value, value, reason, Label.PREDICTED)
        for name, value in (
            ("max_num_batched_tokens", p.own.max_num_batched_tokens),
            ("max_num_seqs", p.own.max_num_seqs),
        )
    )
    return Smooth(settings=p.own, budget=budget, seqs=seqs, advice=f"Change nothing: {reason}.")


def _ms(seconds: float | None) -> str:
    return "not known" if seconds is None else f"{seconds * 1000:,.0f} ms"


def _at(p: Problem, seqs: int, budget: int, cap: int | None) -> Settings:
    bites = cap is not None and cap < min(budget, p.longest)
    return Settings(
        max_num_batched_tokens=budget,
        max_num_seqs=min(seqs, budget),
        long_prefill_token_threshold=cap if bites else 0,
    )


def _is_smooth(trials: Trials, settings: Settings) -> bool:
    gap = _longest_gap(trials, settings)
    return gap is not None and gap <= itl_limit(trials.problem)


def _longest_gap(trials: Trials, settings: Settings) -> float | None:
    """None where it cannot be simulated."""
    run = trials.run(settings)
    return run.figures.longest_gap_s or 0.0 if run is not None else None


def latency_budget(p: Problem, *, cap: int | None, seqs: int) -> Argument:
    """The largest budget whose slowest step stays under the limit, by the step model."""
    paying = max(seqs, _paying_budget(p, cap))
    limit_s = itl_limit(p)
    best = seqs
    for budget in range(-(-seqs // STEP_MULTIPLE) * STEP_MULTIPLE, paying + 1, STEP_MULTIPLE):
        if worst_step(p, budget, seqs) > limit_s:
            break
        best = max(best, budget)
    took = worst_step(p, best, seqs) * 1000
    reason = f"its slowest step takes about {took:,.0f} ms, under {p.max_itl_ms:g} ms"
    if best >= paying:
        reason = f"{best:,} is the largest budget that pays; {reason}"
    return Argument.chosen(
        "max_num_batched_tokens",
        best,
        p.own.max_num_batched_tokens,
        f"{reason} (estimate)",
        Label.PREDICTED,
    )


def _paying_budget(p: Problem, cap: int | None) -> int:
    """Climb while throughput gains and the KV cache is not eaten."""
    best, step = LADDER[0], _step(p)
    first = None
    for rung in LADDER:
        memory = p.memory(
            Settings(max_num_batched_tokens=rung, long_prefill_token_threshold=cap or 0)
        )
        if memory is None or not memory.holds(p.context):
            break
        first = first if first and rung > LADDER[2] else memory
        eaten = memory.kv_cache_tokens < (1 - MAX_KV_LOSS) * first.kv_cache_tokens
        gain = step.tokens_per_second(rung) / step.tokens_per_second(best) - 1
        if rung > LADDER[2] and (eaten or gain < WORTH_SPEED):
            break
        best = rung
    return best


def worst_step(p: Problem, budget: int, seqs: int) -> float:
    """The end of the longest prompt fills the step beside `seqs` decoding requests."""
    prefill = max(0, budget - seqs)
    memory = p.memory(Settings(max_num_batched_tokens=max(budget, seqs), max_num_seqs=seqs))
    held = memory.kv_cache_tokens if memory else seqs * p.typical_tokens
    return _step(p).seconds(
        tokens=max(budget, seqs),
        prefill=prefill,
        context=p.longest if prefill else 0,
        decode_context=min(held, seqs * p.typical_tokens),
        requests=seqs,
    )


def latency_seqs(p: Problem) -> Argument:
    """As many running requests as leave half of the step to prefill."""
    limit_s = itl_limit(p)
    start = p.base.max_num_seqs or p.own.max_num_seqs or 1
    for seqs in (start >> shift for shift in range(start.bit_length())):
        took = worst_step(p, seqs, seqs)
        if took <= limit_s / 2:
            reason = (
                f"decoding {seqs:,} requests takes about {took * 1000:,.1f} ms of the step "
                "(estimate)"
            )
            return Argument.chosen(
                "max_num_seqs", seqs, p.own.max_num_seqs, reason, Label.PREDICTED
            )
    alone = worst_step(p, 1, 1) * 1000
    raise UsageError(
        f"--max-itl-ms {p.max_itl_ms:g} cannot be met: decoding a single request takes about "
        f"{alone:,.1f} ms, and prefill needs as much again",
        hint=f"allow at least {2 * alone:,.0f} ms, or take a faster GPU, more of them, or --tp",
    )


def itl_limit(p: Problem) -> float:
    if p.max_itl_ms is None or p.max_itl_ms <= 0:
        raise UsageError(
            "--objective latency needs --max-itl-ms", hint="for example --max-itl-ms 100"
        )
    _step(p)
    return p.max_itl_ms / 1000


def _step(p: Problem) -> StepModel:
    if p.step is None:
        raise UsageError(
            "--objective latency needs to know the model and the GPU's speed",
            hint="pass --model and a GPU from the table: `--model llama-3.1-8b --gpu h200`",
        )
    return p.step
