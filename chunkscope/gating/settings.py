"""[gate.settings]: are the committed engine arguments still what `recommend` says? Compared is what
the engine ends up with: an argument left out counts as vLLM's default."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from chunkscope.artefacts.note import note
from chunkscope.artefacts.numbers import exceeds
from chunkscope.errors import InputError, UsageError
from chunkscope.gating.check import Check, Relation
from chunkscope.gating.checks import Evidence, refused_prompts_check
from chunkscope.gating.read_arguments import CommittedArguments, read_arguments
from chunkscope.lengths.profile import Profile
from chunkscope.planning.choose import WORTH
from chunkscope.planning.engine_log import is_model
from chunkscope.planning.plan import Plan
from chunkscope.planning.request import chosen_datasets
from chunkscope.planning.simulator import Simulator, draw
from chunkscope.vllm.deployment import Deployment, Refusal
from chunkscope.vllm.flags import NEVER_WORKED, Release, flags_of, release
from chunkscope.vllm.rules import NEWEST
from chunkscope.vllm.settings import NAMES, UNUSUAL, Settings


def check_settings(budget: Any, evidence: Evidence) -> Iterator[Check]:
    plan, _ = evidence.need(Plan), evidence.need(Profile)
    deployment = plan.deployment
    try:
        if budget.vllm_version:
            deployment = replace(deployment, release=release(budget.vllm_version))
    except UsageError as error:  # it stands in a file, not on the command line
        raise InputError(f"settings.vllm_version: {error.message}") from None
    committed = read_arguments(
        evidence.path(budget.file), deployment.release.version, budget.form
    )
    deployment = replace(deployment, entry=committed.entry)
    actual = deployment.effective(committed.settings.over(committed.defaults))
    yield from _accepted(committed, actual, deployment, budget.file)
    yield from _unjudged(committed, plan, budget.allow)
    if not evidence.findings.plan_is_of_this_profile:
        # Advice about other data is not what `recommend` says today.
        stale = {
            "relation": Relation.MADE_FROM,
            "limit": "profile.json",
            "value": "another",
        }
        yield _check(budget.must_be, "plan", passed=False, **stale)
    elif budget.must_be == "equal":
        yield from _equal(committed, plan.effective, actual)
    else:
        yield from _as_good(evidence, deployment, actual)


def _check(must_be: str, subject: str, *, passed: bool, **more: Any) -> Check:
    name, key = f"settings.{must_be}", ("settings", "must_be")
    return Check(name=name, subject=subject, passed=passed, key=key, **more)


def _accepted(
    committed: CommittedArguments, actual: Settings, deployment: Deployment, file: str
) -> Iterator[Check]:
    refusals = [*_refusals(committed, deployment.release), *deployment.refusals(actual)]
    about: dict[str, Any] = {"name": "settings.accepted", "key": ("settings", "file")}
    about |= {"relation": Relation.ACCEPTED, "limit": deployment.release.text}
    yield from (
        Check(subject=x.argument, passed=False, reason=x, **about) for x in refusals
    )
    if not refusals:
        checked = len(committed.settings.given()) + len(committed.others)
        reason = note("gate_arguments_checked", checked=checked)
        yield Check(subject=file, passed=True, value=checked, reason=reason, **about)


def _refusals(committed: CommittedArguments, running: Release) -> Iterator[Refusal]:
    """A vLLM newer than those known here may have more flags: they have to be allowed."""
    for one in committed.refusals:
        if one.code != "argument_unknown" or running.version <= NEWEST:
            yield one
    for name, value in committed.others.items():
        if name in NEVER_WORKED and value != "1" and name in flags_of(running.version):
            yield Refusal(argument=name, code="argument_partial_prefills")
        if name == "config":
            yield Refusal(argument=name, code="argument_other_file")


def _unjudged(
    committed: CommittedArguments, plan: Plan, allow: tuple[str, ...]
) -> Iterator[Check]:
    allowed = {name.lstrip("-").replace("-", "_") for name in allow}
    if judged := sorted(allowed & set(NAMES)):
        what = f"settings.allow: {judged[0]} is compared with the plan, it cannot be allowed"
        raise InputError(what, hint='take it out, or set must_be = "as-good"')
    others = dict(committed.others)
    if committed.model and not (plan.model and is_model(committed.model, plan.model)):
        others = {"model": committed.model, **others}
    planned = plan.model.load_name if plan.model else "no model"
    for name, value in others.items():
        code = "gate_other_model" if name == "model" else "gate_unjudged"
        yield Check(
            name="settings.allow",
            subject=name,
            passed=name in allowed,
            relation=Relation.ALLOWED,
            value=(value or "given")[:80],
            reason=None if name in allowed else note(code, name=name, planned=planned),
        )


def _equal(
    committed: CommittedArguments, planned: Settings, actual: Settings
) -> Iterator[Check]:
    for name in NAMES:
        limit, value = getattr(planned, name), getattr(actual, name)
        if name in UNUSUAL and limit == value:
            continue
        explicit = getattr(committed.settings, name) is not None
        is_known = limit is not None or name in UNUSUAL
        passed = value == limit if is_known else not explicit
        unknown = name not in UNUSUAL and not passed and None in (limit, value)
        reason = note("gate_no_memory_model") if unknown else None
        yield _check(
            "equal", name, passed=passed, limit=limit, value=value, reason=reason
        )


def _as_good(
    evidence: Evidence, deployment: Deployment, actual: Settings
) -> Iterator[Check]:
    plan, profile = evidence.need(Plan), evidence.need(Profile)
    planned = plan.effective
    gpus, split = (
        (planned.parallel.gpus, actual.parallel.gpus),
        planned.parallel == actual.parallel,
    )
    reason = note("gate_split_otherwise") if gpus[0] == gpus[1] and not split else None
    about: dict[str, Any] = {"limit": gpus[0], "value": gpus[1], "reason": reason}
    yield _check("as-good", "tensor_parallel_size", passed=split, **about)
    # Fewer bits in the KV cache may be faster, and may change scores: never as good.
    types = planned.kv_cache_dtype, actual.kv_cache_dtype
    if types != (None, None):
        same = types[0] == types[1]
        yield _check(
            "as-good", "kv_cache_dtype", passed=same, limit=types[0], value=types[1]
        )
    datasets = chosen_datasets(profile, plan.request.dataset)
    # A shorter context is as good as long as it refuses no prompt that the plan serves.
    limit = plan.refused.prompts if (room := planned.max_model_len) else 0
    context = actual.max_model_len or (
        0 if room else sys.maxsize
    )  # not known: none is served
    about = {"subject": "max_model_len", "key": ("settings", "must_be")}
    yield refused_prompts_check(
        "settings.as-good", context, evidence, datasets, limit, **about
    )
    yield _memory_check(plan, deployment, actual)
    if (same := planned == actual) or not plan.tried:
        reason = None if same else note("gate_not_simulated")
        about = {"relation": Relation.ACCEPTED, "reason": reason}
        yield _check("as-good", "simulation", passed=same, **about)
        return
    contexts = [s.max_model_len for s in (planned, actual) if s.max_model_len]
    room = min(contexts, default=1)  # what either of them takes
    workload = draw(plan.request, deployment, datasets, room)
    simulator = Simulator(
        request=plan.request, deployment=deployment, workload=workload
    )
    yield _simulation_check(simulator, planned, actual)


def _memory_check(plan: Plan, deployment: Deployment, actual: Settings) -> Check:
    """Larger steps and more requests cost KV cache: one request of full length must still fit."""
    memory, context = (
        deployment.memory(actual, longest=plan.decision.longest),
        actual.max_model_len,
    )
    about: dict[str, Any] = {
        "relation": Relation.AT_LEAST,
        "limit": context or 1,
        "unit": "tokens",
    }
    if memory is None or context is None:
        about["reason"] = note("gate_no_memory_model")
        return _check("as-good", "memory", passed=plan.effective == actual, **about)
    code = "gate_kv_cache" if memory.starts else "gate_would_not_start"
    code = code if memory.survives_logprobs else "gate_logprobs_do_not_fit"
    about |= {"value": memory.kv_cache_tokens, "reason": note(code)}
    return _check(
        "as-good", "memory", passed=memory.holds(context) and memory.starts, **about
    )


def _simulation_check(
    simulator: Simulator, planned: Settings, actual: Settings
) -> Check:
    """By what `recommend` weighs settings with; and a limit that the plan keeps may not break."""
    about: dict[str, Any] = {
        "relation": Relation.AT_MOST,
        "limit": 1 + WORTH,
        "unit": "share",
    }
    if simulator.attempt(actual) is None:
        about["reason"] = note("gate_cannot_run")
        return _check("as-good", "simulation", passed=False, **about)
    times = simulator.against(actual, planned)
    keeps = simulator.keeps_limits(actual) or not simulator.keeps_limits(planned)
    code = "gate_within_plan" if keeps else "gate_limit_breaks"
    names = [n for n in NAMES if getattr(planned, n) != getattr(actual, n)]
    reason = note(code, requests=len(simulator.workload.requests), names=names)
    about |= {"value": times, "reason": reason}
    return _check(
        "as-good", "simulation", passed=keeps and not exceeds(times, 1 + WORTH), **about
    )
