"""`gate`: artefacts x budget -> checks, passed or failed, and what to do about the latter."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.files import read_text
from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError
from chunkscope.findings import DEFAULT_FOLDER, Findings, load_findings
from chunkscope.gating import checks as tables
from chunkscope.gating.budget import BUDGET, HINT, TABLES, BudgetFile, find_budget
from chunkscope.gating.check import Check, GateResult
from chunkscope.gating.checks import Evidence
from chunkscope.gating.read_arguments import form_of
from chunkscope.gating.settings import check_settings

CHECKS: dict[str, Callable[[Any, Evidence], Iterator[Check]]] = {
    name: check_settings if name == "settings" else getattr(tables, f"check_{name}")
    for name in TABLES
}


def gate(
    folder: str | Path = DEFAULT_FOLDER, *, config: str | Path | None = None
) -> GateResult:
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
    results = {
        t: list(CHECKS[t](limits, evidence)) for t, limits in budget.items() if limits
    }
    if not results or not all(results.values()):
        empty = [
            ".".join((*file.prefix, table)) for table in results if not results[table]
        ]
        where = f"[{empty[0]}] in {file.path}" if empty else file.path
        raise InputError(
            f"{where} checks nothing", hint=f"{HINT}; tables: {', '.join(CHECKS)}"
        )
    checks = [check for some in results.values() for check in some]
    return GateResult(
        budget=file.path,
        folder=findings.folder,
        checks=tuple(_with_remedies(checks, file, evidence)),
        digests=findings.digests,
        text=file.text,
    )


# Options of how a command printed, and of samples: a sample that is doubted is not taken once more.
_NOT_AGAIN = re.compile(
    r" --(?:sample|seed|emit)[= ]\S+| --(?:check|json|anyway)(?= |$)"
)
# The artefact that a check rests on, by how its name begins.
_RESTS_ON = {
    "analyze": ("freshness.data", "data.", "drift."),
    "recommend": (
        "freshness.plan",
        "memory.predicted.",
        "slo.",
        "settings.equal",
        "settings.as",
    ),
    "verify": ("freshness.verification", "memory.measured.", "speed.", "outputs."),
}


def _with_remedies(
    checks: Sequence[Check], file: BudgetFile, evidence: Evidence
) -> Iterator[Check]:
    """A plan of other data fails much at once: that is one cause, and all else follows from it."""
    findings = evidence.findings
    commands, causes = commands_of(findings), stale(findings)
    if changed := [
        c.subject for c in checks if c.name == "freshness.data" and not c.passed
    ]:
        profile = str(findings.folder / "profile.json")
        causes["analyze"] = note("gate_data_changed", profile=profile, names=changed)
    for check in checks:
        made_by = next(
            (x for x, names in _RESTS_ON.items() if check.name.startswith(names)), ""
        )
        unknown = (
            check.value is None and check.reason is None and check.table != "settings"
        )
        if check.passed:
            yield replace(check, cause=causes.get(made_by))
        elif made_by in causes or check.of_a_part or unknown:
            yield replace(
                check, cause=causes.get(made_by, check.cause), remedy=commands[made_by]
            )
        else:
            yield replace(check, remedy=_accepting(check, file, evidence, commands))


def commands_of(findings: Findings) -> dict[str, str]:
    """What makes each artefact anew, as it was typed where the artefact knows it."""
    typed = {
        "analyze data/": findings.profile and findings.profile.command,
        "recommend": findings.plan and findings.plan.source.command,
        "verify": findings.verification and findings.verification.command,
    }
    return {
        usual.split()[0]: _NOT_AGAIN.sub(
            "", shlex.join(words or ("chunkscope", *usual.split()))
        )
        for usual, words in typed.items()
    }


def stale(findings: Findings) -> dict[str, Note]:
    """Artefacts that were made from others than are there, by the command that makes them anew."""
    belongs = {
        ("recommend", "plan.json", "profile.json"): findings.plan_is_of_this_profile,
        ("verify", "verify.json", "plan.json"): findings.verification_is_of_this_plan,
        (
            "simulate",
            "simulation.json",
            "profile.json",
        ): findings.simulation_is_of_this_profile,
    }
    return {
        command: note(
            "made_from_another", file=str(findings.folder / file), source=source
        )
        for (command, file, source), is_of_it in belongs.items()
        if is_of_it is False
    }


def _accepting(
    check: Check, file: BudgetFile, evidence: Evidence, commands: dict[str, str]
) -> str:
    """What makes the state of today the one that is asked for."""
    budget, folder = file.budget, evidence.findings.folder
    if check.table == "drift":
        baseline = str(evidence.path(budget.drift.baseline))
        return shlex.join(["cp", str(folder / "profile.json"), baseline])
    if check.table == "settings" and check.name != "settings.allow":
        path, form = evidence.path(budget.settings.file), budget.settings.form
        form = form or form_of(path, read_text(path, hint=HINT))
        into = (
            f" > {shlex.quote(str(path))}" if form == "vllm-yaml" else ""
        )  # no script is lost
        return f"{commands['recommend']} --emit {form}{into}"
    by_hand = (
        check.table in ("settings", "doctor") or check.name == "data.max_model_len"
    )
    if by_hand or check.value is None:
        return ""  # a line for a person to write, or the reason says how to know it
    where = [] if folder == DEFAULT_FOLDER else [str(folder)]
    where += [] if file.path == BUDGET else ["--config", str(file.path)]
    return shlex.join(["chunkscope", "gate", "--update", *where])
