"""The gate's checks as sections, and for CI: GitHub's annotations, JUnit XML."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from chunkscope.artefacts.numbers import as_written, plural
from chunkscope.console import printable
from chunkscope.errors import ChunkscopeError
from chunkscope.gating.check import UNITS, Check, GateResult
from chunkscope.lengths.profile import ALL
from chunkscope.report.section import Cell, Section, Table, table_of
from chunkscope.report.words import named, sentence

MOST_FAILED = 30  # of those that fail, in the short answer
VALUES = {  # of a check that compares no numbers
    "same": "the same",
    "new": "not in the profile",
    "this": "it is",
    "another": "made from another",
}
# Everything else, control characters above all, is no XML whichever way it is escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def sections(result: GateResult) -> list[Section]:
    return [
        Section(sentences=(_answer(result),), table=_table(result.failed[:MOST_FAILED])),
        *remedies(result),
        Section(title="Every check", table=_table(result.checks), details=True),
    ]


def remedies(result: GateResult) -> list[Section]:
    """Why checks fail together, and the command that accepts what is there."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in sorted(result.failed, key=lambda check: check.cause is None):
        cause = sentence(check.cause) if check.cause else ""
        groups.setdefault((cause, "" if cause else check.remedy), []).append(check)
    return [Section(sentences=tuple(_remedy(*group))) for group in groups.values()]


def _table(checks: Sequence[Check]) -> Table | None:
    rows = []
    for check in checks:
        title = check.name if check.subject == ALL else check.title
        both = f"limit {texts(check)[0]}, found {value_text(check)}"
        look = "" if check.passed else "bad"
        rows.append((Cell(text=title, look=look), f"{'ok' if check.passed else 'FAIL'}: {both}"))
    return table_of(("check", "result"), rows, words=("result",))


# -- what is said --------------------------------------------------------------------------------


def _answer(result: GateResult) -> str:
    count, failed = len(result.checks), len(result.failed)
    if failed:
        return f"{failed:,} of {plural(count, 'check')} in {result.budget} fail."
    return f"All {plural(count, 'check')} in {result.budget} pass."


def failure(result: GateResult) -> str:
    """The error of a gate that says no."""
    titles = [printable(check.title) for check in result.failed]
    return f"{plural(len(titles), 'check')} failed: {named(titles, 3)}"


def texts(check: Check) -> tuple[str, str]:
    """What the budget asks for and what the artefacts say, by how they stand to each other."""
    limit, value, relation = check.limit, check.value, str(check.relation)
    match relation:
        case "unchanged":
            return "unchanged", VALUES.get(str(value), str(value or "not known"))
        case "made from":
            return f"made from this {limit}", VALUES.get(str(value), "not known")
        case "accepted":
            wanted = f"vLLM {limit} takes it" if limit else "as the plan"
            return wanted, "it does" if check.passed else "it does not"
        case "allowed":
            return "allowed" if check.passed else "left to vLLM", str(value)
        case "equal":
            return _setting(limit), _setting(value)
    numbers = _numbers(check)
    return f"{relation} {numbers[0]}", numbers[1]


def _numbers(check: Check) -> tuple[str, str]:
    """Limit and value; two that differ never look the same."""
    limit, value, unit = check.limit, check.value, UNITS[check.unit]
    if not isinstance(limit, int | float):
        return "", "not known"
    if value is None or isinstance(value, str):
        return unit.brief(limit), "not known"
    if check.relation == "within":
        written = unit.write_both(limit, abs(value))
        return written[0], f"{'+' if value > 0 else '-' if value else ''}{written[1]}"
    return unit.write_both(limit, value)


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "left to vLLM" if value is None else as_written(value)


def value_text(check: Check) -> str:
    """The value, with what is to be said of it."""
    text = texts(check)[1]
    return f"{text} ({sentence(check.reason)})" if check.reason else text


def _both(check: Check) -> str:
    limit, value = texts(check)
    return f"limit {limit}, found {value}"


def _remedy(*checks: Check) -> Iterator[str]:
    first = checks[0]
    if first.cause:
        names = ", ".join(dict.fromkeys(check.name for check in checks))
        yield f"{sentence(first.cause)}. Failing because of that: {names}."
    if first.remedy:
        yield f"If that is intended: {first.remedy}"


# -- GitHub Actions ------------------------------------------------------------------------------


def annotations(result: GateResult) -> str:
    """A workflow command for each check that fails; a notice where none does."""
    lines = [
        _error(
            *(check.title, "\n".join((_both(check), *_remedy(check)))),
            *(result.budget, result.line_of(check)),
        )
        for check in result.failed
    ]
    notice = f"::notice title=chunkscope gate::{_escaped(_answer(result))}"
    return "\n".join(lines or [notice]) + "\n"


def error_annotation(error: ChunkscopeError, budget: Path | None) -> str:
    """Of a gate that could not judge."""
    text = f"{error.message}\nhint: {error.hint}" if error.hint else error.message
    return _error("chunkscope gate cannot judge", text, budget) + "\n"


def _error(title: str, message: str, budget: Path | None, line: int | None = None) -> str:
    top = os.environ.get("GITHUB_WORKSPACE") or "."  # GitHub wants paths as seen from there
    file = Path(os.path.relpath(budget, top)).as_posix() if budget else ""
    properties = {"file": file, "line": str(line or ""), "title": title}
    text = ",".join(
        f"{name}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in properties.items()
        if value
    )
    return f"::error {text}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


# -- JUnit ---------------------------------------------------------------------------------------


def junit(result: GateResult) -> bytes:
    """Each check is a test case."""
    counts = {"tests": str(len(result.checks)), "failures": str(len(result.failed))}
    root = Element("testsuites", counts)
    suite = SubElement(root, "testsuite", counts, name="gate", timestamp=result.created[:19])
    for check in result.checks:
        case = SubElement(suite, "testcase", name=_xml(check.title), classname="chunkscope.gate")
        if check.passed:
            SubElement(case, "system-out").text = _xml(_both(check))
        else:
            failed = SubElement(case, "failure", type="failed", message=_xml(_both(check)))
            failed.text = _xml("\n".join((f"found {value_text(check)}", *_remedy(check))))
    indent(root)
    written: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
