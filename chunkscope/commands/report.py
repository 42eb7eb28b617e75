"""`chunkscope report`."""

from pathlib import Path

from chunkscope import console
from chunkscope.commands.options import REPORTS, Given, check_format, command, show
from chunkscope.errors import UsageError


@command("""
Arguments:
  [FOLDER]             Where the results are, or were. [default: reports]
  [NEW]                Another folder: show what changed from the first one to it.
Output:
  --format html|md|text  [default: html; of two folders: text; or as --output's name ends]
  --json
  --output -o FILE     [default: report.html in the folder; md and JSON go to stdout]
  --details
""")
def report(given: Given) -> None:
    """Make one HTML page of all results, or compare two folders.

    Example: chunkscope report reports/
    """
    from chunkscope.findings import load_findings
    from chunkscope.report.comparison import compare
    from chunkscope.report.markdown import markdown
    from chunkscope.report.page import render

    check_format(given)
    findings = load_findings(given.new or given.folder or REPORTS)
    comparison = compare(load_findings(given.folder), findings) if given.new else None
    output: Path | None = given.output
    suffix = output.suffix.removeprefix(".").lower() if output else ""
    usual = suffix if suffix in ("html", "md") else "text" if comparison else "html"
    form = given.format or usual
    shown = comparison or findings
    if given.json or (given.format is None and suffix == "json"):
        from chunkscope.artefacts.codec import dump

        _deliver(dump(shown.to_json()), output)
    elif form == "md":
        _deliver(markdown(shown).encode(), output)
    elif form == "text" and output is not None:
        raise UsageError("--format text goes to the terminal", hint="leave --output out")
    else:
        show(shown, Given(details=given.details))
        if form == "html":
            _deliver(render(findings, comparison), output or findings.folder / "report.html")


def _deliver(data: bytes, output: Path | None) -> None:
    from chunkscope.artefacts.codec import write_atomically

    if output is None:
        return console.emit(data)
    write_atomically(output, data)
    after = "; next: open it in a browser" if output.suffix == ".html" else ""
    return console.say(f"\nwrote {output} ({len(data) / 1e6:.1f} MB){after}")
