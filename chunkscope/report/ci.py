"""The gate's checks for CI: GitHub's annotations and job summary, and JUnit XML."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from chunkscope.errors import ChunkscopeError
from chunkscope.gating.check import Check, GateResult
from chunkscope.report.markdown import table, text
from chunkscope.report.words import gate as words
from chunkscope.report.words import sentence

MOST_ROWS = 500  # a summary over 1 MiB is thrown away as a whole
# Everything else, control characters above all, is no XML whichever way it is escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _lines(check: Check) -> str:
    cause = sentence(check.cause) if check.cause else ""
    return "\n".join(filter(None, (words.full_text(check), cause, words.remedy_text(check))))


# -- GitHub ----------------------------------------------------------------------------------------


def annotations(result: GateResult) -> str:
    """Workflow commands: one per check that failed."""
    if result.passed:
        return f"::notice title=chunkscope gate::{escaped(words.headline(result))}\n"
    errors = [
        _error(check.title, _lines(check), result.budget, result.line_of(check))
        for check in result.failed
    ]
    return "\n".join(errors) + "\n"


def error_annotation(error: ChunkscopeError, budget: Path | None) -> str:
    """Of a gate that could not judge; the summary says it, too."""
    hint = f"hint: {error.hint}" if error.hint else ""
    lines = "\n".join(filter(None, (error.message, hint)))
    _append(f"### chunkscope gate: cannot be judged\n\n{text(error.message)}\n\n{text(hint)}\n")
    return _error("chunkscope gate cannot judge", lines, budget) + "\n"


def _error(title: str, message: str, budget: Path | None, line: int | None = None) -> str:
    properties = {
        **({"file": _in_repository(budget)} if budget else {}),
        **({"line": str(line)} if line else {}),
        "title": title,
    }
    pairs = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::error {pairs}::{escaped(message)}"


def _in_repository(path: Path) -> str:
    """As GitHub wants it: seen from the top of the checkout."""
    top = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
    whole = path.resolve()
    return whole.relative_to(top).as_posix() if whole.is_relative_to(top) else path.as_posix()


def escaped(message: str) -> str:
    return message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return escaped(value).replace(":", "%3A").replace(",", "%2C")


def summary(result: GateResult) -> str:
    """Markdown: what failed first."""
    ordered = [*result.failed, *(check for check in result.checks if check.passed)]
    rows = [
        ["passed" if c.passed else "**failed**"]
        + [text(x) for x in (c.name, c.subject, words.limit_text(c), words.value_text(c))]
        for c in ordered[:MOST_ROWS]
    ]
    left = len(ordered) - len(rows)
    return "\n".join(
        [
            f"### chunkscope gate: {words.headline(result)}",
            "",
            table(["", "check", "of", "asked for", "found"], rows, left=5),
            *([f"\n... and {left:,} more."] if left else []),
            "",
            *dict.fromkeys(text(_lines(check)) for check in result.failed),
            "",
            f"Budget: {text(str(result.budget))}. Artefacts: {text(str(result.folder))}.",
            "",
        ]
    )


def append_summary(result: GateResult) -> str | None:
    """Add to the job's summary where there is one; what went wrong, if something did."""
    return _append(summary(result))


def _append(markdown: str) -> str | None:
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return None
    try:
        with Path(place).open("a", encoding="utf-8", errors="replace") as file:
            file.write(markdown + "\n")
    except OSError as error:
        return f"cannot write the job summary: {error.strerror}"
    return None


# -- JUnit -----------------------------------------------------------------------------------------


def as_junit(result: GateResult) -> bytes:
    """Each table of the budget a suite, each check a test case."""
    root = Element("testsuites", {"name": "chunkscope gate", **_counts(result.checks)})
    for name in dict.fromkeys(check.table for check in result.checks):
        checks = [check for check in result.checks if check.table == name]
        suite = SubElement(root, "testsuite", name=name, timestamp=result.created[:19])
        suite.attrib.update(_counts(checks))
        for check in checks:
            _case(suite, check)
    indent(root)
    written: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _counts(checks: Iterable[Check]) -> dict[str, str]:
    passed = [check.passed for check in checks]
    failures = str(passed.count(False))
    return {"tests": str(len(passed)), "failures": failures, "errors": "0", "time": "0"}


def _case(suite: Element, check: Check) -> None:
    about = {"classname": "chunkscope.gate", "name": _xml(check.title), "time": "0"}
    case = SubElement(suite, "testcase", about)
    if check.passed:
        SubElement(case, "system-out").text = _xml(words.full_text(check))
    else:
        message = _xml(words.full_text(check))
        SubElement(case, "failure", type="failed", message=message).text = _xml(_lines(check))


def _xml(message: str) -> str:
    return _NOT_XML.sub("\ufffd", message)
