"""The gate's checks as sections, and for CI: GitHub's annotations, JUnit XML."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from chunkscope.errors import ChunkscopeError
from chunkscope.gating.check import Check, GateResult
from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.section import Cell, Section, Table, table_of
from chunkscope.report.words import gate, sentence

MOST_FAILED = 30  # of those that fail, in the short answer
# XML allows no other characters, even escaped: control characters above all.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def sections(result: GateResult) -> list[Section]:
    return [
        Section(
            sentences=(gate.answer(result),), table=_table(result.failed[:MOST_FAILED])
        ),
        *remedies(result),
        Section(title="Every check", table=_table(result.checks), details=True),
    ]


def remedies(result: GateResult) -> list[Section]:
    """Why checks fail together, and the command that accepts what is there."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in sorted(result.failed, key=lambda check: check.cause is None):
        cause = sentence(check.cause) if check.cause else ""
        groups.setdefault((cause, "" if cause else check.remedy), []).append(check)
    return [Section(sentences=tuple(gate.remedy(*group))) for group in groups.values()]


def _table(checks: Sequence[Check]) -> Table | None:
    rows = [
        (Cell(text=check.title, look=look), f"{state}: {gate.result(check)}")
        for check in checks
        for state, look in [("ok", "") if check.passed else ("FAIL", "bad")]
    ]
    return table_of(("check", "result"), rows, words=("result",))


# -- GitHub Actions ------------------------------------------------------------------------------


def annotations(result: GateResult) -> str:
    """A workflow command for each check that fails; a notice where none does."""
    lines = []
    for check in result.failed:
        text = "\n".join((gate.result(check), *gate.remedy(check)))
        lines.append(_error(check.title, text, result.budget, result.line_of(check)))
    notice = f"::notice title=chunkscope gate::{_escaped(gate.answer(result))}"
    return "\n".join(lines or [notice]) + "\n"


def error_annotation(error: ChunkscopeError, budget: Path) -> str:
    """An annotation for a gate that could not judge."""
    text = f"{error.message}\nhint: {error.hint}" if error.hint else error.message
    return _error("chunkscope gate cannot judge", text, budget) + "\n"


def _error(title: str, message: str, budget: Path, line: int | None = None) -> str:
    top = (
        os.environ.get("GITHUB_WORKSPACE") or "."
    )  # GitHub wants paths as seen from there
    file = Path(os.path.relpath(budget, top)).as_posix() if budget.exists() else ""
    properties = {"file": file, "line": str(line or ""), "title": title}
    text = ",".join(
        f"{name}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in properties.items()
        if value
    )
    return f"::error {text}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def junit(result: GateResult) -> bytes:
    """Each check is a test case."""
    counts = {"tests": str(len(result.checks)), "failures": str(len(result.failed))}
    root = Element("testsuites", counts)
    suite = SubElement(
        root, "testsuite", counts, name="gate", timestamp=result.created[:19]
    )
    for check in result.checks:
        case = SubElement(
            suite, "testcase", name=_xml(check.title), classname="chunkscope.gate"
        )
        text = _xml(gate.result(check))
        if check.passed:
            SubElement(case, "system-out").text = text
        else:
            failed = SubElement(case, "failure", type="failed", message=text)
            failed.text = _xml("\n".join(gate.remedy(check)))
    indent(root)
    written: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def gate_blocks(artefact: GateResult) -> "list[Block]":
    return blocks_of(sections(artefact))
