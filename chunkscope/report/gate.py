"""A gate's verdicts as sections: what fails, with both numbers and the way out; then all checks."""

from collections import Counter
from collections.abc import Sequence

from chunkscope.gating.verdict import GateResult, Verdict
from chunkscope.lengths.profile import ALL
from chunkscope.report.section import Cell, Column, Section, Table, figures
from chunkscope.report.words import gate as words

MOST_BROKEN = 30  # of those that fail, in the short answer


def sections(result: GateResult) -> list[Section]:
    broken = result.broken
    return [
        Section(
            sentences=(words.answer(result),),
            table=_table(broken[:MOST_BROKEN]) if broken else _summary(result),
            notes=result.notes,
        ),
        *remedies(result),
        Section(title="Every check", table=_table(result.verdicts, marked=True), details=True),
    ]


def remedies(result: GateResult) -> list[Section]:
    """Why checks fail together, and the command that accepts what was found."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in sorted(result.broken, key=lambda verdict: not verdict.because):
        command = "" if verdict.because else verdict.if_intended
        groups.setdefault((verdict.because, command), []).append(verdict)
    return [Section(sentences=tuple(words.remedy(group))) for group in groups.values()]


def _summary(result: GateResult) -> Table:
    counts = Counter(verdict.promise.partition(".")[0] for verdict in result.verdicts)
    rows = tuple((name, f"{count:,}") for name, count in counts.items())
    return Table(columns=figures("table", "checks"), rows=rows)


def _table(verdicts: Sequence[Verdict], *, marked: bool = False) -> Table:
    headings = (*(("",) if marked else ()), "check", "of", "limit", "found")
    rows = []
    for verdict in verdicts:
        mark = Cell(text="ok") if verdict.kept else Cell(text="FAIL", look="bad")
        subject = "" if verdict.subject == ALL else verdict.subject
        cells = (verdict.promise, subject, verdict.promised, words.found(verdict))
        rows.append((mark, *cells) if marked else cells)
    columns = tuple(Column(heading=heading, right=False) for heading in headings)
    return Table(columns=columns, rows=tuple(rows))
