"""From a problem to settings: what the simulator proves, or what the lengths say; and why."""

from collections.abc import Iterator
from dataclasses import replace

from chunkscope.artefacts.note import Fact
from chunkscope.errors import InputError, UsageError
from chunkscope.planning.plan import Advice, AdviceKind, Basis, Reason, Role, Standing, TriedRow
from chunkscope.planning.problem import LADDER, LARGER, Problem, round_up
from chunkscope.planning.rule import Decision
from chunkscope.planning.search import Draft, by_simulation
from chunkscope.vllm.deployment import OWN
from chunkscope.vllm.enums import Mode
from chunkscope.vllm.rules import Off
from chunkscope.vllm.settings import NAMES, UNUSUAL, Settings

# Past this no budget paid in the H200 measurements; the answer for "off" on an unknown GPU.
PAYING_BUDGET = 8_192
THRESHOLD = "long_prefill_token_threshold"
SIZES = ("max_num_batched_tokens", "max_num_seqs", THRESHOLD)


def choose(p: Problem, decision: Decision) -> Draft:
    """By simulation where a model and a GPU's speed are known and no mode is forced.

    InputError where nothing fits, UsageError where a forced mode is not possible.
    """
    p = p.fitted()
    if p.can_simulate and not decision.forced:
        draft = by_simulation(p)
    else:
        draft = by_lengths(p, decision)
        draft = replace(draft, rows=tuple(_forced_rows(draft)) if p.can_simulate else ())
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
    caps = [cap for cap in (decision.threshold, p.needed.long_prefill_token_threshold) if cap]
    cap, needed = min(caps, default=0), p.needed
    size = _fitting_budget(p, cap)
    if cap >= p.longest or (size is not None and cap >= size):
        cap = 0  # no chunk would end there
    if size != p.default.max_num_batched_tokens:
        needed = replace(needed, max_num_batched_tokens=size)
    settings = Settings(max_num_batched_tokens=size, long_prefill_token_threshold=cap)
    return _drafted(p, settings, needed, decision)


def _drafted(p: Problem, settings: Settings, needed: Settings, decision: Decision) -> Draft:
    full = p.deployment.effective(settings.over(p.base))
    changed = full.changed_from(p.default).changed_from(needed)
    advice = Advice(
        kind=AdviceKind.SET if changed != OWN else AdviceKind.KEEP,
        basis=Basis.MODE if decision.forced else Basis.LENGTHS,
        settings=changed,
        needed=needed,
    )
    return Draft(problem=p, settings=full, advice=advice)


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
    size = max(p.default.max_num_batched_tokens or PAYING_BUDGET, context)
    settings = Settings(
        max_num_batched_tokens=size if p.fits(Settings(max_num_batched_tokens=size)) else context,
        long_prefill_token_threshold=0,
        enable_chunked_prefill=None if release.rules.off is Off.IGNORED else False,
    )
    return _drafted(p, settings, p.needed, decision)


# -- why -------------------------------------------------------------------------------------------

NEEDED = {
    "max_model_len": "context_that_fits",
    "max_num_seqs": "fewer_to_fit",
    "gpu_memory_utilization": "room_for_logits",
    THRESHOLD: "logits_chunk",
}


def reasons(draft: Draft, decision: Decision) -> Iterator[Reason]:
    """Of what differs from vLLM's own, and of what people usually set."""
    p, advice = draft.problem, draft.advice
    own, simulated = p.deployment.effective(), advice.basis is Basis.SIMULATED
    alternative = advice.alternative if advice.gain is not None and not p.request.slo else None
    for name in NAMES:
        value, best = getattr(draft.settings, name), getattr(alternative, name, None)
        if value == getattr(own, name) and name in ("tensor_parallel_size", *UNUSUAL):
            continue
        code = "default_unknown" if value is None else "default"
        if getattr(advice.settings, name) is not None:
            code = "keeps_limits" if p.request.slo else "gains" if simulated else "length_rule"
        elif getattr(advice.needed, name) is not None:
            code = "does_not_fit" if getattr(p.needed, name) is None else NEEDED[name]
            if code == "context_that_fits" and decision.forced and decision.mode is Mode.OFF:
                code = "length_rule"
        elif getattr(p.request.settings, name) is not None:
            code = "asked_kv_cache" if name == "kv_cache_dtype" else "asked"
        elif best is not None:
            code = "gain_in_doubt" if advice.doubt else "too_little_gain"
        elif simulated and value and name in SIZES:
            code = "default_is_best"
        elif name == THRESHOLD and decision.threshold and not simulated:
            code = "threshold_ends_nothing"
        values: dict[str, Fact | list[Fact]] = {
            "own": getattr(own, name),
            "value": value,
            "best": best,
            "gain": advice.gain,
            "least": advice.least_gain,
            "doubt": advice.doubt,
            "threshold": decision.threshold,
        }
        yield Reason(argument=name, code=f"why_{code}", values=values)
