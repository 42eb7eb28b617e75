"""From a decision to engine arguments: off, or chunking, or chunking because off does not fit."""

from dataclasses import dataclass, replace

from chunkscope.artefacts.labels import Label
from chunkscope.costs.memory import Memory
from chunkscope.engine.choices import Mode, Objective, Task
from chunkscope.engine.flags import Off
from chunkscope.engine.settings import Settings
from chunkscope.errors import UsageError
from chunkscope.planning.latency import itl_limit, latency_budget, latency_seqs, worst_step
from chunkscope.planning.logprobs import SafeChunk, safe_chunk
from chunkscope.planning.memory_fit import with_room
from chunkscope.planning.plan import Argument
from chunkscope.planning.policy import DEFAULT_CUTS, Cuts, Decision
from chunkscope.planning.problem import FEWEST_SEQS, LADDER, WORTH, Problem
from chunkscope.planning.search import Trials, search

BUDGET, SEQS = "max_num_batched_tokens", "max_num_seqs"
THRESHOLD, SWITCH = "long_prefill_token_threshold", "enable_chunked_prefill"
# Past this no budget paid in the H200 measurements; the answer for "off" on an unknown GPU.
PAYING_BUDGET = 8_192
WORTH_KV = 0.05  # fewer requests at once must free this share of the KV cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The arguments, and what became of the policy's decision."""

    mode: Mode
    threshold: int | None
    arguments: tuple[Argument, ...]
    memory: Memory | None
    chunk: int | None
    overruled: str | None = None
    lost: tuple[str, ...] = ()
    trials: Trials

    @property
    def settings(self) -> Settings:
        """Every value, set or left to vLLM."""
        return Settings.of({argument.name: argument.value for argument in self.arguments})


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How large a step is and how many requests run; `dropped`: why no threshold is set."""

    budget: Argument
    seqs: Argument
    dropped: str | None = None


def settle(p: Problem, decision: Decision, cuts: Cuts = DEFAULT_CUTS) -> Settled:
    """The arguments for this mode; "off" becomes "conservative" where off cannot be."""
    if p.objective is Objective.LATENCY:
        itl_limit(p)
    p = with_room(p)
    if decision.mode is not Mode.OFF:
        return _chunking(p, decision.mode, decision.threshold or cuts.conservative_threshold)
    obstacle = _why_not_off(p)
    if obstacle is None:
        return _off(p)
    if decision.forced:
        raise UsageError(
            f"--mode off is not possible: {obstacle}", hint="leave --mode out, or shorten the data"
        )
    settled = _chunking(p, Mode.CONSERVATIVE, cuts.conservative_threshold)
    return replace(settled, overruled=f"the lengths say off, but {obstacle}")


def _why_not_off(p: Problem) -> str | None:
    release, shape = p.deployment.release, p.deployment.shape
    if shape and shape.hybrid and release.hybrid_refuses_off:
        return f"vLLM {release.text} requires chunked prefill for models with mamba-like layers"
    if p.objective is Objective.LATENCY:
        seqs = int(latency_seqs(p).value or 1)
        took = worst_step(p, max(p.context, seqs), seqs)
        if took > itl_limit(p):
            return f"an unchunked step would take about {took * 1000:,.0f} ms (estimate)"
    memory = p.memory(Settings(max_num_batched_tokens=p.context))
    if memory is None or memory.holds(p.context):
        return None
    if not memory.survives_logprobs:
        return (
            f"the logits of one unchunked prompt would need {memory.unprofiled_gib:,.1f} GiB, "
            f"{memory.headroom_gib:,.1f} GiB are free outside vLLM's budget (predicted)"
        )
    return (
        f"an unchunked step of {p.context:,} tokens leaves KV cache for only "
        f"{memory.kv_cache_tokens:,} (predicted)"
    )


# -- off ---------------------------------------------------------------------------------------


def _off(p: Problem) -> Settled:
    trials = Trials(problem=p)
    switch, lost = _off_switch(p)
    batch = _off_batch(trials, chunking=bool(switch.value))
    none = Argument.chosen(THRESHOLD, 0, 0, "a threshold would chunk all the same")
    return _settled(p, Mode.OFF, batch, none, switch, trials, lost=lost)


def _off_switch(p: Problem) -> tuple[Argument, tuple[str, ...]]:
    release = p.deployment.release
    if release.off is Off.IGNORED:
        said = f"vLLM {release.text} ignores chunked prefill off for generative models"
        lost = f"{said}: a prompt may still be split where a step's budget ends"
        return Argument.chosen(SWITCH, True, True, said), (lost,)
    reason = "no prompt is split"
    if release.off is Off.WARNED:
        reason += f"; vLLM {release.text} logs a warning that off is not officially supported"
    return Argument.chosen(SWITCH, False, True, reason), ()


def _off_batch(trials: Trials, *, chunking: bool) -> Batch:
    """No budget below max_model_len, or vLLM refuses to start; more where that pays."""
    p = trials.problem
    own = p.own.max_num_batched_tokens
    size = max(own or PAYING_BUDGET, p.context)
    if p.objective is Objective.LATENCY:
        seqs = latency_seqs(p)
        value = max(p.context, int(seqs.value or 0))
        return Batch(budget=_off_budget(p, _budget(value, own and size)), seqs=seqs)
    if trials.possible:
        running = min(p.base.max_num_seqs or p.own.max_num_seqs or size, size)
        start = Settings(
            max_num_batched_tokens=size, max_num_seqs=running, enable_chunked_prefill=chunking
        )
        found = search(trials, start, least_budget=p.context)
        if trials.run(found) is not None:
            batch = _found(trials, start, found)
            return replace(batch, budget=_off_budget(p, batch.budget))
    value = size if p.fits(Settings(max_num_batched_tokens=size)) else p.context
    budget = _off_budget(p, _budget(value, own and size))
    return Batch(budget=budget, seqs=_untried_seqs(p, value, None))


def _off_budget(p: Problem, budget: Argument) -> Argument:
    reason = f"off needs at least max_model_len ({p.context:,}) in one step"
    if int(budget.value or 0) > p.context:
        reason += "; several short prompts share it"
    if budget.label:
        reason += f"; {budget.reason}"
    return replace(budget, reason=reason, set=True)


# -- chunking ----------------------------------------------------------------------------------


def _chunking(p: Problem, mode: Mode, threshold: int) -> Settled:
    safe = None
    if p.task is Task.LOGLIKELIHOOD and p.knows_memory:
        safe = safe_chunk(p, threshold)
        p = replace(p, base=replace(p.base, gpu_memory_utilization=safe.utilization))
    cap = safe.tokens if safe else threshold
    trials = Trials(problem=p, cap=cap)
    batch = _chunking_batch(trials)
    long = _threshold(p, cap, batch, safe)
    switch = Argument.chosen(SWITCH, True, True, "on by default in every known version")
    return _settled(p, mode, batch, long, switch, trials, policy_threshold=threshold)


def _chunking_batch(trials: Trials) -> Batch:
    p = trials.problem
    if p.objective is Objective.LATENCY:
        return _smooth(trials)
    if trials.possible:
        own = p.own
        size = own.max_num_batched_tokens or 0
        running = min(p.base.max_num_seqs or own.max_num_seqs or size, size)
        start = trials.at(Settings(max_num_seqs=running), size)
        best = search(trials, start)
        if trials.run(best) is not None:
            return replace(_found(trials, start, best), dropped=_dropped(trials, best))
    budget = _untried_budget(p, trials.cap)
    found = None if budget.value is None else int(budget.value)
    return Batch(budget=budget, seqs=_untried_seqs(p, found, trials.cap))


def _threshold(p: Problem, cap: int, batch: Batch, safe: SafeChunk | None) -> Argument:
    if batch.dropped:
        return Argument.chosen(THRESHOLD, 0, 0, batch.dropped, Label.PREDICTED)
    if p.longest <= cap:
        reason = f"no prompt that is served is longer than {cap:,} tokens"
        return Argument.chosen(THRESHOLD, 0, 0, reason)
    budget = batch.budget.value
    if budget is not None and cap >= budget:
        reason = f"the budget of {budget:,} tokens ends a chunk before a threshold of {cap:,} could"
        return Argument.chosen(THRESHOLD, 0, 0, reason)
    reason = (
        f"{p.lengths.over(cap):,} of {p.lengths.count:,} prompts are longer: "
        "none takes more of one step"
    )
    if safe and safe.shrunk:
        reason += "; larger chunks' logits would not fit beside vLLM's budget"
    release = p.deployment.release
    if release.lone_prompt_is_capped:
        reason += f"; vLLM {release.text} caps a lone prompt too"
    return Argument.chosen(THRESHOLD, cap, 0, reason)


def _dropped(trials: Trials, found: Settings) -> str | None:
    """The policy's threshold gives way where it costs more than is worth it."""
    if not found.long_prefill_token_threshold or trials.problem.task is Task.LOGLIKELIHOOD:
        return None
    without = trials.seconds(replace(found, long_prefill_token_threshold=0))
    cost = trials.seconds(found) / without - 1
    if cost < WORTH:
        return None
    threshold = found.long_prefill_token_threshold
    return f"a threshold of {threshold:,} would cost {cost:.0%} throughput (simulated)"


# -- what the simulator found, and why ---------------------------------------------------------


def _budget(value: int | None, default: int | None, reason: str = "") -> Argument:
    return Argument.chosen(BUDGET, value, default, reason)


def _found(trials: Trials, start: Settings, found: Settings) -> Batch:
    p = trials.problem
    default, size = start.max_num_batched_tokens or 0, found.max_num_batched_tokens or 0
    if size == default:
        said = f"vLLM {p.deployment.release.text} takes {default:,} by itself on this GPU"
        budget = _budget(size, default, f"{said}, and no other gains {WORTH:.0%} in the simulation")
    elif trials.run(start) is None:
        reason = f"vLLM's own {default:,} does not fit beside the KV cache; {size:,} does"
        budget = Argument.chosen(BUDGET, size, default, reason, Label.PREDICTED)
    else:
        reason = f"{_gain(trials, start, found)} over vLLM's own {default:,}"
        budget = Argument.chosen(BUDGET, size, default, reason, Label.PREDICTED)
    running = start.max_num_seqs or 0
    if found.max_num_seqs == min(running, size):
        return Batch(
            budget=budget, seqs=_untried_seqs(p, size, found.long_prefill_token_threshold or None)
        )
    reason = f"{_gain(trials, start, found)} over vLLM's own {running:,}"
    seqs = Argument.chosen(SEQS, found.max_num_seqs, p.own.max_num_seqs, reason, Label.PREDICTED)
    return Batch(budget=budget, seqs=seqs)


def _gain(trials: Trials, start: Settings, found: Settings) -> str:
    gain = trials.seconds(start) / trials.seconds(found) - 1
    both = start.max_num_batched_tokens != found.max_num_batched_tokens
    together = (
        " together with the budget" if both and start.max_num_seqs != found.max_num_seqs else ""
    )
    return f"{gain:+.0%} throughput{together} (simulated, not measured)"


def _smooth(trials: Trials) -> Batch:
    """Every step stays under the limit by itself; preempted requests wait longer, so fewer run.

    The most requests at once whose longest simulated gap stays under the limit; or half as many,
    should that be faster.
    """
    p = trials.problem
    most = latency_seqs(p)
    counts = list(dict.fromkeys(max(1, int(most.value or 1) >> n) for n in range(10)))
    offers = {count: latency_budget(p, cap=trials.cap, seqs=count) for count in counts}
    tried = [trials.at(Settings(max_num_seqs=n), int(offers[n].value or n)) for n in counts]
    smooth = next((n for n, one in enumerate(tried) if _is_smooth(trials, one)), 0)
    first, *others = tried[smooth : smooth + (1 if smooth else 2)]
    found = trials.best((one for one in others if _is_smooth(trials, one)), first)
    running = found.max_num_seqs or 1
    if running == counts[0]:
        return Batch(budget=offers[running], seqs=most)
    if found == first:
        gap = _longest_gap(trials, tried[smooth - 1]) or 0.0
        reason = f"with {2 * running:,}, preempted requests would wait {gap:,.1f} s (simulated)"
    else:
        gain = trials.seconds(first) / trials.seconds(found) - 1
        reason = f"{gain:+.0%} throughput over {first.max_num_seqs:,} requests at once (simulated)"
    seqs = Argument.chosen(SEQS, running, p.own.max_num_seqs, reason, Label.PREDICTED)
    return Batch(budget=offers[running], seqs=seqs)


def _is_smooth(trials: Trials, settings: Settings) -> bool:
    gap = _longest_gap(trials, settings)
    return gap is not None and gap <= itl_limit(trials.problem)


def _longest_gap(trials: Trials, settings: Settings) -> float | None:
    """None where it cannot be simulated."""
    run = trials.run(settings)
    return run.longest_gap_s if run is not None else None


# -- where nothing can be simulated ------------------------------------------------------------


def _untried_budget(p: Problem, cap: int | None) -> Argument:
    """vLLM's own, unless the memory model says that it does not fit."""
    default = p.own.max_num_batched_tokens
    if default is None or not p.knows_memory:
        unknown = "the GPU" if default is None else "the model"
        return _budget(default, default, f"{unknown} is not known, so vLLM's own stays")

    def fits(budget: int) -> bool:
        return p.fits(
            Settings(max_num_batched_tokens=budget, long_prefill_token_threshold=cap or 0)
        )

    if fits(default):
        unknown = "the GPU's speed is not known, so vLLM's own stays"
        return _budget(default, default, unknown)
    value = next((rung for rung in reversed(LADDER) if rung < default and fits(rung)), LADDER[0])
    reason = f"vLLM's own {default:,} does not fit beside the KV cache; {value:,} does"
    return Argument.chosen(BUDGET, value, default, reason, Label.PREDICTED)


def _untried_seqs(p: Problem, budget: int | None, cap: int | None) -> Argument:
    """vLLM's own number, unless fewer would free a good part of the KV cache."""
    default, lowered = p.own.max_num_seqs, p.base.max_num_seqs
    if lowered is not None and lowered != default:
        reason = "with more, the KV cache would not hold one request of full length"
        return Argument.chosen(SEQS, lowered, default, reason, Label.PREDICTED)
    if default is None:
        return Argument.chosen(SEQS, None, None, "the GPU is not known: left to vLLM")
    if budget is not None and budget < default:
        reason = f"may not be over the budget of {budget:,} tokens"
        return Argument.chosen(SEQS, budget, default, reason)
    tried = Settings(max_num_batched_tokens=budget, long_prefill_token_threshold=cap or 0)
    memory = p.memory(tried) if budget is not None else None
    if memory is None:
        release = p.deployment.release
        reason = f"vLLM {release.text} takes {default:,} by itself on this GPU"
        return Argument.chosen(SEQS, default, default, reason)
    at_once = memory.kv_cache_tokens // max(1, p.typical_tokens)
    fewer = max(FEWEST_SEQS, 1 << max(0, at_once - 1).bit_length())
    less = p.memory(replace(tried, max_num_seqs=fewer))
    gain = (
        less.kv_cache_tokens / memory.kv_cache_tokens - 1 if less and memory.kv_cache_tokens else 0
    )
    holds = f"the KV cache holds {at_once:,} requests of median length"
    if fewer < default and gain >= WORTH_KV:
        reason = f"{holds}; {fewer:,} instead of {default:,} frees {gain:.0%} more KV cache"
        return Argument.chosen(SEQS, fewer, default, reason, Label.PREDICTED)
    return Argument.chosen(SEQS, default, default, f"{holds}; vLLM's own {default:,} is fine")


# -- both --------------------------------------------------------------------------------------


def _settled(
    p: Problem,
    mode: Mode,
    batch: Batch,
    threshold: Argument,
    switch: Argument,
    trials: Trials,
    *,
    policy_threshold: int | None = None,
    lost: tuple[str, ...] = (),
) -> Settled:
    off = mode is Mode.OFF
    budget = _fillable(p, batch, pinned=off)
    caps = [int(a.value) for a in (threshold, budget) if a.value]
    arguments = [
        p.max_model_len,
        budget,
        threshold,
        batch.seqs,
        switch,
        _prefix_caching(p),
        _utilization(p),
    ]
    if p.tp > 1:
        arguments.append(Argument.chosen("tensor_parallel_size", p.tp, 1, f"--tp {p.tp}"))
    tried = Settings.of({a.name: a.value for a in (budget, threshold, batch.seqs)})
    return Settled(
        mode=mode,
        threshold=policy_threshold,
        arguments=tuple(arguments),
        memory=p.memory(tried) if budget.value is not None else None,
        chunk=None if off else min(caps, default=None),
        lost=lost,
        trials=trials,
    )


def _fillable(p: Problem, batch: Batch, *, pinned: bool) -> Argument:
    """No more than the running requests can fill: vLLM warns of more, and takes no more itself."""
    budget, seqs = batch.budget, batch.seqs.value
    if budget.value is None or seqs is None:
        return budget
    most = int(seqs) * p.context
    default = min(budget.default, most) if budget.default is not None else None
    value, reason = budget.value, budget.reason
    if value > most:
        value = most
        reason = f"{seqs:,} requests of at most {p.context:,} tokens fill no larger step"
    is_set = pinned or value != default
    return replace(budget, value=value, default=default, set=is_set, reason=reason)


def _prefix_caching(p: Problem) -> Argument:
    own = p.own.enable_prefix_caching
    reason = "vLLM's own: independent of chunking"
    if p.task is Task.LOGLIKELIHOOD:
        reason = "vLLM's own: prompt_logprobs does not read the prefix cache anyway"
    return Argument.chosen("enable_prefix_caching", own, own, reason)


def _utilization(p: Problem) -> Argument:
    own, value = p.own.gpu_memory_utilization, p.base.gpu_memory_utilization
    if value is None or value == own:
        said = f"vLLM {p.deployment.release.text}'s own"
        return Argument.chosen("gpu_memory_utilization", own, own, said)
    reason = "lower, so that the logits of prompt_logprobs fit outside vLLM's budget"
    return Argument.chosen("gpu_memory_utilization", value, own, reason, Label.PREDICTED)
