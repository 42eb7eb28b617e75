"""`--objective latency`: budget and requests whose slowest step stays short. All estimates."""

from chunkscope.artefacts.labels import Label
from chunkscope.costs.step_time import StepModel
from chunkscope.engine.settings import Settings
from chunkscope.errors import UsageError
from chunkscope.planning.plan import Argument
from chunkscope.planning.problem import LADDER, Problem

STEP_MULTIPLE = 64
# Judgement, not measurement: a larger budget must make the step model's throughput this much
# better. It lies between what 4096 -> 8192 (3.1 %) and 8192 -> 16384 (1.6 %) give on the H200.
WORTH_SPEED = 0.025
MAX_KV_LOSS = 0.10  # of the KV cache, for a larger budget


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
