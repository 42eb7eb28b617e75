"""`gate`: artefacts x budget -> verdicts. The function behind the command and the Python API."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError
from chunkscope.findings import DEFAULT_FOLDER, Findings, load_findings
from chunkscope.gating.budget import Budget
from chunkscope.gating.budget_file import HINT, BudgetFile, find_budget
from chunkscope.gating.evidence import Evidence
from chunkscope.gating.promises.data import check_data
from chunkscope.gating.promises.doctor import check_doctor
from chunkscope.gating.promises.drift import check_drift
from chunkscope.gating.promises.freshness import check_freshness
from chunkscope.gating.promises.memory import check_memory
from chunkscope.gating.promises.outputs import check_outputs
from chunkscope.gating.promises.settings import check_settings
from chunkscope.gating.promises.speed import check_speed
from chunkscope.gating.remedies import with_remedies
from chunkscope.gating.verdict import GateResult, Verdict

CHECKS: dict[str, Callable[[Any, Evidence], Iterator[Verdict]]] = {
    "data": check_data,
    "drift": check_drift,
    "settings": check_settings,
    "memory": check_memory,
    "speed": check_speed,
    "outputs": check_outputs,
    "doctor": check_doctor,
    "freshness": check_freshness,
}


def gate(folder: str | Path = DEFAULT_FOLDER, *, config: str | Path | None = None) -> GateResult:
    """Hold the artefacts in `folder` against the promises of a budget file.

    Broken promises are in the result; what cannot be judged at all is an InputError.

    >>> from tempfile import mkdtemp
    >>> budget = Path(mkdtemp()) / "chunkscope.toml"
    >>> _ = budget.write_text("[gate.data]\\nlongest_prompt = '24K'\\np95 = 2000\\n")
    >>> gate("reports/example", config=budget)
    <GateResult of .../chunkscope.toml: 1 of 2 promises broken>
    """
    file = find_budget(Path(config) if config is not None else None)
    return judge(file, load_findings(Path(folder)))


def judge(file: BudgetFile, findings: Findings) -> GateResult:
    return GateResult(
        budget=file.path,
        folder=findings.folder,
        verdicts=tuple(_verdicts(file, findings)),
        digests=findings.digests,
        lines=file.lines(),
        notes=file.notes,
    )


def _verdicts(file: BudgetFile, findings: Findings) -> list[Verdict]:
    budget = file.budget
    evidence = Evidence(
        findings=findings, folder=file.folder, asked_output_tokens=budget.output_tokens
    )
    found: list[Verdict] = []
    for table, check in CHECKS.items():
        if (limits := getattr(budget, table)) is None:
            continue
        verdicts = list(check(limits, evidence))
        if not verdicts:
            raise _nothing(f"[{'.'.join((*file.prefix, table))}] in {file.path}")
        found += verdicts
    if not found:
        raise _nothing(str(file.path))
    return with_remedies(found, file, evidence)


def _nothing(what: str) -> InputError:
    """A gate that checks nothing must not look like one that found nothing wrong."""
    known = ", ".join(name for name in Budget.model_fields if name in CHECKS)
    return InputError(f"{what} promises nothing", hint=f"{HINT}; the tables are {known}")
