"""The report as one HTML file that needs nothing else: no network, no server."""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from chunkscope.artefacts.numbers import as_written, number, per_second, seconds, spaced
from chunkscope.findings import Findings
from chunkscope.report.comparison import Comparison
from chunkscope.report.page.charts import charts
from chunkscope.report.page.view import view
from chunkscope.report.tradeoff import tradeoff
from chunkscope.vllm.settings import Value

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
# Observable Plot draws the charts; d3 is what it is made of. Both as published, both ISC.
LIBRARIES = (("d3.min.js", "d3.LICENSE"), ("plot.umd.min.js", "plot.LICENSE"))
# The page's own, one after the other in a scope of their own.
OWN = (
    *("draw.js", "lengths.js", "reuse.js", "memory.js"),
    *("curves.js", "measured.js", "simulated.js", "engines.js"),
    *("table.js", "buttons.js", "start.js"),
)
# In JSON these can only stand inside strings; there, a browser must not take them for markup.
UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render(findings: Findings, comparison: Comparison | None = None) -> bytes:
    """The same artefacts give the same bytes."""
    found = tradeoff(findings)
    before = comparison.comparable_profile if comparison else None
    data = embedded(charts(findings, found, before=before))
    scripts = _scripts()
    page = _templates().get_template("page.html.j2")
    html = page.render(
        **view(findings, found, comparison),
        csp=_policy(scripts),
        css=(HERE / "report.css").read_text(encoding="utf-8"),
        data=data,
        scripts=scripts,
    )
    return html.encode()


def embedded(data: dict[str, Any]) -> str:
    """JSON that cannot end its script element.

    >>> embedded({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    return orjson.dumps(data).decode().translate(UNSAFE)


@cache
def _scripts() -> tuple[str, ...]:
    """The libraries under their licences, then the page's own."""
    vendor = HERE / "vendor"
    made = []
    for script, licence in LIBRARIES:
        terms = (vendor / licence).read_text(encoding="utf-8")
        made.append(f"/*\n{terms}*/\n{(vendor / script).read_text(encoding='utf-8')}")
    own = "\n".join((HERE / "scripts" / name).read_text(encoding="utf-8") for name in OWN)
    return (*made, f'"use strict";\n(() => {{\n{own}}})();\n')


def _policy(scripts: tuple[str, ...]) -> str:
    """Nothing may be loaded, and only these very scripts may run."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,  # names and texts come from strangers' data
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number, "setting": _setting, "nobreak": nobreak}
    made.globals |= {"number": number, "per_second": per_second, "seconds": seconds}
    return made


def nobreak(words: str) -> str:
    """A number and its unit stay on one line.

    >>> nobreak("takes 1.04 s (-67 %)")
    'takes 1.04\\xa0s (-67\\xa0%)'
    """
    return re.sub(r"(?<=\d) (?=(?:%|m?s|GiB)(?!\w))", "\xa0", spaced(words))


def _setting(value: Value | None) -> str:
    return "not known" if value is None else as_written(value)
