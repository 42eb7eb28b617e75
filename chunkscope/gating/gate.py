"""`gate`: artefacts x budget -> checks, passed or failed, and how to mend them."""

from collections.abc import Iterator
from pathlib import Path

from chunkscope.errors import InputError
from chunkscope.findings import DEFAULT_FOLDER, Findings, load_findings
from chunkscope.gating.budget import (
    HINT,
    Budget,
    BudgetFile,
    find_budget,
    gate_table,
)
from chunkscope.gating.check import Check, GateResult
from chunkscope.gating.evidence import Evidence
from chunkscope.gating.figures import (
    check_doctor,
    check_memory,
    check_outputs,
    check_slo,
    check_speed,
)
from chunkscope.gating.freshness import check_freshness
from chunkscope.gating.lengths import check_data, check_drift
from chunkscope.gating.remedies import with_remedies
from chunkscope.gating.settings import check_settings


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
    """The checks of a budget, in its tables' order.

    A gate that checks nothing must not look like one that found nothing wrong.
    """
    evidence = Evidence(findings=findings, folder=file.path.parent)
    checks = list(all_checks(file.budget, evidence))
    checked = {check.table for check in checks}
    for table in Budget.model_fields:
        if table in file.budget.model_fields_set and table not in checked:
            where = f"[{gate_table(file.path)}.{table}] in {file.path}"
            raise _checks_nothing(where)
    if not checks:
        raise _checks_nothing(str(file.path))
    return GateResult(
        budget=file.path,
        folder=findings.folder,
        checks=with_remedies(checks, file, findings),
        digests=findings.digests,
        text=file.text,
    )


def _checks_nothing(where: str) -> InputError:
    hint = f"{HINT}; tables: {', '.join(Budget.model_fields)}"
    return InputError(f"{where} checks nothing", hint=hint)


def all_checks(budget: Budget, evidence: Evidence) -> Iterator[Check]:
    """The checks of the tables that the budget has."""
    if budget.data:
        yield from check_data(budget.data, evidence)
    if budget.drift:
        yield from check_drift(budget.drift, evidence)
    if budget.settings:
        yield from check_settings(budget.settings, evidence)
    if budget.memory:
        yield from check_memory(budget.memory, evidence)
    if budget.slo:
        yield from check_slo(budget.slo, evidence)
    if budget.speed:
        yield from check_speed(budget.speed, evidence)
    if budget.outputs:
        yield from check_outputs(budget.outputs, evidence)
    if budget.doctor:
        yield from check_doctor(budget.doctor, evidence)
    if budget.freshness:
        yield from check_freshness(budget.freshness, evidence)
