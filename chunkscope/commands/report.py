"""`chunkscope report`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.commands.options import REPORTS, argument, options
from chunkscope.errors import UsageError

if TYPE_CHECKING:
    from chunkscope.findings import Findings
    from chunkscope.report.comparison import ReportComparison


class ReportFormat(StrEnum):
    HTML = "html"
    MD = "md"
    TEXT = "text"


OPTIONS = options("""
Input:
  --compare OLD     Show what changed since OLD.
Output:
  --format          [default: html; with --compare: text; or as --output's name ends]
  --output -o FILE  [default: report.html in FOLDER; md and JSON go to stdout]
""")


def report(
    folder: Annotated[
        Path, argument("[FOLDER]", "Where the results are. [default: reports]")
    ] = REPORTS,
    compare: Annotated[Path | None, OPTIONS["compare"]] = None,
    form: Annotated[ReportFormat | None, OPTIONS["format"]] = None,
    as_json: shared.Json = False,
    output: Annotated[Path | None, OPTIONS["output"]] = None,
    details: shared.Details = False,
) -> None:
    """Make one HTML page of all results, or compare two folders.

    Example: chunkscope report reports/
    """
    from chunkscope.findings import load_findings
    from chunkscope.report.comparison import compare as changes

    findings = load_findings(folder)
    comparison = changes(load_findings(compare), findings) if compare is not None else None
    suffix = output.suffix.removeprefix(".").lower() if output else ""
    if as_json or (form is None and suffix == "json"):
        if form is not None:
            raise UsageError("--json and --format exclude each other", hint="use one of them")
        from chunkscope.artefacts.codec import dump

        return _deliver(dump((comparison or findings).to_json()), output)
    named = ReportFormat(suffix) if suffix in ("html", "md") else None
    form = form or named or (ReportFormat.TEXT if comparison else ReportFormat.HTML)
    if form is ReportFormat.TEXT and output is not None:
        raise UsageError("--format text goes to the terminal", hint="leave --output out")
    if form is not ReportFormat.MD:
        shared.show(comparison or findings, details=details)
    if form is ReportFormat.TEXT:
        return None
    output = output or (folder / "report.html" if form is ReportFormat.HTML else None)
    return _deliver(_rendered(form, findings, comparison), output)


def _rendered(
    form: ReportFormat, findings: "Findings", comparison: "ReportComparison | None"
) -> bytes:
    if form is ReportFormat.HTML:
        from chunkscope.report.page import render

        return render(findings, comparison)
    from chunkscope.report.markdown import markdown

    return markdown(comparison or findings).encode()


def _deliver(data: bytes, output: Path | None) -> None:
    from chunkscope.artefacts.codec import write_atomically

    if output is None:
        return console.emit(data)
    write_atomically(output, data)
    after = "; next: open it in a browser" if output.suffix == ".html" else ""
    return console.say(f"\nwrote {output} ({len(data) / 1e6:.1f} MB){after}")
