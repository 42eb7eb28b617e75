"""From a decision to engine arguments: off, or chunking, or chunking because off does not fit."""

from dataclasses import dataclass, replace

from chunkscope.artefacts.labels import Label
from chunkscope.costs.memory import Memory
from chunkscope.engine.choices import Mode, Objective, Task
from chunkscope.engine.flags import Off
from chunkscope.errors import UsageError
from chunkscope.planning.budget import PAYING_BUDGET, paying_budget, throughput_budget
from chunkscope.planning.latency import itl_limit, latency_seqs, worst_step
from chunkscope.planning.logprobs import Safe, safe_logprobs
from chunkscope.planning.memory_fit import with_room
from chunkscope.planning.policy import DEFAULT_CUTS, Cuts, Decision
from chunkscope.planning.problem import Choice, Situation
from chunkscope.planning.seqs import choose_seqs
from chunkscope.planning.trial import Trials, can_be_tried
from chunkscope.planning.tried import Tried, try_chunking, try_latency, try_off


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The arguments by vLLM's name, and what became of the policy's decision."""

    mode: Mode
    threshold: int | None
    choices: dict[str, Choice]
    memory: Memory | None
    chunk: int | None
    overruled: str | None = None
    lost: tuple[str, ...] = ()
    trials: Trials | None = None


def settle(s: Situation, decision: Decision, cuts: Cuts = DEFAULT_CUTS) -> Settled:
    """The arguments for this mode; "off" becomes "conservative" where off cannot be."""
    if s.objective is Objective.LATENCY:
        itl_limit(s)
    s = with_room(s)
    if decision.mode is not Mode.OFF:
        return _chunking(s, decision.mode, decision.threshold or cuts.conservative_threshold)
    obstacle = _why_not_off(s)
    if obstacle is None:
        return _off(s)
    if decision.forced:
        raise UsageError(
            f"--mode off is not possible: {obstacle}", hint="leave --mode out, or shorten the data"
        )
    settled = _chunking(s, Mode.CONSERVATIVE, cuts.conservative_threshold)
    return replace(settled, overruled=f"the lengths say off, but {obstacle}")


def _why_not_off(s: Situation) -> str | None:
    version = s.release.text
    if s.shape and s.shape.hybrid and s.release.hybrid_refuses_off:
        return f"vLLM {version} requires chunked prefill for models with mamba-like layers"
    if s.objective is Objective.LATENCY:
        seqs = int(latency_seqs(s).value or 1)
        took = worst_step(s, max(s.context, seqs), seqs)
        if took > itl_limit(s):
            return f"an unchunked step would take about {took * 1000:,.0f} ms (estimate)"
    memory = s.memory(s.context, chunk=s.longest)
    if memory is None or memory.holds(s.context):
        return None
    if not memory.survives_logprobs:
        return (
            f"the logits of one unchunked prompt would need {memory.unprofiled_gib:,.1f} GiB, "
            f"{memory.headroom_gib:,.1f} GiB are free outside vLLM's budget (predicted)"
        )
    return (
        f"an unchunked step of {s.context:,} tokens leaves KV cache for only "
        f"{memory.kv_cache_tokens:,} (predicted)"
    )


# -- off ---------------------------------------------------------------------------------------


def _off(s: Situation) -> Settled:
    latency = latency_seqs(s) if s.objective is Objective.LATENCY else None
    trials = Trials(s=s)
    honoured = s.release.off is not Off.IGNORED
    tried = try_off(trials, honoured=honoured) if can_be_tried(s) and not latency else None
    if tried:
        budget, seqs = _off_reason(s, tried.budget), tried.seqs
    else:
        budget = _off_budget(s, latency)
        seqs = latency or choose_seqs(s, int(budget.value or 0), chunk=s.longest)
    budget = _fillable(s, budget, seqs)
    switch, lost = _off_switch(s)
    return Settled(
        mode=Mode.OFF,
        threshold=None,
        choices=_named(
            s,
            budget=budget,
            seqs=seqs,
            threshold=Choice(value=0, default=0, reason="a threshold would chunk all the same"),
            switch=switch,
        ),
        memory=_bill(s, budget, seqs, None),
        chunk=None,
        lost=lost,
        trials=trials,
    )


def _off_budget(s: Situation, latency: Choice | None) -> Choice:
    """At least max_model_len, or vLLM refuses to start; more where that pays."""
    wanted = s.context
    if latency:
        wanted = max(wanted, int(latency.value or 0))
    elif s.engine:
        wanted = max(wanted, paying_budget(s, chunk=s.longest))
    else:
        wanted = max(wanted, s.default_budget or PAYING_BUDGET)
    if not s.fits(wanted, chunk=s.longest):
        wanted = s.context
    default = s.default_budget and max(s.default_budget, s.context)
    return _off_reason(s, Choice(value=wanted, default=default, reason=""))


def _off_reason(s: Situation, budget: Choice) -> Choice:
    reason = f"off needs at least max_model_len ({s.context:,}) in one step"
    if int(budget.value or 0) > s.context:
        reason += "; several short prompts share it"
    if budget.label:
        reason += f"; {budget.reason}"
    return replace(budget, reason=reason, pinned=True)


def _off_switch(s: Situation) -> tuple[Choice, tuple[str, ...]]:
    if s.release.off is Off.IGNORED:
        said = f"vLLM {s.release.text} ignores chunked prefill off for generative models"
        lost = f"{said}: a prompt may still be split where a step's budget ends"
        return Choice(value=True, default=True, reason=said), (lost,)
    reason = "no prompt is split"
    if s.release.off is Off.WARNED:
        reason += f"; vLLM {s.release.text} logs a warning that off is not officially supported"
    return Choice(value=False, default=True, reason=reason), ()


# -- chunking ----------------------------------------------------------------------------------


def _chunking(s: Situation, mode: Mode, threshold: int) -> Settled:
    safe = _safe(s, threshold)
    s = replace(s, utilization=safe.utilization)
    cap = safe.chunk or threshold
    trials = Trials(s=s, cap=cap)
    tried = _try(trials)
    budget = tried.budget if tried else throughput_budget(s, chunk=cap)
    size = int(budget.value) if budget.value is not None else None
    long = _threshold(s, cap, size, safe)
    if tried and tried.dropped:
        long = Choice(value=0, default=0, reason=tried.dropped, label=Label.PREDICTED)
    seqs = tried.seqs if tried else choose_seqs(s, size, chunk=_largest_chunk(long, budget))
    budget = _fillable(s, budget, seqs)
    chunk = _largest_chunk(long, budget)
    on = Choice(value=True, default=True, reason="on by default in every known version")
    return Settled(
        mode=mode,
        threshold=threshold,
        choices=_named(s, budget=budget, seqs=seqs, threshold=long, switch=on),
        memory=_bill(s, budget, seqs, chunk),
        chunk=chunk,
        trials=trials,
    )


def _try(trials: Trials) -> Tried | None:
    if trials.s.objective is Objective.LATENCY:
        return try_latency(trials)
    return try_chunking(trials) if can_be_tried(trials.s) else None


def _safe(s: Situation, threshold: int) -> Safe:
    if s.task is Task.LOGLIKELIHOOD and s.engine:
        return safe_logprobs(s, threshold)
    return Safe(chunk=None, utilization=s.release.gpu_memory_utilization, shrunk=False)


def _threshold(s: Situation, cap: int, budget: int | None, safe: Safe) -> Choice:
    if s.longest <= cap:
        reason = f"no prompt that is served is longer than {cap:,} tokens"
        return Choice(value=0, default=0, reason=reason)
    if budget is not None and cap >= budget:
        reason = f"the budget of {budget:,} tokens ends a chunk before a threshold of {cap:,} could"
        return Choice(value=0, default=0, reason=reason)
    over = s.lengths.over(cap)
    reason = f"{over:,} of {s.lengths.count:,} prompts are longer: none takes more of one step"
    if safe.shrunk:
        reason += "; larger chunks' logits would not fit beside vLLM's budget"
    if s.release.lone_prompt_is_capped:
        reason += f"; vLLM {s.release.text} caps a lone prompt too"
    return Choice(value=cap, default=0, reason=reason)


def _largest_chunk(threshold: Choice, budget: Choice) -> int | None:
    return min((int(c.value) for c in (threshold, budget) if c.value), default=None)


# -- both --------------------------------------------------------------------------------------


def _named(
    s: Situation, *, budget: Choice, seqs: Choice, threshold: Choice, switch: Choice
) -> dict[str, Choice]:
    named = {
        "max_model_len": s.max_model_len,
        "max_num_batched_tokens": budget,
        "long_prefill_token_threshold": threshold,
        "max_num_seqs": seqs,
        "enable_chunked_prefill": switch,
        "enable_prefix_caching": _prefix_caching(s),
        "gpu_memory_utilization": _utilization(s),
    }
    if s.tp > 1:
        reason = f"--tp {s.tp}"
        named["tensor_parallel_size"] = Choice(value=s.tp, default=1, reason=reason)
    return named


def _prefix_caching(s: Situation) -> Choice:
    default = True
    if s.shape and s.shape.hybrid:
        default = s.release.hybrid_caches_prefixes
    reason = "vLLM's own: independent of chunking"
    if s.task is Task.LOGLIKELIHOOD:
        reason = "vLLM's own: prompt_logprobs does not read the prefix cache anyway"
    return Choice(value=default, default=default, reason=reason)


def _utilization(s: Situation) -> Choice:
    default = s.release.gpu_memory_utilization
    if s.utilization is None or s.utilization == default:
        return Choice(value=default, default=default, reason=f"vLLM {s.release.text}'s own")
    reason = "lower, so that the logits of prompt_logprobs fit outside vLLM's budget"
    return Choice(value=s.utilization, default=default, reason=reason, label=Label.PREDICTED)


def _fillable(s: Situation, budget: Choice, seqs: Choice) -> Choice:
    """No more than the running requests can fill: vLLM warns of more, and takes no more itself."""
    if budget.value is None or seqs.value is None:
        return budget
    most = int(seqs.value) * s.context
    default = min(budget.default, most) if budget.default is not None else None
    if budget.value <= most:
        return replace(budget, default=default)
    reason = f"{seqs.value:,} requests of at most {s.context:,} tokens fill no larger step"
    return replace(budget, value=most, default=default, reason=reason)


def _bill(s: Situation, budget: Choice, seqs: Choice, chunk: int | None) -> Memory | None:
    if budget.value is None:
        return None
    running = int(seqs.value) if seqs.value is not None else None
    return s.memory(int(budget.value), chunk=chunk or s.longest, seqs=running)
