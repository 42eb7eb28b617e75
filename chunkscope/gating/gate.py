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
    """Check the results in `folder` against the limits of a budget file.

    Failed checks are in the result; what cannot be judged at all is an InputError.

    >>> from tempfile import mkdtemp
    >>> budget = Path(mkdtemp()) / "chunkscope.toml"
    >>> _ = budget.write_text("[gate.data]\\nlongest_prompt = '24K'\\np95 = 2000\\n")
    >>> [check.name for check in gate("reports/example", config=budget).failed]
    ['data.p95']
    """
    file = find_budget(Path(config) if config is not None else None)
    return judge(file, load_findings(Path(folder)))


def judge(file: BudgetFile, findings: Findings) -> GateResult:
    """A gate that checks nothing must not look like one that found nothing wrong."""
    evidence = Evidence(findings=findings, folder=file.path.parent)
    budget = {table: getattr(file.budget, table) for table in CHECKS}
    results = {t: list(CHECKS[t](limits, evidence)) for t, limits in budget.items() if limits}
    if not results or not all(results.values()):
        empty = [".".join((*file.prefix, table)) for table in results if not results[table]]
        where = f"[{empty[0]}] in {file.path}" if empty else file.path
        what = f"{where} checks nothing"
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
    "recommend": ("freshness.plan", "memory.predicted.", "slo.", "settings.equal", "settings.as"),
    "verify": ("freshness.verification", "memory.measured.", "speed.", "outputs."),
}


def _with_remedies(
    checks: Sequence[Check], file: BudgetFile, evidence: Evidence
) -> Iterator[Check]:
    """A plan of other data fails much at once: that is one cause, and all else follows from it."""
    findings = evidence.findings
    commands, causes = _commands(findings), stale(findings)
    if changed := [c.subject for c in checks if c.name == "freshness.data" and not c.passed]:
        profile = str(findings.folder / "profile.json")
        causes["analyze"] = note("gate_data_changed", profile=profile, names=changed)
    for check in checks:
        remaking = [name for name in causes if check.name.startswith(_RESTS_ON.get(name, ()))]
        if check.passed:
            yield check
        elif remaking:
            yield replace(check, cause=causes[remaking[0]], remedy=commands[remaking[0]])
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


def stale(findings: Findings) -> dict[str, Note]:
    """Artefacts that were made from others than are there, by the command that makes them anew."""
    belongs = {
        ("recommend", "plan.json", "profile.json"): findings.plan_is_of_this_profile,
        ("verify", "verify.json", "plan.json"): findings.verification_is_of_this_plan,
        ("simulate", "simulation.json", "profile.json"): findings.simulation_is_of_this_profile,
    }
    return {
        command: note("made_from_another", file=str(findings.folder / file), source=source)
        for (command, file, source), is_of_it in belongs.items()
        if is_of_it is False
    }


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
