"""`chunkscope report`."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chunkscope import console
from chunkscope.commands.options import REPORTS
from chunkscope.errors import UsageError

if TYPE_CHECKING:
    from chunkscope.findings import Findings
    from chunkscope.report.comparison import Comparison

PAGE = "report.html"


class ReportFormat(StrEnum):
    HTML = "html"
    MD = "md"
    JSON = "json"
    TABLE = "table"  # on the terminal, and nothing else


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Where the artefacts are.")
    ] = REPORTS,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="OLD", help="Show what changed from the artefacts in OLD to FOLDER's."
        ),
    ] = None,
    form: Annotated[
        ReportFormat | None,
        typer.Option(
            "--format", help="[default: html; with --compare: table; or as --output's name ends]"
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="[default: report.html in FOLDER; md and json go to stdout]",
        ),
    ] = None,
) -> None:
    """Make one HTML page of all results, or compare two runs.

    Example: chunkscope report reports/
    """
    from chunkscope.findings import load_findings
    from chunkscope.report.comparison import compare as changes

    findings = load_findings(folder)
    comparison = changes(load_findings(compare), findings) if compare is not None else None
    form = form or _form_of(output) or _usual(comparison)
    if form is ReportFormat.TABLE and output is not None:
        raise UsageError("--format table goes to the terminal", hint="leave --output out")
    if form in (ReportFormat.HTML, ReportFormat.TABLE):
        _show(findings, comparison)
    if form is ReportFormat.TABLE:
        return
    if form is ReportFormat.HTML:
        output = output or folder / PAGE
    _deliver(_made(form, findings, comparison), output, form, folder)


def _form_of(output: Path | None) -> ReportFormat | None:
    """By how the file's name ends: `-o report.md` needs no --format."""
    suffix = output.suffix.removeprefix(".").lower() if output else ""
    return ReportFormat(suffix) if suffix in ("html", "md", "json") else None


def _usual(comparison: "Comparison | None") -> ReportFormat:
    return ReportFormat.HTML if comparison is None else ReportFormat.TABLE


def _made(form: ReportFormat, findings: "Findings", comparison: "Comparison | None") -> bytes:
    if form is ReportFormat.HTML:
        from chunkscope.report.page import render

        return render(findings, comparison)
    if form is ReportFormat.JSON:
        from chunkscope.artefacts.codec import dump

        return dump((comparison or findings).to_json())
    from chunkscope.report.markdown import as_markdown, comparison_as_markdown

    shown = as_markdown(findings) if comparison is None else comparison_as_markdown(comparison)
    return shown.encode()


def _show(findings: "Findings", comparison: "Comparison | None") -> None:
    from chunkscope.report.terminal.findings import show_comparison, show_findings

    if comparison is not None:
        console.show(lambda out: show_comparison(comparison, out))
    else:
        console.show(lambda out: show_findings(findings, out))


def _deliver(data: bytes, output: Path | None, form: ReportFormat, folder: Path) -> None:
    from chunkscope.artefacts.codec import write_atomically

    if output is None:
        console.emit(data)
        return
    write_atomically(output, data)
    gate = "chunkscope gate" if folder == REPORTS else f"chunkscope gate {shlex.quote(str(folder))}"
    after = "open it in a browser" if form is ReportFormat.HTML else gate
    console.say(f"\nwrote {output} ({len(data) / 1e6:.1f} MB); next: {after}")
