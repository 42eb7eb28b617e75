"""[gate.settings]: are the committed engine arguments still what `recommend` says?

Three questions, and each must have a yes:
- Would that vLLM take them? By its version's options and rules, and by its own parser where it is
  installed.
- Is nothing beside that nobody judges? Another model, or an argument that may change memory or
  speed and is none of the plan's, has to be named in `allow`.
- Are they equal to the plan, or as good (see as_good.py)?

Compared is what the engine ends up with: an argument left out counts as vLLM's own choice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.numbers import as_written
from chunkscope.artefacts.units import COUNT, SHARE, exceeds
from chunkscope.errors import ChunkscopeError, InputError, UsageError
from chunkscope.gating.budget import SettingsPromises
from chunkscope.gating.committed import Committed, Fault, read_committed
from chunkscope.gating.evidence import Evidence
from chunkscope.gating.promises.as_good import check_as_good
from chunkscope.gating.verdict import Verdict
from chunkscope.models.find import built_in, find_model
from chunkscope.models.shape import ModelShape
from chunkscope.planning.plan import Plan
from chunkscope.vllm.check import read_by_vllm
from chunkscope.vllm.deployment import Deployment, Refusal
from chunkscope.vllm.flags import NEVER_WORKED, Release, release
from chunkscope.vllm.settings import NAMES, UNUSUAL, Settings, Value


def check_settings(limits: SettingsPromises, evidence: Evidence) -> Iterator[Verdict]:
    plan, profile = evidence.plan, evidence.profile
    there = plan.deployment
    if limits.vllm_version:
        there = replace(there, release=_release(limits.vllm_version))
    committed = read_committed(evidence.path(limits.file), there.release.version, limits.form)
    there = replace(there, entry=committed.entry)
    found = there.effective(committed.settings.over(committed.defaults))
    yield from _accepted(committed, found, there, limits.file)
    yield from _beside(committed, plan, _allowed(limits))
    if not evidence.findings.plan_is_of_this_profile:
        yield _stale(limits)
        return
    wanted = plan.deployment.effective(plan.settings)
    if limits.must_be == "equal":
        yield from _equal(committed, wanted, found)
    else:
        yield from check_as_good(plan, profile, there, wanted=wanted, found=found)
    if limits.threshold_tolerance is not None:
        yield _near(wanted, found, limits.threshold_tolerance)


def _release(version: str) -> Release:
    try:
        return release(version)
    except UsageError as error:  # it stands in a file, not on the command line
        raise InputError(f"settings.vllm_version: {error.message}") from None


def _stale(limits: SettingsPromises) -> Verdict:
    """Advice about other data is not what `recommend` says today."""
    return Verdict(
        promise=f"settings.{limits.must_be}",
        subject="plan",
        kept=False,
        promised="made from this profile",
        found="made from another",
        where=("settings", "must_be"),
    )


# -- would vLLM take it? -------------------------------------------------------------------------


def _accepted(
    committed: Committed, found: Settings, there: Deployment, file: str
) -> Iterator[Verdict]:
    faults = [
        *_faults(committed, there.release),
        *(Fault(what=rule.argument, why=_told(rule)) for rule in there.refusals(found)),
    ]
    told: dict[str, Any] = {
        "promise": "settings.accepted",
        "promised": f"vLLM {there.release.text} takes it",
        "where": ("settings", "file"),
    }
    for fault in faults:
        yield Verdict(
            subject=fault.what,
            kept=False,
            found="it does not",
            found_value=fault.why,
            note=fault.why,
            **told,
        )
    if not faults:
        checked = len(committed.settings.given()) + len(committed.others)
        beside = len(committed.harmless)
        counted = f"{checked} checked" + (f", {beside} of no effect here" if beside else "")
        yield Verdict(subject=file, kept=True, found=counted, **told)


def _faults(committed: Committed, running: Release) -> Iterator[Fault]:
    """By what is known here; an installed vLLM of that version knows better which flags it has."""
    answer = read_by_vllm(running, committed.words, committed.keywords)
    for fault in committed.faults:
        if answer is None or not fault.unknown:
            yield fault
    if answer is not None and not answer.accepted:
        yield Fault(what="vLLM's own parser", why=answer.message)
    for name, value in committed.others.items():
        if name in NEVER_WORKED and value != "1":
            why = "refuses it: concurrent partial prefills are not supported"
            yield Fault(what=name, why=f"vLLM {running.text} {why}")
        if name == "config":
            why = "what stands in another file is not looked at: name that one in settings.file"
            yield Fault(what=name, why=why)


def _told(refusal: Refusal) -> str:
    figures = ", ".join(f"{name} {value}" for name, value in refusal.values.items())
    return f"{refusal.code.removeprefix('refused_').replace('_', ' ')}: {figures}"


# -- is there something beside? ------------------------------------------------------------------


def _allowed(limits: SettingsPromises) -> frozenset[str]:
    names = frozenset(name.lstrip("-").replace("-", "_") for name in limits.allow)
    if judged := sorted(names & set(NAMES)):
        what = f"settings.allow: {judged[0]} is compared with the plan, it cannot be allowed"
        raise InputError(what, hint='take it out, or promise must_be = "as-good"')
    return names


def _beside(committed: Committed, plan: Plan, allowed: frozenset[str]) -> Iterator[Verdict]:
    model = committed.model
    if model is not None and not (plan.model and _is_model(model, plan.model)):
        planned = plan.model.load_name if plan.model else "none known"
        yield _unjudged(
            "model", model, f"the plan's: {planned}", "the plan is not about it", allowed
        )
    for name, value in committed.others.items():
        why = "it may change memory or speed, and nothing here judges it"
        yield _unjudged(name, value or "given", "left to vLLM", why, allowed)


def _unjudged(name: str, found: str, promised: str, why: str, allowed: frozenset[str]) -> Verdict:
    kept = name in allowed
    hint = f'name it in `allow = ["{name}"]` if that is meant'
    return Verdict(
        promise="settings.allow",
        subject=name,
        kept=kept,
        promised="allowed" if kept else promised,
        found=found[:80],
        found_value=found,
        note="not judged" if kept else f"{why}; {hint}",
        where=("settings", "allow"),
    )


def _is_model(name: str, planned: ModelShape) -> bool:
    """The same shape is the same model to us, by whatever name or in whatever folder."""
    if name in (planned.name, planned.load_name):
        return True
    try:
        is_folder = (Path(name) / "config.json").is_file()
        found = find_model(name) if is_folder else built_in(name)
    except (ChunkscopeError, OSError, ValueError):
        return False
    if found is None:
        return False
    return planned == replace(
        found, name=planned.name, source=planned.source, hub_id=planned.hub_id
    )


# -- is it equal? --------------------------------------------------------------------------------


def _equal(committed: Committed, wanted: Settings, found: Settings) -> Iterator[Verdict]:
    for name in NAMES:
        explicit = getattr(committed.settings, name) is not None
        if name in UNUSUAL and getattr(wanted, name) == getattr(found, name):
            continue
        yield _Compared(
            name=name,
            wanted=getattr(wanted, name),
            found=getattr(found, name),
            explicit=explicit,
        ).verdict()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """One argument: what `recommend` says, and what is committed."""

    name: str
    wanted: Value | None
    found: Value | None
    explicit: bool

    def verdict(self) -> Verdict:
        is_known = self.wanted is not None or self.name in UNUSUAL
        kept = self.found == self.wanted if is_known else not self.explicit
        return Verdict(
            promise="settings.equal",
            subject=self.name,
            kept=kept,
            promised=_shown(self.wanted),
            found=_shown(self.found)
            + ("" if self.explicit or self.found is None else " (default)"),
            promised_value=self.wanted,
            found_value=self.found,
            note="" if kept else self._why_unknown(),
            where=("settings", "must_be"),
        )

    def _why_unknown(self) -> str:
        if self.name in UNUSUAL:
            return ""
        if self.wanted is None:
            return "what vLLM takes by itself is not known without `recommend --gpu`"
        if self.found is None:
            return "what vLLM takes by itself is not known without `recommend --model --gpu`"
        return ""


def _shown(value: Any) -> str:
    if value is None:
        return "left to vLLM"
    if isinstance(value, bool):
        return "on" if value else "off"
    return as_written(value)


def _near(wanted: Settings, found: Settings, tolerance: float) -> Verdict:
    """0 means no threshold: it is near to nothing else."""
    old, new = wanted.long_prefill_token_threshold or 0, found.long_prefill_token_threshold or 0
    kept = old == new or bool(old and new and not exceeds(abs(new - old) / old, tolerance))
    return Verdict(
        promise="settings.threshold_tolerance",
        subject="long_prefill_token_threshold",
        kept=kept,
        promised=f"within {SHARE.write(tolerance)} of {COUNT.write(old)}",
        found=COUNT.write(new),
        promised_value=old,
        found_value=new,
    )
