"""The report as one HTML file that needs nothing else: no network, no server."""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from chunkscope._version import __version__
from chunkscope.console import NO_BREAK
from chunkscope.findings import Findings
from chunkscope.report.folder import ReportComparison, arguments, chapters, first_screen
from chunkscope.report.terminal import unbroken
from chunkscope.report.words.folder import GLOSSARY

HERE = Path(__file__).parent
# Observable Plot draws the charts; d3 is what it is made of. Both as published, both ISC.
LIBRARIES = (("d3.min.js", "d3.LICENSE"), ("plot.umd.min.js", "plot.LICENSE"))
# The page's own scripts, joined in one scope.
OWN = ("draw.js", "lengths.js", "measured.js", "buttons.js", "start.js")
LONG = re.compile(r"\w{20,}")  # a name that may be broken, at an underscore
WHOLE = re.compile(
    r"--\w[\w-]*|\d{4}-\d\d-\d\d"
)  # options and dates: a line has all of it


def render(findings: Findings, comparison: ReportComparison | None = None) -> bytes:
    """The same artefacts give the same bytes."""
    parts = chapters(findings, comparison)
    # The libraries under their licences, then the page's own.
    libraries = (
        f"/*\n{_text('vendor', terms)}*/\n{_text('vendor', x)}"
        for x, terms in LIBRARIES
    )
    ours = "\n".join(_text("scripts", name) for name in OWN)
    scripts = (*libraries, f'"use strict";\n(() => {{\n{ours}}})();\n')
    template = _templates().get_template("page.html.j2")
    html = template.render(
        first=first_screen(findings),
        arguments=arguments(findings),
        chapters=parts,
        glossary=GLOSSARY,
        version=__version__,
        csp=_policy(scripts),
        css=_text("report.css"),
        data={
            s.chart.name: s.chart.data
            for part in parts
            for s in part.sections
            if s.chart
        },
        scripts=scripts,
    )
    return html.lstrip().encode()


def _text(*names: str) -> str:
    return HERE.joinpath(*names).read_text(encoding="utf-8")


def _policy(scripts: tuple[str, ...]) -> str:
    """Nothing may be loaded, and only these very scripts may run."""
    digests = (
        base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts
    )
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,  # names and texts come from strangers' data
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["nobreak"] = nobreak
    return templates


def nobreak(words: str) -> Markup:
    """A number and its unit, an option, a date stay on one line; backticks are for terminals.

    >>> str(nobreak("1.04 s with `--tp <2>`"))
    '1.04\\xa0s with <span class="whole">--tp</span> &lt;2&gt;'
    """
    safe = escape(unbroken(words).replace(NO_BREAK, "\xa0").replace("`", ""))
    parts = LONG.sub(lambda name: name[0].replace("_", "_<wbr>"), str(safe))
    return Markup(WHOLE.sub(r'<span class="whole">\g<0></span>', parts))  # noqa: S704
