"""A gate's result as sections: how many checks failed, all of them in a table, what to do."""

from collections.abc import Sequence

from chunkscope.artefacts.numbers import plural
from chunkscope.gating.check import Check, GateResult
from chunkscope.lengths.profile import ALL
from chunkscope.report.section import Cell, Column, Section, Table
from chunkscope.report.words import gate as words
from chunkscope.report.words import sentence


def sections(result: GateResult) -> list[Section]:
    first = f"{words.headline(result)}, by {result.budget}."
    first = first[0].upper() + first[1:]
    return [
        Section(sentences=(first,), table=checks_table(result), notes=notes(result)),
        *failures(result),
    ]


def notes(result: GateResult) -> tuple[str, ...]:
    return tuple(map(sentence, result.notes))


def checks_table(result: GateResult) -> Table:
    """What failed, each; what passed, where a name has several subjects, in one row."""
    columns = tuple(Column(heading=h, right=False) for h in ("", "check", "asked for", "found"))
    rows: list[Sequence[Cell | str]] = [_row(check) for check in result.failed]
    passed = [check for check in result.checks if check.passed]
    for name in dict.fromkeys(check.name for check in passed):
        checks = [check for check in passed if check.name == name]
        limit, count = words.limit_text(checks[0]), plural(len(checks), "subject")
        mark = Cell(text="passed", look="good")
        rows.append(_row(checks[0]) if len(checks) == 1 else (mark, name, limit, count))
    return Table(columns=columns, rows=tuple(rows))


def _row(check: Check) -> tuple[Cell | str, ...]:
    mark = Cell(text="passed", look="good") if check.passed else Cell(text="FAILED", look="bad")
    label = check.name if check.subject == ALL else f"{check.name}: {check.subject}"
    return mark, label, words.limit_text(check), words.value_text(check)


def failures(result: GateResult) -> list[Section]:
    """By what they rest on, else by the command that accepts them; a stale artefact first."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in sorted(result.failed, key=lambda check: check.cause is None):
        cause = sentence(check.cause) if check.cause else ""
        groups.setdefault((cause, "" if cause else check.remedy), []).append(check)
    return [
        Section(
            sentences=(
                *([f"{cause}. So these fail:"] if cause else []),
                *(f"{check.title}: {words.full_text(check)}" for check in checks),
                *([words.remedy_text(checks[0])] if checks[0].remedy else []),
            )
        )
        for (cause, _), checks in groups.items()
    ]
