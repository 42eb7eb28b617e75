"""Why checks fail, and the command that mends them or accepts today's state."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

from chunkscope.artefacts.note import Note, note
from chunkscope.findings import DEFAULT_FOLDER, Findings
from chunkscope.gating.budget import BUDGET, PROJECT, BudgetFile
from chunkscope.gating.check import Check

# The command that made what a check rests on, by how the check's name begins.
MADE_BY = {
    "freshness.data": "analyze",
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


def with_remedies(
    checks: Sequence[Check], file: BudgetFile, findings: Findings
) -> tuple[Check, ...]:
    """The same checks; those that fail with their cause and with what mends them.

    A stale artefact fails much at once: all of that has one cause and one command.
    """
    causes = stale(findings)
    commands = commands_of(findings)
    explained = []
    for check in checks:
        maker = _maker(check)
        remedy = check.remedy
        if maker in causes or check.table == "freshness":
            remedy = commands[maker]
        elif check.table in WRITTEN_BY_INIT and check.reason is None:
            remedy = _accepting_command(file, findings)
        if check.passed:
            remedy = ""
        cause = causes.get(maker, check.cause)
        explained.append(replace(check, cause=cause, remedy=remedy))
    return tuple(explained)


def _maker(check: Check) -> str:
    for name, command in MADE_BY.items():
        if check.name.startswith(name):
            return command
    return ""


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
    pairs = {
        "recommend": (findings.plan_is_of_this_profile, "plan", "profile"),
        "verify": (findings.verification_is_of_this_plan, "verify", "plan"),
        "simulate": (findings.simulation_is_of_this_profile, "simulation", "profile"),
    }
    causes = {}
    for command, (is_of_it, name, source) in pairs.items():
        if is_of_it is False:
            file = str(findings.folder / f"{name}.json")
            causes[command] = note(
                "made_from_another", file=file, source=f"{source}.json"
            )
    return causes


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
