"""The report as one HTML file that needs nothing else: no network, no server."""

import base64
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from chunkscope._version import __version__
from chunkscope.findings import Findings
from chunkscope.report.blocks import Headline, filled
from chunkscope.report.folder import GLOSSARY, chapters, first_screen
from chunkscope.report.page.html import PageWriter, nobreak
from chunkscope.report.svg.canvas import page_style

HERE = Path(__file__).parent


def render(findings: Findings) -> bytes:
    """The same artefacts give the same bytes."""
    first, *others = filled(first_screen(findings))
    title = first.text if isinstance(first, Headline) else ""
    parts = []
    for chapter in chapters(findings):
        content = PageWriter(chapter.title).html(chapter.blocks)
        parts.append((chapter.name, chapter.title, content))
    style = f"{_text('report.css')}\n{page_style()}\n"
    script = _text("report.js")
    html = _template().render(
        title=title,
        headline=nobreak(title),
        hero=PageWriter("The answer").html(others),
        chapters=parts,
        glossary=GLOSSARY,
        version=__version__,
        policy=_policy(style, script),
        style=style,
        script=script,
    )
    return html.lstrip().encode()


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, and only this style and this script may be used."""
    return (
        f"default-src 'none'; style-src {_digest(style)}; "
        f"script-src {_digest(script)}; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _template() -> Template:
    templates = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,  # names and texts come from strangers' data
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("page.html.j2")
