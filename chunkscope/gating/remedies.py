"""Why checks fail, and the command that mends them or accepts today's state."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chunkscope.artefacts.note import Note, note
from chunkscope.findings import DEFAULT_FOLDER, Findings
from chunkscope.gating.budget import BUDGET, PROJECT, BudgetFile
from chunkscope.gating.check import Check

# The command that made what a check rests on, by how the check's name begins. All other
# checks rest on files that people wrote.
MADE_BY = {
    "freshness.data": "analyze",
    "data.": "analyze",
    "drift.": "analyze",
    "freshness.plan": "recommend",
    "memory.predicted.": "recommend",
    "slo.": "recommend",
    "settings.equal": "recommend",
    "settings.as-good": "recommend",
    "freshness.verification": "verify",
    "memory.measured.": "verify",
    "speed.": "verify",
    "outputs.": "verify",
}
# Tables of limits that `gate --init` writes anew from today's values.
WRITTEN_BY_INIT = ("data", "memory", "slo", "speed", "outputs")


def commands_of(findings: Findings) -> dict[str, str]:
    """What makes each artefact anew, as it was typed where the artefact knows it."""
    profile = findings.profile
    plan = findings.plan
    verification = findings.verification
    return {
        "analyze": command_for(
            profile.command if profile else (), "chunkscope analyze data/"
        ),
        "recommend": command_for(
            plan.source.command if plan else (), "chunkscope recommend"
        ),
        "verify": command_for(
            verification.command if verification else (), "chunkscope verify"
        ),
    }


def command_for(typed: Sequence[str], usual: str) -> str:
    """The command that an artefact stored; the usual one if Python made it."""
    return shlex.join(typed) if typed else usual


def stale(findings: Findings) -> dict[str, Note]:
    """Artefacts that were made from others than are there, by their commands."""
    causes = {}
    if findings.plan_is_of_this_profile is False:
        causes["recommend"] = _made_from_another(findings, "plan.json", "profile.json")
    if findings.verification_is_of_this_plan is False:
        causes["verify"] = _made_from_another(findings, "verify.json", "plan.json")
    if findings.simulation_is_of_this_profile is False:
        causes["simulate"] = _made_from_another(
            findings, "simulation.json", "profile.json"
        )
    return causes


def _made_from_another(findings: Findings, file: str, source: str) -> Note:
    return note("made_from_another", file=str(findings.folder / file), source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """The causes that several checks may share, and the commands that help."""

    causes: Mapping[str, Note]  # by the command that ends them
    commands: Mapping[str, str]
    accept: str  # writes the limits anew; empty where that is not possible

    def explained(self, check: Check) -> Check:
        """The same check with its cause and, if it failed, its remedy."""
        made_by = _made_by(check)
        cause = self.causes.get(made_by)
        if check.passed:
            return replace(check, cause=cause, remedy="")
        if cause is not None:
            return replace(check, cause=cause, remedy=self.commands[made_by])
        if check.of_a_part or _lacks_a_value(check):
            return replace(check, remedy=self.commands[made_by])
        if check.remedy or not _is_limit_of_init(check):
            return check
        return replace(check, remedy=self.accept)


def remedies_for(
    checks: Sequence[Check], file: BudgetFile, findings: Findings
) -> Remedies:
    """A plan of other data fails much at once: all of that has one cause."""
    causes = stale(findings)
    changed = []
    for check in checks:
        if check.name == "freshness.data" and not check.passed:
            changed.append(check.subject)
    if changed:
        profile = str(findings.folder / "profile.json")
        causes["analyze"] = note("gate_data_changed", profile=profile, names=changed)
    return Remedies(
        causes=causes,
        commands=commands_of(findings),
        accept=_accepting_command(file, findings),
    )


def _accepting_command(file: BudgetFile, findings: Findings) -> str:
    if file.path.name == PROJECT.name:
        return ""  # `gate --init` does not write there
    words = ["chunkscope", "gate"]
    if findings.folder != DEFAULT_FOLDER:
        words.append(str(findings.folder))
    words += ["--init", "--force"]
    if file.path != BUDGET:
        words += ["--config", str(file.path)]
    return shlex.join(words)


def _made_by(check: Check) -> str:
    """The command that made what a check rests on; empty where a person did."""
    for name, command in MADE_BY.items():
        if check.name.startswith(name):
            return command
    return ""


def _lacks_a_value(check: Check) -> bool:
    """Is a value missing, and nothing says why? Then the artefact is made once more."""
    is_missing = check.value is None and check.reason is None
    return is_missing and check.table != "settings"


def _is_limit_of_init(check: Check) -> bool:
    """A limit with a value; `max_model_len` is a decision, which nobody moves."""
    if check.name == "data.max_model_len" or check.value is None:
        return False
    return check.table in WRITTEN_BY_INIT
