"""[gate.settings]: are committed settings of the engine still what `recommend` says?

Compared is what the engine ends up with: an argument left out counts as vLLM's default.
"""

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from chunkscope.artefacts.note import Fact, note
from chunkscope.artefacts.numbers import exceeds
from chunkscope.errors import InputError, UsageError
from chunkscope.gating.budget import SettingsTable
from chunkscope.gating.check import Check, Relation
from chunkscope.gating.evidence import Datasets, Evidence
from chunkscope.gating.lengths import refused_prompts_check
from chunkscope.gating.read_settings import CommittedSettings, read_settings
from chunkscope.gating.remedies import commands_of
from chunkscope.planning.drawing import draw
from chunkscope.planning.engine_log import is_model
from chunkscope.planning.plan import Plan
from chunkscope.planning.request import chosen_datasets
from chunkscope.planning.search import WORTH
from chunkscope.planning.simulator import Simulator
from chunkscope.vllm.engine import Engine, Refusal
from chunkscope.vllm.flags import NEVER_WORKED, Release, flags_of, release
from chunkscope.vllm.rules import NEWEST
from chunkscope.vllm.settings import NAMES, Settings

AS_GOOD = "settings.as-good"
MUST_BE = ("settings", "must_be")  # its place in the budget
# Other GPUs, or fewer bits in the KV cache, which may change scores, are never as good.
ENGINE = (
    "tensor_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "kv_cache_dtype",
)


def check_settings(table: SettingsTable, evidence: Evidence) -> Iterator[Check]:
    plan = evidence.need_plan()
    evidence.need_profile()
    path = evidence.path(table.file)
    deployment = _deployment(plan, table)
    committed = read_settings(path, deployment.release.version)
    deployment = replace(deployment, entry=committed.entry)
    actual = deployment.complete(committed.settings.over(committed.defaults))
    memory = deployment.memory(actual, longest=plan.decision.longest)
    refusals = [
        *_refused_arguments(committed, deployment.release),
        *deployment.refusals(actual, memory),
    ]
    checks = [
        *_accepted(table.file, committed, refusals, deployment.release),
        *_allowed(table.allow, committed, plan),
    ]
    names = NAMES if table.must_be == "equal" else ENGINE
    if not evidence.findings.plan_is_of_this_profile:
        checks.append(_stale_plan(table.must_be))
    else:
        checks += _equal(table.must_be, names, plan.effective, actual)
        if table.must_be == "as-good":
            checks += _as_good(evidence, deployment, actual)
    remedy = f"{commands_of(evidence.findings)['recommend']} --emit {committed.form}"
    if committed.form == "vllm-yaml":  # other files may hold more than the settings
        remedy += f" > {shlex.quote(str(path))}"
    for check in checks:
        by_hand = check.name == "settings.allow"
        yield check if by_hand else replace(check, remedy=remedy)


def _deployment(plan: Plan, table: SettingsTable) -> Engine:
    """The plan's, with the vLLM that the budget names."""
    if table.vllm_version is None:
        return plan.deployment
    try:
        return replace(plan.deployment, release=release(table.vllm_version))
    except UsageError as error:  # it stands in a file, not on the command line
        raise InputError(f"settings.vllm_version: {error.message}") from None


def _stale_plan(must_be: str) -> Check:
    """Advice about other data is not what `recommend` says today."""
    return Check(
        name=f"settings.{must_be}",
        passed=False,
        subject="plan",
        relation=Relation.MADE_FROM,
        limit="profile.json",
        value="another",
        key=MUST_BE,
    )


# -- what vLLM takes -------------------------------------------------------------------


def _accepted(
    file: str,
    committed: CommittedSettings,
    refusals: Sequence[Refusal],
    running: Release,
) -> Iterator[Check]:
    """Would vLLM start with these arguments, and do what they say?"""
    checked = len(committed.settings.given()) + len(committed.others)
    accepted = Check(
        name="settings.accepted",
        passed=True,
        subject=file,
        relation=Relation.ACCEPTED,
        limit=running.text,
        value=checked,
        reason=note("gate_arguments_checked", checked=checked),
        key=("settings", "file"),
    )
    if not refusals:
        yield accepted
    for refusal in refusals:
        subject = refusal.argument
        yield replace(
            accepted, passed=False, subject=subject, value=None, reason=refusal
        )


def _refused_arguments(
    committed: CommittedSettings, running: Release
) -> Iterator[Refusal]:
    """A vLLM newer than those known may have more flags: those have to be allowed."""
    for refusal in committed.refusals:
        if refusal.code != "argument_unknown" or running.version <= NEWEST:
            yield refusal
    for name, value in committed.others.items():
        if name in NEVER_WORKED and value != "1" and name in flags_of(running.version):
            yield Refusal(argument=name, code="argument_partial_prefills")
        if name == "config":
            yield Refusal(argument=name, code="argument_other_file")


def _allowed(
    allow: tuple[str, ...], committed: CommittedSettings, plan: Plan
) -> Iterator[Check]:
    """Arguments that nobody judges have to be allowed by name, as has another model."""
    allowed = {name.lstrip("-").replace("-", "_") for name in allow}
    judged = sorted(allowed & set(NAMES))
    if judged:
        raise InputError(
            f"settings.allow: {judged[0]} is compared with the plan, "
            "it cannot be allowed",
            hint='take it out, or set must_be = "as-good"',
        )
    others = dict(committed.others)
    model = committed.model
    if model and not (plan.model and is_model(model, plan.model)):
        others = {"model": model, **others}
    planned = plan.model.load_name if plan.model else "no model"
    for name, value in others.items():
        code = "gate_other_model" if name == "model" else "gate_unjudged"
        reason = note(code, name=name, planned=planned)
        yield Check(
            name="settings.allow",
            passed=name in allowed,
            subject=name,
            relation=Relation.ALLOWED,
            value=(value or "given")[:80],
            reason=None if name in allowed else reason,
        )


# -- equal, and as good ----------------------------------------------------------------


def _equal(
    must_be: str, names: Sequence[str], planned: Settings, actual: Settings
) -> Iterator[Check]:
    """Settings beside those of the plan: each that differs, else that none does."""
    check = Check(name=f"settings.{must_be}", passed=True, key=MUST_BE)
    differing = [n for n in names if getattr(planned, n) != getattr(actual, n)]
    if not differing:
        yield replace(check, subject="engine", relation=Relation.ACCEPTED)
    for name in differing:
        limit: Fact = getattr(planned, name)
        value: Fact = getattr(actual, name)
        yield replace(check, passed=False, subject=name, limit=limit, value=value)


def _as_good(
    evidence: Evidence, deployment: Engine, actual: Settings
) -> Iterator[Check]:
    """It refuses no prompt that the plan serves, and it is as fast."""
    plan = evidence.need_plan()
    planned = plan.effective
    datasets = chosen_datasets(evidence.need_profile(), plan.request.dataset)
    context = actual.max_model_len or sys.maxsize
    limit = plan.refused.prompts if planned.max_model_len else 0
    refused = refused_prompts_check(AS_GOOD, context, evidence, datasets, limit)
    yield replace(refused, subject="max_model_len", key=MUST_BE)
    check = Check(
        name=AS_GOOD,
        passed=planned == actual,
        subject="simulation",
        relation=Relation.ACCEPTED,
        key=MUST_BE,
    )
    if planned != actual and plan.tried:
        check = _simulated(check, plan, deployment, actual, datasets)
    elif planned != actual:
        check = replace(check, reason=note("gate_not_simulated"))
    yield check


def _simulated(
    check: Check, plan: Plan, deployment: Engine, actual: Settings, datasets: Datasets
) -> Check:
    """Within 3 % of the plan on its own requests, as `recommend` weighs settings, and
    no limit breaks that the plan keeps. The gate simulates nowhere else."""
    planned = plan.effective
    contexts = [settings.max_model_len or 0 for settings in (planned, actual)]
    room = min((context for context in contexts if context), default=1)
    workload = draw(
        plan.request,
        deployment,
        datasets,
        room,
        advised_samples=plan.advised_samples,
    )
    simulator = Simulator(request=plan.request, engine=deployment, workload=workload)
    check = replace(
        check, relation=Relation.AT_MOST, limit=1 + WORTH, unit="share", passed=False
    )
    if simulator.attempt(actual) is None:
        return replace(check, reason=note("gate_cannot_run"))
    times = simulator.cost(actual) / simulator.cost(planned)
    keeps_limits = simulator.keeps_limits(actual)
    keeps_limits = keeps_limits or not simulator.keeps_limits(planned)
    changed = actual.changed_from(planned).given()
    code = "gate_within_plan" if keeps_limits else "gate_limit_breaks"
    return replace(
        check,
        passed=keeps_limits and not exceeds(times, 1 + WORTH),
        value=times,
        reason=note(code, requests=len(workload.requests), names=[*changed]),
    )
