"""`gate`: artefacts x budget -> checks, passed or failed, and what to do about the latter."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError
from chunkscope.findings import DEFAULT_FOLDER, Findings, load_findings
from chunkscope.gating import checks as tables
from chunkscope.gating.budget import BUDGET, HINT, BudgetFile, find_budget
from chunkscope.gating.check import Check, GateResult
from chunkscope.gating.checks import Evidence
from chunkscope.gating.settings import check_settings

CHECKS: dict[str, Callable[[Any, Evidence], Iterator[Check]]] = {
    "data": tables.check_data,
    "drift": tables.check_drift,
    "settings": check_settings,
    "memory": tables.check_memory,
    "slo": tables.check_slo,
    "speed": tables.check_speed,
    "outputs": tables.check_outputs,
    "doctor": tables.check_doctor,
    "freshness": tables.check_freshness,
}


def gate(folder: str | Path = DEFAULT_FOLDER, *, config: str | Path | None = None) -> GateResult:
    """Hold the artefacts in `folder` against the limits of a budget file.

    Failed checks are in the result; what cannot be judged at all is an InputError.

    >>> from tempfile import mkdtemp
    >>> budget = Path(mkdtemp()) / "chunkscope.toml"
    >>> _ = budget.write_text("[gate.data]\\nlongest_prompt = '24K'\\np95 = 2000\\n")
    >>> gate("reports/example", config=budget)
    <GateResult of .../chunkscope.toml: 1 of 2 failed>
    """
    file = find_budget(Path(config) if config is not None else None)
    return judge(file, load_findings(Path(folder)))


def judge(file: BudgetFile, findings: Findings) -> GateResult:
    """A gate that checks nothing must not look like one that found nothing wrong."""
    evidence = Evidence(findings=findings, folder=file.path.parent)
    budget = {table: getattr(file.budget, table) for table in CHECKS}
    results = {t: list(CHECKS[t](limits, evidence)) for t, limits in budget.items() if limits}
    if not results or not all(results.values()):
        empty = [
            f"[{'.'.join((*file.prefix, table))}] in " for table in results if not results[table]
        ]
        what = f"{''.join(empty[:1])}{file.path} asks for nothing"
        raise InputError(what, hint=f"{HINT}; the tables are {', '.join(CHECKS)}")
    checks = [check for some in results.values() for check in some]
    return GateResult(
        budget=file.path,
        folder=findings.folder,
        checks=tuple(_with_remedies(checks, file, evidence)),
        digests=findings.digests,
        text=file.text,
    )


# -- what to do about a check that failed ----------------------------------------------------------

# Options of how a command printed, and of samples: a sample that is doubted is not taken once more.
_NOT_AGAIN = re.compile(r" --(?:sample|seed|emit)[= ]\S+| --(?:check|json|anyway)(?= |$)")
# The artefact that a check rests on, by how its name begins.
_RESTS_ON = {
    "analyze": ("freshness.data", "data.", "drift."),
    "recommend": (
        *("freshness.plan", "memory.predicted.", "slo.", "settings.equal", "settings.as-good"),
    ),
    "verify": ("freshness.verification", "memory.measured.", "speed.", "outputs."),
}


def _with_remedies(
    checks: Sequence[Check], file: BudgetFile, evidence: Evidence
) -> Iterator[Check]:
    """A plan of other data fails much at once: that is one cause, and all else follows from it."""
    commands = _commands(evidence.findings)
    causes = _causes(checks, evidence.findings)
    for check in checks:
        stale = [name for name in causes if check.name.startswith(_RESTS_ON[name])]
        if check.passed:
            yield check
        elif stale:
            yield replace(check, cause=causes[stale[0]], remedy=commands[stale[0]])
        else:
            yield replace(check, remedy=_accepting(check, file, evidence, commands))


def _commands(findings: Findings) -> dict[str, str]:
    """What makes each artefact anew, as it was typed where the artefact knows it."""
    profile, plan, measured = findings.profile, findings.plan, findings.verification
    typed = {
        "analyze data/": profile.command if profile else (),
        "recommend": plan.source.command if plan else (),
        "verify": measured.command if measured else (),
    }
    return {
        usual.split()[0]: _NOT_AGAIN.sub("", shlex.join(words or ("chunkscope", *usual.split())))
        for usual, words in typed.items()
    }


def _causes(checks: Sequence[Check], findings: Findings) -> dict[str, Note]:
    """By the command that would mend it, what is stale."""
    causes: dict[str, Note] = {}
    folder, measured = findings.folder, findings.verification
    profile, plan, verify = (str(folder / f"{x}.json") for x in ("profile", "plan", "verify"))
    changed = [c.subject for c in checks if c.name == "freshness.data" and not c.passed]
    if changed:
        causes["analyze"] = note("gate_data_changed", profile=profile, names=changed)
    if findings.plan_is_of_this_profile is False:
        causes["recommend"] = note("gate_other_profile", plan=plan, profile=profile)
    if findings.verification_is_of_this_plan is False and measured and measured.plan_digest:
        causes["verify"] = note("gate_other_plan", verify=verify, plan=plan)
    return causes


def _accepting(check: Check, file: BudgetFile, evidence: Evidence, commands: dict[str, str]) -> str:
    """What makes the state of today the one that is asked for."""
    budget, folder = file.budget, evidence.findings.folder
    if check.of_a_part or check.name == "freshness.data":
        return commands["analyze"]
    if check.table == "drift":
        return shlex.join(
            ["cp", str(folder / "profile.json"), str(evidence.path(budget.drift.baseline))]
        )
    if check.name in ("settings.allow", "data.datasets"):
        return ""  # a line for a person to write
    if check.table == "settings":
        path = evidence.path(budget.settings.file)
        usual = "vllm-yaml" if path.suffix in (".yaml", ".yml") else "vllm-args"
        form = budget.settings.form or usual
        return f"{commands['recommend']} --emit {form} > {shlex.quote(str(path))}"
    if check.table in ("freshness", "slo"):
        return commands["verify" if check.name.endswith("verification") else "recommend"]
    where = [] if folder == DEFAULT_FOLDER else [str(folder)]
    where += [] if file.path == BUDGET else ["--config", str(file.path)]
    return shlex.join(["chunkscope", "gate", "--update", *where])
