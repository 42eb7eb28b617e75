"""`--objective latency`: budget and requests whose slowest step stays short. All estimates."""

from chunkscope.artefacts.labels import Label
from chunkscope.errors import UsageError
from chunkscope.planning.budget import paying_budget
from chunkscope.planning.problem import SEQS_IF_UNKNOWN, Choice, Situation

STEP_MULTIPLE = 64


def latency_budget(s: Situation, *, chunk: int | None, seqs: int) -> Choice:
    """The largest budget whose slowest step stays under the limit, by the step model."""
    paying = max(seqs, paying_budget(s, chunk=chunk))
    limit_s = itl_limit(s)
    best = seqs
    for budget in range(-(-seqs // STEP_MULTIPLE) * STEP_MULTIPLE, paying + 1, STEP_MULTIPLE):
        if worst_step(s, budget, seqs) > limit_s:
            break
        best = max(best, budget)
    took = worst_step(s, best, seqs) * 1000
    reason = f"its slowest step takes about {took:,.0f} ms, under {s.max_itl_ms:g} ms"
    if best >= paying:
        reason = f"{best:,} is the largest budget that pays; {reason}"
    label = Label.PREDICTED
    return Choice(value=best, default=s.default_budget, reason=f"{reason} (estimate)", label=label)


def worst_step(s: Situation, budget: int, seqs: int) -> float:
    """The end of the longest prompt fills the step beside `seqs` decoding requests."""
    if s.step is None:
        raise _needs_step_model()
    prefill = max(0, budget - seqs)
    memory = s.memory(max(budget, seqs), seqs=seqs)
    held = memory.kv_cache_tokens if memory else seqs * s.typical_tokens
    return s.step.seconds(
        tokens=max(budget, seqs),
        prefill=prefill,
        context=s.longest if prefill else 0,
        decode_context=min(held, seqs * s.typical_tokens),
        requests=seqs,
    )


def latency_seqs(s: Situation) -> Choice:
    """As many running requests as leave half of the step to prefill."""
    limit_s = itl_limit(s)
    default = s.default_seqs
    start = s.seqs or default or SEQS_IF_UNKNOWN
    candidates = (start >> shift for shift in range(start.bit_length()))
    for seqs in candidates:
        if worst_step(s, seqs, seqs) <= limit_s / 2:
            took = worst_step(s, seqs, seqs) * 1000
            reason = f"decoding {seqs:,} requests takes about {took:,.1f} ms of the step (estimate)"
            return Choice(value=seqs, default=default, reason=reason, label=Label.PREDICTED)
    alone = worst_step(s, 1, 1) * 1000
    raise UsageError(
        f"--max-itl-ms {s.max_itl_ms:g} cannot be met: decoding a single request takes about "
        f"{alone:,.1f} ms, and prefill needs as much again",
        hint=f"allow at least {2 * alone:,.0f} ms, or take a faster GPU, more of them, or --tp",
    )


def itl_limit(s: Situation) -> float:
    if s.max_itl_ms is None or s.max_itl_ms <= 0:
        raise UsageError(
            "--objective latency needs --max-itl-ms", hint="for example --max-itl-ms 100"
        )
    if s.step is None:
        raise _needs_step_model()
    return s.max_itl_ms / 1000


def _needs_step_model() -> UsageError:
    return UsageError(
        "--objective latency needs to know the model and the GPU's speed",
        hint="pass --model and a GPU from the table: `--model llama-3.1-8b --gpu h200`",
    )
