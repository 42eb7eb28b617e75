"""From a problem to settings: what the simulator proves, or what the lengths say."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from chunkscope.artefacts.note import Fact, Note
from chunkscope.errors import InputError, UsageError
from chunkscope.planning.plan import (
    Advice,
    AdviceKind,
    Basis,
    Reason,
    Role,
    Standing,
    TriedRow,
)
from chunkscope.planning.problem import LADDER, LARGER, Problem, round_up
from chunkscope.planning.rule import Decision
from chunkscope.planning.search import Comparison, compare, sustained
from chunkscope.vllm.deployment import OWN
from chunkscope.vllm.enums import Mode
from chunkscope.vllm.rules import Off
from chunkscope.vllm.settings import NAMES, UNUSUAL, Settings

# Past this no budget paid in the H200 measurements; the answer for "off" on an unknown GPU.
PAYING_BUDGET = 8_192
SIZES = ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold")
THRESHOLD = "long_prefill_token_threshold"
Values = dict[str, Fact | list[Fact]]
Whys = dict[str, tuple[str, Values]]  # of an argument: a code and its values


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The settings that were chosen, complete, and why."""

    problem: Problem
    settings: Settings
    advice: Advice
    whys: Whys
    notes: tuple[Note, ...] = ()
    rows: tuple[TriedRow, ...] = ()

    @property
    def chunk(self) -> int | None:
        """What ends a chunk; None where no prompt is split."""
        if self.settings.enable_chunked_prefill is False:
            return None
        caps = (self.settings.long_prefill_token_threshold, self.settings.max_num_batched_tokens)
        return min((cap for cap in caps if cap), default=None)

    def reasons(self) -> Iterator[Reason]:
        """Of what differs from vLLM's own, and of what people usually set."""
        own = self.problem.deployment.effective()
        whys = {**dict(_usual_whys(self.problem)), **self.whys}
        for name in NAMES:
            value = getattr(self.settings, name)
            if value == getattr(own, name) and name in ("tensor_parallel_size", *UNUSUAL):
                continue
            default = ("default_unknown", {}) if value is None else ("default", {"value": value})
            code, values = whys.get(name, default)
            yield Reason(argument=name, code=f"why_{code}", values=values)


def choose(p: Problem, decision: Decision) -> Draft:
    """By simulation where a model and a GPU's speed are known and no mode is forced.

    InputError where nothing fits, UsageError where a forced mode is not possible.
    """
    p = p.fitted()
    if decision.forced or not p.can_simulate:
        draft = by_lengths(p, decision)
        draft = replace(draft, rows=tuple(_forced_rows(draft)) if p.can_simulate else ())
    else:
        draft = _by_simulation(p, decision)
    _check(draft)
    return draft


def rule_settings(p: Problem, decision: Decision) -> Settings | None:
    """What the length rule would set, whatever the simulator says; None where nothing fits."""
    try:
        draft = by_lengths(p.fitted(), decision, off=True)
    except InputError:
        return None
    return p.deployment.shortest(draft.settings)


def _forced_rows(draft: Draft) -> Iterator[TriedRow]:
    """Of a forced mode, what was asked for beside vLLM's default."""
    p = draft.problem
    for settings, role in {draft.settings: Role.RULE, p.default: Role.DEFAULT}.items():
        standing = Standing.CHOSEN if settings == draft.settings else Standing.WORSE
        if (run := p.simulator().attempt(settings)) is not None:
            yield TriedRow(role=role, settings=settings, run=run, standing=standing)


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
    if deployment.measured and deployment.measured.failed_as(draft.settings):
        raise InputError(
            f"no setting is left that did not fail in {deployment.measured.log}", hint=LARGER
        )
    if refusals := deployment.refusals(draft.settings):
        raise AssertionError(f"vLLM {deployment.release.text} refuses {refusals[0]}")


# -- by simulation -------------------------------------------------------------------------------


def _by_simulation(p: Problem, decision: Decision) -> Draft:
    c = compare(p, decision.threshold)
    changed = _changed(c.default, c.chosen)
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
        settings=changed if c.default_runs else OWN,
        needed=p.needed if c.default_runs else changed.over(p.needed),
        gain=c.gain,
        least_gain=c.least,
        doubt=c.doubt,
        alternative=_changed(c.default, c.best) if c.best != c.chosen else None,
        rate=rate,
        gpus=gpus,
    )
    whys = dict(_simulated_whys(p, c))
    return Draft(problem=p, settings=c.chosen, advice=advice, whys=whys, rows=c.rows)


def _simulated_whys(p: Problem, c: Comparison) -> Iterator[tuple[str, tuple[str, Values]]]:
    for name in NAMES:
        own, chosen, best = (getattr(s, name) for s in (c.default, c.chosen, c.best))
        values: Values = {"own": own, "value": chosen, "best": best, "gain": c.gain}
        values |= {"least": c.least, "doubt": c.doubt}
        if chosen != own:
            gains = "keeps_limits" if p.request.slo else "gains"
            yield name, (gains if c.default_runs else "does_not_fit", values)
        elif best != own and name in SIZES and c.gain is not None and not p.request.slo:
            yield name, ("gain_in_doubt" if c.doubt else "too_little_gain", values)
        elif own and name in SIZES:
            yield name, ("default_is_best", values)


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
    whys: Whys = {}
    own, size = p.default.max_num_batched_tokens, _fitting_budget(p, cap)
    if size != own:
        whys["max_num_batched_tokens"] = ("does_not_fit", {"own": own, "value": size})
    if cap and p.longest <= cap:
        whys[THRESHOLD] = ("no_longer_prompt", {"threshold": cap})
        cap = 0
    elif cap and size is not None and cap >= size:
        whys[THRESHOLD] = ("budget_ends_first", {"threshold": cap, "budget": size})
        cap = 0
    elif cap:
        values: Values = {"prompts": p.lengths.count, "safe": safe}
        whys[THRESHOLD] = ("over_threshold", {"over": p.lengths.over(cap), **values})
    settings = Settings(max_num_batched_tokens=size, long_prefill_token_threshold=cap)
    full, needed = p.deployment.effective(settings.over(p.base)), p.needed
    changed = _changed(p.default, full)
    if size != own:
        needed = replace(needed, max_num_batched_tokens=size)
        changed = replace(changed, max_num_batched_tokens=None)
    advice = Advice(
        kind=AdviceKind.SET if changed != OWN else AdviceKind.KEEP,
        basis=Basis.MODE if decision.forced else Basis.LENGTHS,
        settings=changed,
        needed=needed,
    )
    return Draft(problem=p, settings=full, advice=advice, whys=whys)


def _fitting_budget(p: Problem, cap: int) -> int | None:
    """vLLM's own, unless the memory model says that it does not fit."""
    own = p.default.max_num_batched_tokens

    def fits(budget: int) -> bool:
        return p.fits(Settings(max_num_batched_tokens=budget, long_prefill_token_threshold=cap))

    if own is None or fits(own):
        return own
    return next((rung for rung in reversed(LADDER) if rung < own and fits(rung)), LADDER[0])


def _off(p: Problem, decision: Decision) -> Draft:
    """A step has to hold the longest request whole, so the context is no longer than it must be."""
    limit, release, shape = p.default.max_model_len, p.deployment.release, p.deployment.shape
    context = min(round_up(p.need), limit) if limit else round_up(p.need)
    p = replace(p, needed=replace(p.needed, max_model_len=context))
    memory, why = p.memory(Settings(max_num_batched_tokens=context)), ""
    if shape and shape.hybrid and release.rules.hybrid_refuses_off:
        why = f"vLLM {release.text} requires chunked prefill for models with mamba-like layers"
    elif memory is not None and not memory.holds(context):
        why = f"a step of {context:,} tokens does not fit beside the KV cache (predicted)"
    if why:
        hint = "leave --mode out, or shorten the data"
        raise UsageError(f"--mode off is not possible: {why}", hint=hint)
    honoured = release.rules.off is not Off.IGNORED
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
            version | {"warned": release.rules.off is Off.WARNED},
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
    return Draft(problem=p, settings=full, advice=advice, whys=whys, notes=lost)


def _usual_whys(p: Problem) -> Iterator[tuple[str, tuple[str, Values]]]:
    """Of what was asked for, what is needed, and what likelihoods change."""
    shape, asked, needed = p.deployment.shape, p.request.settings.given(), p.needed.given()
    limit: Values = {"limit": shape.limit if shape else None}
    if shape:
        yield "max_model_len", ("model_limit", limit)
    if all(output.is_scored for output in p.outputs):
        yield "enable_prefix_caching", ("likelihoods_skip_cache", {})
    for name, value in asked.items():
        yield name, ("asked_kv_cache" if name == "kv_cache_dtype" else "asked", {"value": value})
    codes = {
        "max_model_len": "context_that_fits",
        "max_num_seqs": "fewer_to_fit",
        "gpu_memory_utilization": "room_for_logits",
        THRESHOLD: "logits_chunk",
    }
    for name, value in needed.items():
        yield name, (codes[name], {**limit, "value": value})
