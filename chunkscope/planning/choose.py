"""From a problem to settings: what the simulator proves, or what the lengths say."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil

from chunkscope.artefacts.note import Fact, Note
from chunkscope.errors import InputError, UsageError
from chunkscope.planning.compare import Comparison, compare
from chunkscope.planning.plan import Advice, AdviceKind, Basis, Reason
from chunkscope.planning.problem import LADDER, LARGER, Problem, round_up
from chunkscope.planning.rule import Decision
from chunkscope.planning.search import sustained
from chunkscope.vllm.deployment import OWN
from chunkscope.vllm.enums import Mode, Task
from chunkscope.vllm.flags import Off
from chunkscope.vllm.settings import NAMES, UNUSUAL, Settings

# Past this no budget paid in the H200 measurements; the answer for "off" on an unknown GPU.
PAYING_BUDGET = 8_192
SIZES = ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold")
Values = dict[str, Fact | list[Fact]]
Whys = dict[str, tuple[str, Values]]  # of an argument: a code and its values


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The settings that were chosen, complete, and why."""

    problem: Problem
    settings: Settings
    advice: Advice
    reasons: tuple[Reason, ...]
    notes: tuple[Note, ...] = ()
    comparison: Comparison | None = None

    @property
    def chunk(self) -> int | None:
        """What ends a chunk; None where no prompt is split."""
        if self.settings.enable_chunked_prefill is False:
            return None
        caps = (self.settings.long_prefill_token_threshold, self.settings.max_num_batched_tokens)
        return min((cap for cap in caps if cap), default=None)


def choose(p: Problem, decision: Decision, tick: Callable[[], None] = lambda: None) -> Draft:
    """By simulation where a model and a GPU's speed are known and no mode is forced.

    InputError where nothing fits, UsageError where a forced mode is not possible.
    """
    p = p.fitted()
    draft = by_lengths(p, decision) if decision.forced or not p.can_simulate else None
    draft = draft or _by_simulation(p, decision, tick)
    _check(draft)
    return draft


def rule_settings(p: Problem, decision: Decision) -> Settings | None:
    """What the length rule would set, whatever the simulator says; None where nothing fits."""
    try:
        draft = by_lengths(p.fitted(), decision, off=True)
    except InputError:
        return None
    return p.deployment.shortest(draft.settings)


def _check(draft: Draft) -> None:
    """Never hand out settings that this vLLM would refuse or that the memory model rules out."""
    p, deployment = draft.problem, draft.problem.deployment
    memory = p.memory(draft.settings)
    if memory is not None and not memory.holds(p.context):
        raise InputError(
            f"no setting fits: one request of {p.context:,} tokens needs more KV cache than the "
            f"{memory.kv_cache_gib:,.1f} GiB left",
            hint=LARGER,
        )
    refusals = deployment.refusals(draft.settings)
    if deployment.measured and deployment.measured.failed_as(draft.settings):
        raise InputError(
            f"no setting is left that did not fail in {deployment.measured.log}", hint=LARGER
        )
    if refusals:
        raise AssertionError(f"vLLM {deployment.release.text} refuses {refusals[0]}")


# -- by simulation -------------------------------------------------------------------------------


def _by_simulation(p: Problem, decision: Decision, tick: Callable[[], None]) -> Draft:
    c = compare(p, decision.threshold, tick)
    needed = p.needed
    if not c.default_runs:
        needed = _changed(c.default, c.chosen).over(needed)
    kind = AdviceKind.SET if c.chosen != c.default else AdviceKind.KEEP
    rate = gpus = None
    if p.request.slo and not c.keeps_limits:
        kind = AdviceKind.NO_SETTING
        rate = sustained(p, c.best)
        if rate and p.request.rate:  # replicas share the requests
            gpus = ceil(p.request.rate / rate) * p.base.parallel.gpus
    advice = Advice(
        kind=kind,
        basis=Basis.SIMULATED,
        settings=_changed(c.default, c.chosen) if c.default_runs else OWN,
        needed=needed,
        gain=c.gain,
        least_gain=c.least,
        doubt=c.doubt,
        alternative=_changed(c.default, c.best) if c.best != c.chosen else None,
        rate=rate,
        gpus=gpus,
    )
    return _draft(p, c.chosen, advice, _simulated_whys(p, c), comparison=c)


def _simulated_whys(p: Problem, c: Comparison) -> Whys:
    whys: Whys = {}
    for name in NAMES:
        own, chosen, best = (getattr(s, name) for s in (c.default, c.chosen, c.best))
        values: Values = {"own": own, "value": chosen, "best": best, "gain": c.gain}
        values |= {"least": c.least, "doubt": c.doubt}
        if chosen != own and not c.default_runs:
            whys[name] = ("does_not_fit", values)
        elif chosen != own and p.request.slo:
            whys[name] = ("keeps_limits", values)
        elif chosen != own:
            whys[name] = ("gains", values)
        elif best != own and name in SIZES and c.gain is not None and not p.request.slo:
            whys[name] = ("gain_in_doubt" if c.doubt else "too_little_gain", values)
        elif own and name in SIZES:
            whys[name] = ("default_is_best", values)
    return whys


def _changed(default: Settings, settings: Settings) -> Settings:
    before, after = default.given(), settings.given()
    return Settings.of({name: value for name, value in after.items() if before.get(name) != value})


# -- by lengths ----------------------------------------------------------------------------------


def by_lengths(p: Problem, decision: Decision, *, off: bool = False) -> Draft:
    """The length rule. vLLM reads short prompts in one step anyway: its `off` is followed only
    where it is forced, or where `off` is what shall be shown."""
    if decision.mode is Mode.OFF and (decision.forced or off):
        try:
            return _off(p, decision)
        except UsageError:
            if decision.forced:
                raise
    wanted = decision.threshold or 0
    safe = p.needed.long_prefill_token_threshold
    cap = min(wanted, safe) if safe and wanted else safe or wanted
    size, whys = _fitting_budget(p, cap)
    name = "long_prefill_token_threshold"
    if cap and p.longest <= cap:
        whys[name] = ("no_longer_prompt", {"threshold": cap})
        cap = 0
    elif cap and size is not None and cap >= size:
        whys[name] = ("budget_ends_first", {"threshold": cap, "budget": size})
        cap = 0
    elif cap:
        over = p.lengths.over(cap)
        whys[name] = ("over_threshold", {"over": over, "prompts": p.lengths.count, "safe": safe})
    settings = Settings(max_num_batched_tokens=size, long_prefill_token_threshold=cap)
    full = p.deployment.effective(settings.over(p.base))
    changed = _changed(p.default, full)
    needed = p.needed
    if size != p.default.max_num_batched_tokens:
        needed = replace(needed, max_num_batched_tokens=size)
        changed = replace(changed, max_num_batched_tokens=None)
    advice = Advice(
        kind=AdviceKind.SET if changed != OWN else AdviceKind.KEEP,
        basis=Basis.MODE if decision.forced else Basis.LENGTHS,
        settings=changed,
        needed=needed,
    )
    return _draft(p, full, advice, whys)


def _fitting_budget(p: Problem, cap: int) -> tuple[int | None, Whys]:
    """vLLM's own, unless the memory model says that it does not fit."""
    own = p.default.max_num_batched_tokens

    def fits(budget: int) -> bool:
        return p.fits(Settings(max_num_batched_tokens=budget, long_prefill_token_threshold=cap))

    if own is None or fits(own):
        return own, {}
    value = next((rung for rung in reversed(LADDER) if rung < own and fits(rung)), LADDER[0])
    return value, {"max_num_batched_tokens": ("does_not_fit", {"own": own, "value": value})}


def _off(p: Problem, decision: Decision) -> Draft:
    """A step has to hold the longest request whole, so the context is no longer than it must be."""
    limit = p.default.max_model_len
    context = min(round_up(p.need), limit) if limit else round_up(p.need)
    p = replace(p, needed=replace(p.needed, max_model_len=context))
    _check_off(p)
    release = p.deployment.release
    honoured = release.off is not Off.IGNORED
    size = max(p.default.max_num_batched_tokens or PAYING_BUDGET, context)
    size = size if p.fits(Settings(max_num_batched_tokens=size)) else context
    settings = Settings(
        max_num_batched_tokens=size,
        long_prefill_token_threshold=0,
        enable_chunked_prefill=False if honoured else None,
    )
    version: Values = {"version": release.text}
    whys: Whys = {
        "max_model_len": ("unchunked_context", {"context": context}),
        "max_num_batched_tokens": ("unchunked_budget", {"context": context}),
        "enable_chunked_prefill": (
            "no_prompt_is_split" if honoured else "off_is_ignored",
            version | {"warned": release.off is Off.WARNED},
        ),
    }
    full = p.deployment.effective(settings.over(p.base))
    advice = Advice(
        kind=AdviceKind.SET,
        basis=Basis.MODE if decision.forced else Basis.LENGTHS,
        settings=_changed(p.default, full),
        needed=p.needed,
    )
    lost = () if honoured else (Note(code="off_is_lost", values=version),)
    return _draft(p, full, advice, whys, notes=lost)


def _check_off(p: Problem) -> None:
    release, shape = p.deployment.release, p.deployment.shape
    memory, why = p.memory(Settings(max_num_batched_tokens=p.context)), ""
    if shape and shape.hybrid and release.hybrid_refuses_off:
        why = f"vLLM {release.text} requires chunked prefill for models with mamba-like layers"
    elif memory is not None and not memory.survives_logprobs:
        why = (
            f"the logits of one unchunked prompt would need {memory.unprofiled_gib:,.1f} GiB, "
            f"{memory.headroom_gib:,.1f} GiB are free outside vLLM's budget (predicted)"
        )
    elif memory is not None and not memory.holds(p.context):
        why = (
            f"an unchunked step of {p.context:,} tokens leaves KV cache for only "
            f"{memory.kv_cache_tokens:,} (predicted)"
        )
    if why:
        hint = "leave --mode out, or shorten the data"
        raise UsageError(f"--mode off is not possible: {why}", hint=hint)


# -- the reasons ---------------------------------------------------------------------------------


def _draft(
    p: Problem,
    full: Settings,
    advice: Advice,
    whys: Whys,
    *,
    notes: tuple[Note, ...] = (),
    comparison: Comparison | None = None,
) -> Draft:
    own = p.deployment.effective()
    whys = {**dict(_usual_whys(p)), **whys}
    shown = [
        name
        for name in NAMES
        if getattr(full, name) != getattr(own, name)
        or name not in ("tensor_parallel_size", *UNUSUAL)
    ]
    reasons = []
    for name in shown:
        value = getattr(full, name)
        default = ("default_unknown", {}) if value is None else ("default", {"value": value})
        code, values = whys.get(name, default)
        reasons.append(Reason(argument=name, code=f"why_{code}", values=values))
    return Draft(
        problem=p,
        settings=full,
        advice=advice,
        reasons=tuple(reasons),
        notes=notes,
        comparison=comparison,
    )


def _usual_whys(p: Problem) -> Iterator[tuple[str, tuple[str, Values]]]:
    """Of what was asked for, what is needed, and what likelihoods change."""
    shape, asked, needed = p.deployment.shape, p.request.settings.given(), p.needed.given()
    limit: Values = {"limit": shape.limit if shape else None}
    if shape:
        yield "max_model_len", ("model_limit", limit)
    if p.request.task is Task.LOGLIKELIHOOD:
        yield "enable_prefix_caching", ("likelihoods_skip_cache", {})
    for name, value in asked.items():
        yield name, ("asked_kv_cache" if name == "kv_cache_dtype" else "asked", {"value": value})
    codes = {
        "max_model_len": "context_that_fits",
        "max_num_seqs": "fewer_to_fit",
        "gpu_memory_utilization": "room_for_logits",
        "long_prefill_token_threshold": "logits_chunk",
    }
    for name, value in needed.items():
        yield name, (codes[name], {**limit, "value": value})
