"""`chunkscope report`."""

from pathlib import Path
from typing import Literal

from chunkscope import console
from chunkscope.commands import options as opt
from chunkscope.commands.options import OUTPUT, REPORTS, argument
from chunkscope.errors import UsageError


def report(
    folder: Path = argument(
        "[FOLDER]", "Where the results are, or were. [default: reports]", default=REPORTS
    ),
    new: Path | None = argument(
        "[NEW]", "Another folder: show what changed from the first one to it."
    ),
    form: Literal["html", "md", "text"] | None = OUTPUT(
        "[default: html; of two folders: text; or as --output's name ends]", "--format"
    ),
    json: bool = opt.JSON,
    output: Path | None = opt.output(
        None, "[default: report.html in the folder; md and JSON go to stdout]"
    ),
    details: bool = opt.DETAILS,
) -> None:
    """Make one HTML page of all results, or compare two folders.

    Example: chunkscope report reports/
    """
    from chunkscope.findings import load_findings
    from chunkscope.report.comparison import compare
    from chunkscope.report.markdown import markdown
    from chunkscope.report.page import render

    opt.check_format(form, json=json)
    findings = load_findings(new or folder)
    comparison = compare(load_findings(folder), findings) if new else None
    suffix = output.suffix.removeprefix(".").lower() if output else ""
    usual = suffix if suffix in ("html", "md") else "text" if comparison else "html"
    shown = comparison or findings
    if json or (form is None and suffix == "json"):
        from chunkscope.artefacts.codec import dump

        _deliver(dump(shown.to_json()), output)
    elif (form or usual) == "md":
        _deliver(markdown(shown).encode(), output)
    elif (form or usual) == "text" and output is not None:
        raise UsageError("--format text goes to the terminal", hint="leave --output out")
    else:
        opt.show(shown, details=details)
        if (form or usual) == "html":
            _deliver(render(findings, comparison), output or findings.folder / "report.html")


def _deliver(data: bytes, output: Path | None) -> None:
    from chunkscope.artefacts.files import write_atomically

    if output is None:
        return console.emit(data)
    write_atomically(output, data)
    after = "; next: open it in a browser" if output.suffix == ".html" else ""
    return console.say(f"\nwrote {output} ({len(data) / 1e6:.1f} MB){after}")
