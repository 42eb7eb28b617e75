"""A gate's checks as sections: what fails, with both numbers and the way out; then all checks."""

from collections import Counter
from collections.abc import Sequence

from chunkscope.gating.check import Check, GateResult
from chunkscope.lengths.profile import ALL
from chunkscope.report.section import Cell, Column, Section, Table, figures
from chunkscope.report.words import gate as words
from chunkscope.report.words import sentence

MOST_FAILED = 30  # of those that fail, in the short answer


def sections(result: GateResult) -> list[Section]:
    failed = result.failed
    return [
        Section(
            sentences=(words.answer(result),),
            table=_table(failed[:MOST_FAILED]) if failed else _summary(result),
            notes=tuple(map(sentence, result.notes)),
        ),
        *remedies(result),
        Section(title="Every check", table=_table(result.checks, marked=True), details=True),
    ]


def remedies(result: GateResult) -> list[Section]:
    """Why checks fail together, and the command that accepts what was found."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in sorted(result.failed, key=lambda check: check.cause is None):
        cause = sentence(check.cause) if check.cause else ""
        groups.setdefault((cause, "" if cause else check.remedy), []).append(check)
    return [Section(sentences=tuple(words.remedy(group))) for group in groups.values()]


def _summary(result: GateResult) -> Table:
    counts = Counter(check.table for check in result.checks)
    rows = tuple((name, f"{count:,}") for name, count in counts.items())
    return Table(columns=figures("table", "checks"), rows=rows)


def _table(checks: Sequence[Check], *, marked: bool = False) -> Table:
    headings = (*(("",) if marked else ()), "check", "of", "limit", "found")
    rows = []
    for check in checks:
        mark = Cell(text="ok") if check.passed else Cell(text="FAIL", look="bad")
        subject = "" if check.subject == ALL else check.subject
        cells = (check.name, subject, words.limit_text(check), words.found(check))
        rows.append((mark, *cells) if marked else cells)
    columns = tuple(Column(heading=heading, right=False) for heading in headings)
    return Table(columns=columns, rows=tuple(rows))
