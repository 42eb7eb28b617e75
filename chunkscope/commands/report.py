"""`chunkscope report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands.options import (
    OUTPUT,
    REPORTS,
    Details,
    Json,
    argument,
    option,
    spared,
)
from chunkscope.commands.printing import check_format, say_written, show
from chunkscope.errors import UsageError

if TYPE_CHECKING:
    from chunkscope.findings import Findings

FORMS = {
    ".html": "html",
    ".md": "md",
    ".json": "json",
    ".svg": "svg",
    ".txt": "text",
}


def report(
    folder: Annotated[
        Path, argument("[FOLDER]", "Folder with the results. [default: reports]")
    ] = REPORTS,
    form: Annotated[
        Literal["html", "md", "svg", "text"] | None,
        option(
            OUTPUT,
            "How to show them; svg has the pictures alone. [default: html, or by the "
            "suffix of -o]",
            "--format",
        ),
    ] = None,
    json: Json = False,
    out: Annotated[
        Path | None,
        option(
            OUTPUT,
            "Where to write it. [default: report.html in the folder; md, svg and JSON "
            "go to stdout]",
            "--out",
            "-o",
            metavar="FILE",
            callback=spared,
        ),
    ] = None,
    details: Details = False,
) -> None:
    """Show all results of a folder, as one HTML page.

    Example: chunkscope report reports/
    """
    from chunkscope.findings import load_findings

    check_format(form, json=json)
    kind = form_of(form, out, json=json)
    if kind == "html":
        say_written(api.write_report(folder, out=out))
    elif kind == "text":
        if out is not None:
            raise UsageError(
                "--format text goes to the terminal",
                hint="write -o page.html, or no -o",
            )
        show(load_findings(folder), details=details)
    elif out is None:
        console.emit(document(load_findings(folder), kind))
    else:
        write(document(load_findings(folder), kind), out)


def form_of(form: str | None, out: Path | None, *, json: bool) -> str:
    """What was asked for, else what the suffix of the file says, else a page."""
    if json:
        return "json"
    if form is not None:
        return form
    if out is not None:
        return FORMS.get(out.suffix.lower(), "html")
    return "html"


def document(findings: "Findings", kind: str) -> bytes:
    if kind == "json":
        from chunkscope.artefacts.artefact import PRETTY, dumped

        return dumped(findings.to_json(), PRETTY)
    if kind == "svg":
        from chunkscope.report.folder import folder_pictures
        from chunkscope.report.svg import picture_file

        return picture_file(folder_pictures(findings)).encode()
    from chunkscope.report.markdown import markdown
    from chunkscope.report.show import blocks

    return markdown(blocks(findings)).encode()


def write(data: bytes, out: Path) -> None:
    from chunkscope.artefacts.files import write_atomically

    write_atomically(out, data)
    say_written(out)
