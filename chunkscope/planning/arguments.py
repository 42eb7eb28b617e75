"""From a decision to engine arguments: what the simulator proves, or what the lengths say."""

from dataclasses import dataclass, replace
from functools import cached_property

from chunkscope.artefacts.labels import Label
from chunkscope.artefacts.numbers import as_written, by, share
from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.memory import Memory
from chunkscope.planning.latency import itl_limit, smooth, worst_step
from chunkscope.planning.limits_advice import limits_advice, limits_reason
from chunkscope.planning.logprobs import safe_chunk
from chunkscope.planning.memory_fit import with_room
from chunkscope.planning.plan import Argument
from chunkscope.planning.policy import Decision
from chunkscope.planning.problem import LADDER, WORTH, Problem, round_up
from chunkscope.planning.proof import BEST_NAME, OWN_NAME, Proof, weigh
from chunkscope.planning.search import Trials, trials_of
from chunkscope.vllm.choices import Basis, Mode, Objective, Task
from chunkscope.vllm.deployment import OWN
from chunkscope.vllm.flags import Off
from chunkscope.vllm.settings import NAMES, UNUSUAL, Settings, Value

# Past this no budget paid in the H200 measurements; the answer for "off" on an unknown GPU.
PAYING_BUDGET = 8_192
GAINS = "throughput (simulated, not measured)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoned:
    """Why an argument has its value, and how that is known."""

    text: str
    label: Label | None = None


Reasons = dict[str, Reasoned]


@dataclass(frozen=True, kw_only=True)
class Settled:
    """The arguments, what they leave, and what became of the policy's decision."""

    problem: Problem
    basis: Basis
    mode: Mode
    threshold: int | None
    arguments: tuple[Argument, ...]
    memory: Memory | None
    advice: str
    overruled: str | None = None
    lost: tuple[str, ...] = ()
    proof: Proof | None = None

    @property
    def settings(self) -> Settings:
        """Every value, set or left to vLLM."""
        return Settings.of({argument.name: argument.value for argument in self.arguments})

    @cached_property
    def trials(self) -> Trials | None:
        """All requests; None where nothing can be tried."""
        if self.problem.requests is None:
            return None
        return self.proof.trials if self.proof else trials_of(self.problem)

    @property
    def chunk(self) -> int | None:
        """What ends a chunk; None where no prompt is split."""
        s = self.settings
        if s.enable_chunked_prefill is False:
            return None
        caps = (s.long_prefill_token_threshold, s.max_num_batched_tokens)
        return min((cap for cap in caps if cap), default=None)


def settle(p: Problem, decision: Decision, basis: Basis) -> Settled:
    """Evidence where there is some to be had and nobody asked for the fixed rule."""
    if p.objective is Objective.LATENCY:
        itl_limit(p)
    p = with_room(p)
    if p.objective is Objective.LATENCY and not (decision.forced and decision.mode is Mode.OFF):
        return _latency(p, decision)
    if basis is Basis.EVIDENCE and not decision.forced:
        return _proven(p, decision)
    return _by_lengths(p, decision, rule=basis is Basis.LENGTHS and p.step is not None)


# -- by evidence -------------------------------------------------------------------------------


def _proven(p: Problem, decision: Decision) -> Settled:
    p, must, reasons = _with_safe_logprobs(p)
    own = p.deployment.effective(must.over(p.base))
    proof = weigh(p, own, decision.threshold)
    by_limits = bool(p.slo) and proof.gain is not None
    found = _limit_reasons(p, proof) if by_limits else _proven_reasons(p, proof, decision)
    return _settled(
        p,
        decision,
        proof.chosen,
        reasons | found,
        basis=Basis.EVIDENCE,
        advice=_limits_advice(proof) if by_limits else _advice(proof),
        proof=proof,
    )


def _limit_reasons(p: Problem, proof: Proof) -> Reasons:
    """Why a setting that was chosen for its latencies has its values."""
    reasons, text = {}, p.deployment.release.text
    for name in NAMES:
        own = getattr(proof.own, name)
        if getattr(proof.chosen, name) != own:
            reasons[name] = Reasoned(text=limits_reason(proof), label=Label.PREDICTED)
        elif name in ("max_num_batched_tokens", "max_num_seqs"):
            reasons[name] = Reasoned(text=f"vLLM {text} takes {own:,} by itself")
    return reasons


def _limits_advice(proof: Proof) -> str:
    changed, best = (_changed(proof.own, one) for one in (proof.chosen, proof.best))
    return limits_advice(proof, _named(changed), _named(best))


def _with_safe_logprobs(p: Problem) -> tuple[Problem, Settings, Reasons]:
    """What prompt_logprobs needs so as not to run out of memory; nothing where it does not."""
    if p.task is not Task.LOGLIKELIHOOD or p.fits(p.own):
        return p, OWN, {}
    safe = safe_chunk(p, max(1, p.longest))
    p = replace(p, base=replace(p.base, gpu_memory_utilization=safe.utilization))
    text = "larger chunks' logits would not fit beside vLLM's budget"
    reasons = {"long_prefill_token_threshold": Reasoned(text=text, label=Label.PREDICTED)}
    budget = p.own.max_num_batched_tokens or 0
    must = Settings(long_prefill_token_threshold=safe.tokens) if safe.tokens < budget else OWN
    return p, must, reasons if must != OWN else {}


def _proven_reasons(p: Problem, proof: Proof, decision: Decision) -> Reasons:
    text, reasons = p.deployment.release.text, {}
    gain = f"{by(proof.gain)} {GAINS}" if proof.gain is not None else ""
    for name in ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold"):
        own, chosen, best = (getattr(s, name) for s in (proof.own, proof.chosen, proof.best))
        if chosen != own:
            many = " together with the others" if len(_changed(proof.own, proof.chosen)) > 1 else ""
            why = f"vLLM's own {own:,} does not fit; {chosen:,} does"
            if gain:
                why = f"{gain} over vLLM's own {own:,}{many}"
            reasons[name] = Reasoned(text=why, label=Label.PREDICTED)
        elif best != own:
            said = f"vLLM {text} takes {own:,} by itself; {best:,} would bring {gain}"
            little = "not sure enough" if proof.doubt else "too little"
            reasons[name] = Reasoned(text=f"{said}{_shaky(proof)}, {little} to set it")
        elif own:
            said = f"vLLM {text} takes {own:,} by itself, and nothing beats it here"
            reasons[name] = Reasoned(text=said)
    threshold = decision.threshold
    if threshold and not proof.chosen.long_prefill_token_threshold:
        reasons["long_prefill_token_threshold"] = _no_threshold(p, proof, threshold)
    return reasons


def _no_threshold(p: Problem, proof: Proof, threshold: int) -> Reasoned:
    """One sentence on why the policy's threshold is not set."""
    budget = proof.chosen.max_num_batched_tokens or 0
    if p.longest <= threshold:
        return Reasoned(text=f"no prompt that is served is longer than {threshold:,} tokens")
    if threshold >= budget:
        said = f"the budget of {budget:,} tokens ends a chunk before a threshold of {threshold:,}"
        return Reasoned(text=f"{said} could")
    with_it = replace(proof.own, long_prefill_token_threshold=threshold)
    gain = proof.trials.seconds(proof.own) / proof.trials.seconds(with_it) - 1
    said = f"the policy's {threshold:,} would bring {by(gain)} {GAINS}"
    return Reasoned(text=f"{said}; under {share(WORTH)} vLLM's own stays", label=Label.PREDICTED)


def _changed(own: Settings, chosen: Settings) -> dict[str, Value]:
    before, after = own.given(), chosen.given()
    return {name: value for name, value in after.items() if before.get(name) != value}


def _shaky(proof: Proof) -> str:
    return f" ({by(proof.least)} with {proof.doubt})" if proof.doubt else ""


def _advice(proof: Proof) -> str:
    changed = _changed(proof.own, proof.chosen)
    if changed and proof.gain is None:
        return f"Set {_named(changed)}: vLLM's own setting does not fit this GPU."
    if changed:
        worst = f", at least {by(proof.least)} with {proof.doubt}" if proof.doubt else ""
        return f"Set {_named(changed)}: {by(proof.gain)} {GAINS}{worst}."
    other = _changed(proof.own, proof.best)
    if not other or not proof.doubt:
        return f"Change nothing: {_nearest(proof)}."
    but = f"{by(proof.gain)} {GAINS}, but {by(proof.least)} with {proof.doubt}"
    return f"Change nothing: the best alternative, {_named(other)}, would gain {but}."


def _nearest(proof: Proof) -> str:
    """The fastest of the table's other rows: all that was tried is about as fast, or slower."""
    own = next((row.makespan_s for row in proof.rows if row.name == OWN_NAME), None)
    if own is None:
        return "nothing that was tried runs"  # `recommend` says why
    others = [row for row in proof.rows if row.name != OWN_NAME]
    fastest = min(others, key=lambda row: row.makespan_s, default=None)
    if fastest is None or fastest.makespan_s >= own:
        return "nothing beats vLLM's default here"
    gain = own / fastest.makespan_s - 1
    but = ", but not in every case that was tried" if gain >= WORTH else ""
    name = fastest.name
    if name == BEST_NAME:
        name = _named(_changed(proof.own, proof.best))
    return f"the best alternative, {name}, would gain {by(gain)} {GAINS}{but}"


def _named(changed: dict[str, Value]) -> str:
    return ", ".join(f"{name} {as_written(value)}" for name, value in changed.items())


# -- for latency -------------------------------------------------------------------------------


def _latency(p: Problem, decision: Decision) -> Settled:
    found = smooth(p, cap=decision.threshold if decision.forced else None)
    reasons = {
        argument.name: Reasoned(text=argument.reason, label=argument.label)
        for argument in (found.budget, found.seqs)
    }
    threshold = found.settings.long_prefill_token_threshold
    if threshold:
        reasons["long_prefill_token_threshold"] = Reasoned(text=f"--mode {decision.mode}")
    return _settled(
        p,
        decision,
        found.settings,
        reasons,
        basis=Basis.EVIDENCE,
        advice=found.advice,
    )


# -- by lengths --------------------------------------------------------------------------------


def rule_settings(p: Problem, decision: Decision) -> Settings | None:
    """What the length policy would set, whatever the evidence says; None where nothing fits."""
    try:
        settled = _by_lengths(with_room(p), decision, rule=True)
    except InputError:
        return None
    return Settings.of({a.name: a.value for a in settled.arguments if a.set})


def _by_lengths(p: Problem, decision: Decision, *, rule: bool) -> Settled:
    """`rule`: the fixed rule was asked for, where there would be evidence."""
    if decision.mode is Mode.OFF:
        return _off(p, decision, rule=decision.forced or rule)
    cap = decision.threshold or 0
    safe = None
    if p.task is Task.LOGLIKELIHOOD and p.knows_memory:
        safe = safe_chunk(p, cap)
        p = replace(p, base=replace(p.base, gpu_memory_utilization=safe.utilization))
        cap = safe.tokens
    size, reasons = _fitting_budget(p, cap)
    if p.longest <= cap:
        text = f"no prompt that is served is longer than {cap:,} tokens"
        cap = 0
    elif size is not None and cap >= size:
        text = f"the budget of {size:,} tokens ends a chunk before a threshold of {cap:,} could"
        cap = 0
    else:
        many = p.lengths.over(cap)
        over = f"{many:,} of {p.lengths.count:,} prompts {'is' if many == 1 else 'are'} longer"
        text = f"{over}: none takes more of one step"
        if safe and safe.shrunk:
            text += "; larger chunks' logits would not fit beside vLLM's budget"
        if p.deployment.release.lone_prompt_is_capped:
            text += f"; vLLM {p.deployment.release.text} caps a lone prompt too"
    reasons["long_prefill_token_threshold"] = Reasoned(text=text)
    settings = Settings(max_num_batched_tokens=size, long_prefill_token_threshold=cap)
    return _settled(p, decision, settings, reasons, advice=_rule_advice(p, cap, decision))


def _rule_advice(p: Problem, threshold: int, decision: Decision) -> str:
    if not threshold:
        return f"By lengths alone, nothing to set: {decision.reason}."
    said = f"By lengths alone, a threshold of {threshold:,} tokens: {decision.reason}."
    if p.step is None and not decision.forced:
        said += " Name --model and --gpu to see whether it pays."
    return said


def _fitting_budget(p: Problem, cap: int) -> tuple[int | None, Reasons]:
    """vLLM's own, unless the memory model says that it does not fit."""
    own = p.own.max_num_batched_tokens

    def fits(budget: int) -> bool:
        return p.fits(Settings(max_num_batched_tokens=budget, long_prefill_token_threshold=cap))

    if own is None or not p.knows_memory or fits(own):
        if p.step is not None or own is None:
            return own, {}
        text = "vLLM's own: the speed is not known, so nothing shows that another pays"
        return own, {"max_num_batched_tokens": Reasoned(text=text)}
    value = next((rung for rung in reversed(LADDER) if rung < own and fits(rung)), LADDER[0])
    text = f"vLLM's own {own:,} does not fit beside the KV cache; {value:,} does"
    return value, {"max_num_batched_tokens": Reasoned(text=text, label=Label.PREDICTED)}


def _left_on(p: Problem, decision: Decision, obstacle: str | None = None) -> Settled:
    """Short prompts are never split by vLLM's own budget: there is nothing to switch off."""
    size, reasons = _fitting_budget(p, 0)
    advice = f"Change nothing: {decision.reason}, which vLLM reads in one step anyway."
    if size != p.own.max_num_batched_tokens:
        advice = f"Set max_num_batched_tokens {size:,}: vLLM's own does not fit this GPU."
    why = "--policy lengths would switch it off" if obstacle is None else obstacle
    reasons["enable_chunked_prefill"] = Reasoned(text=why)
    settings = Settings(max_num_batched_tokens=size)
    settled = _settled(p, decision, settings, reasons, advice=advice)
    if obstacle is None:
        return settled
    why = f"the lengths say off, but {obstacle}"
    return replace(settled, mode=Mode.CONSERVATIVE, overruled=why)


def _off(p: Problem, decision: Decision, *, rule: bool) -> Settled:
    """A step has to hold the longest request whole, so the context is no longer than it must be."""
    limit = p.own.max_model_len
    context = min(round_up(p.need), limit) if limit else round_up(p.need)
    whole = replace(p, base=replace(p.base, max_model_len=context))
    obstacle = _why_not_off(whole)
    if obstacle and decision.forced:
        raise UsageError(
            f"--mode off is not possible: {obstacle}", hint="leave --mode out, or shorten the data"
        )
    if obstacle or not rule:
        return _left_on(p, decision, obstacle)
    p = whole
    release = p.deployment.release
    honoured = release.off is not Off.IGNORED
    size = max(p.own.max_num_batched_tokens or PAYING_BUDGET, context)
    size = size if p.fits(Settings(max_num_batched_tokens=size)) else context
    settings = Settings(
        max_num_batched_tokens=size, enable_chunked_prefill=False if honoured else None
    )
    said = f"vLLM {release.text} ignores chunked prefill off for generative models"
    lost = () if honoured else (f"{said}: a prompt may still be split where a step's budget ends",)
    why = "no prompt is split"
    if release.off is Off.WARNED:
        why += f"; vLLM {release.text} logs a warning that off is not officially supported"
    reasons = {
        "max_model_len": Reasoned(text="with chunking off a step has to hold the longest request"),
        "max_num_batched_tokens": Reasoned(
            text=f"off needs at least max_model_len ({context:,}) in one step"
        ),
        "enable_chunked_prefill": Reasoned(text=why if honoured else said),
    }
    advice = f"Chunking off, as asked: {decision.reason}."
    settled = _settled(p, decision, settings, reasons, advice=advice, lost=lost)
    spelled_out = (  # whoever starts the engine: a smaller budget would not be accepted
        replace(a, set=True) if a.name == "max_num_batched_tokens" else a for a in settled.arguments
    )
    return replace(settled, arguments=tuple(spelled_out))


def _why_not_off(p: Problem) -> str | None:
    release, shape = p.deployment.release, p.deployment.shape
    if shape and shape.hybrid and release.hybrid_refuses_off:
        return f"vLLM {release.text} requires chunked prefill for models with mamba-like layers"
    if p.objective is Objective.LATENCY:
        took = worst_step(p, p.context, p.own.max_num_seqs or 1)
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


# -- all of them -------------------------------------------------------------------------------


def _settled(
    p: Problem,
    decision: Decision,
    settings: Settings,
    reasons: Reasons,
    *,
    advice: str,
    basis: Basis = Basis.LENGTHS,
    lost: tuple[str, ...] = (),
    proof: Proof | None = None,
) -> Settled:
    """Every argument: its value in effect, what vLLM would take by itself, and why."""
    if p.base.max_model_len is not None and not p.asked_context:
        context = f"Set max_model_len {p.context:,}, the longest that fits, and"
        for start, instead in (("Change nothing", f"{context} no more"), ("Set", context)):
            if advice.startswith(start):
                advice = instead + advice.removeprefix(start)
                break
    full = p.deployment.effective(settings.over(p.base))
    own = p.deployment.effective(Settings(max_model_len=p.base.max_model_len))
    limit = p.deployment.shape.limit if p.deployment.shape else None
    own = replace(own, max_model_len=limit)
    given = {**_usual_reasons(p), **reasons}
    arguments = [
        Argument.chosen(name, value, default, reason.text, reason.label)
        for name in NAMES
        if (value := getattr(full, name)) != (default := getattr(own, name))
        or name not in ("tensor_parallel_size", *UNUSUAL)
        if (reason := given.get(name) or _own_reason(p, default))
    ]
    return Settled(
        problem=p,
        basis=basis,
        mode=decision.mode,
        threshold=decision.threshold,
        arguments=tuple(arguments),
        memory=p.memory(settings),
        advice=advice,
        lost=lost,
        proof=proof,
    )


def _own_reason(p: Problem, default: Value | None) -> Reasoned:
    if default is None:
        return Reasoned(text="left to vLLM: what it takes is not known without --model and --gpu")
    return Reasoned(text=f"vLLM {p.deployment.release.text}'s own")


def _usual_reasons(p: Problem) -> Reasons:
    reasons: Reasons = {}
    if p.asked_context:
        reasons["max_model_len"] = Reasoned(text="as asked")
    elif p.base.max_model_len is not None:
        limit = p.deployment.shape.limit if p.deployment.shape else None
        text = (
            f"the KV cache holds no request of the model's own {limit or 0:,} tokens; so many fit"
        )
        reasons["max_model_len"] = Reasoned(text=text, label=Label.PREDICTED)
    elif p.deployment.shape:
        reasons["max_model_len"] = Reasoned(text="the model's own: a shorter one could cut answers")
    if p.base.max_num_seqs is not None:
        text = "with more, the KV cache would not hold one request of full length"
        reasons["max_num_seqs"] = Reasoned(text=text, label=Label.PREDICTED)
    if p.base.gpu_memory_utilization is not None:
        text = "lower, so that the logits of prompt_logprobs fit outside vLLM's budget"
        if p.base.gpu_memory_utilization != p.own.gpu_memory_utilization:
            reasons["gpu_memory_utilization"] = Reasoned(text=text, label=Label.PREDICTED)
    if p.task is Task.LOGLIKELIHOOD:
        text = "vLLM's own: prompt_logprobs does not read the prefix cache anyway"
        reasons["enable_prefix_caching"] = Reasoned(text=text)
    if p.tp > 1:
        reasons["tensor_parallel_size"] = Reasoned(text=f"--tp {p.tp}")
    reasons["data_parallel_size"] = Reasoned(text=f"--dp {p.parallel.data}")
    reasons["enable_expert_parallel"] = Reasoned(text="--ep")
    reasons["kv_cache_dtype"] = Reasoned(text="as asked: it can change what the model answers")
    return reasons
