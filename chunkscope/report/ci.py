"""The gate's verdict for CI: annotations of GitHub Actions, JUnit XML."""

import os
import re
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from chunkscope.errors import ChunkscopeError
from chunkscope.gating.check import Check, GateResult
from chunkscope.report.gate import answer, outcome, remedy

# XML allows no other characters, even escaped: control characters above all.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# -- GitHub Actions --------------------------------------------------------------------


def annotations(result: GateResult) -> str:
    """A workflow command for each check that fails; a notice where none does."""
    lines = []
    for check in result.failed:
        text = "\n".join((outcome(check), *remedy([check])))
        lines.append(_error(check.title, text, result.budget, result.line_of(check)))
    if not lines:
        lines.append(f"::notice title=chunkscope gate::{_escaped(answer(result))}")
    return "\n".join(lines) + "\n"


def error_annotation(error: ChunkscopeError, budget: Path) -> str:
    """An annotation for a gate that could not judge."""
    text = error.message
    if error.hint:
        text += f"\nhint: {error.hint}"
    return _error("chunkscope gate cannot judge", text, budget) + "\n"


def _error(title: str, message: str, budget: Path, line: int | None = None) -> str:
    properties = []
    if budget.exists():
        top = os.environ.get("GITHUB_WORKSPACE") or "."  # paths are as seen from there
        file = Path(os.path.relpath(budget, top)).as_posix()
        properties.append(f"file={_escaped_property(file)}")
    if line:
        properties.append(f"line={line}")
    properties.append(f"title={_escaped_property(title)}")
    return f"::error {','.join(properties)}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


# -- JUnit -----------------------------------------------------------------------------


def junit(result: GateResult) -> bytes:
    """Each check is a test case."""
    counts = {"tests": str(len(result.checks)), "failures": str(len(result.failed))}
    root = Element("testsuites", counts)
    time = result.created[:19]
    suite = SubElement(root, "testsuite", counts, name="gate", timestamp=time)
    for check in result.checks:
        _add_case(suite, check)
    indent(root)
    written: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _add_case(suite: Element, check: Check) -> None:
    name = _xml(check.title)
    case = SubElement(suite, "testcase", name=name, classname="chunkscope.gate")
    text = _xml(outcome(check))
    if check.passed:
        SubElement(case, "system-out").text = text
        return
    failed = SubElement(case, "failure", type="failed", message=text)
    failed.text = _xml("\n".join(remedy([check])))


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
