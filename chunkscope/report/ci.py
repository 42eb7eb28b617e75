"""The gate's checks as sections, and for CI: GitHub's annotations and job summary, JUnit XML."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.errors import ChunkscopeError
from chunkscope.gating.check import Check, GateResult
from chunkscope.lengths.profile import ALL
from chunkscope.report import markdown
from chunkscope.report.section import Cell, Section, Table, table_of
from chunkscope.report.words import doctor, gate, sentence

# Everything else, control characters above all, is no XML whichever way it is escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# -- GitHub Actions ------------------------------------------------------------------------------


def gate_annotations(result: GateResult) -> str:
    """A workflow command for each check that fails; a notice where none does."""
    lines = []
    for check in result.failed:
        text = "\n".join((gate.both(check), *gate.remedy([check])))
        lines.append(_error(check.title, text, result.budget, result.line_of(check)))
    notice = f"::notice title=chunkscope gate::{_escaped(gate.answer(result))}"
    return "\n".join(lines or [notice]) + "\n"


def doctor_annotations(diagnosis: Diagnosis) -> str:
    lines = [
        f"::warning title=chunkscope doctor%3A {symptom.rule}::{_escaped(doctor.told(symptom))}"
        for symptom in diagnosis.symptoms
    ]
    notice = f"::notice title=chunkscope doctor::{doctor.NOTHING}"
    return "\n".join(lines or [notice]) + "\n"


def error_annotation(error: ChunkscopeError, budget: Path | None) -> str:
    """Of a gate that could not judge; the summary says it, too."""
    hint = f"hint: {error.hint}" if error.hint else ""
    text = "\n".join(filter(None, (error.message, hint)))
    message = markdown.text(text)
    _append_summary(f"### chunkscope gate: cannot be judged\n\n{message}\n")
    return _error("chunkscope gate cannot judge", text, budget) + "\n"


def job_summary(result: GateResult) -> str | None:
    """Add the checks to the job's summary where there is one; what went wrong, if anything."""
    return _append_summary("### chunkscope gate\n\n" + markdown.markdown(result))


def _error(title: str, message: str, budget: Path | None, line: int | None = None) -> str:
    properties = {
        **({"file": _in_repository(budget)} if budget else {}),
        **({"line": str(line)} if line else {}),
        "title": title,
    }
    text = ",".join(
        f"{name}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in properties.items()
    )
    return f"::error {text}::{_escaped(message)}"


def _in_repository(path: Path) -> str:
    """As GitHub wants it: seen from the top of the checkout."""
    top = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
    whole = path.resolve()
    return whole.relative_to(top).as_posix() if whole.is_relative_to(top) else path.as_posix()


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _append_summary(text: str) -> str | None:
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return None
    try:
        with Path(place).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text + "\n")
    except OSError as error:
        return f"cannot write the job summary: {error.strerror}"
    return None


# -- JUnit ---------------------------------------------------------------------------------------


def junit(result: GateResult) -> bytes:
    """Each table of the budget is a suite, each check a test case."""
    suites: dict[str, list[Check]] = {}
    for check in result.checks:
        suites.setdefault(check.table, []).append(check)
    root = Element("testsuites", {"name": "chunkscope gate", **_counts(result.checks)})
    for name, checks in suites.items():
        suite = SubElement(root, "testsuite", name=name, timestamp=result.created[:19])
        suite.attrib.update(_counts(checks))
        for check in checks:
            case = SubElement(suite, "testcase", classname="chunkscope.gate", time="0")
            case.set("name", _xml(check.title))
            both = _xml(gate.both(check))
            if check.passed:
                SubElement(case, "system-out").text = both
            else:
                failure = SubElement(case, "failure", type="failed", message=both)
                lines = (f"found {gate.found(check)}", *gate.remedy([check]))
                failure.text = _xml("\n".join(lines))
    indent(root)
    written: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _counts(checks: Iterable[Check]) -> dict[str, str]:
    passed = [check.passed for check in checks]
    failures = str(passed.count(False))
    return {"tests": str(len(passed)), "failures": failures, "errors": "0", "time": "0"}


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


# -- sections ------------------------------------------------------------------------------------

MOST_FAILED = 30  # of those that fail, in the short answer


def sections(result: GateResult) -> list[Section]:
    failed = result.failed
    counts = Counter(check.table for check in result.checks)
    shown = (
        _table(failed[:MOST_FAILED]) if failed else table_of(("table", "checks"), counts.items())
    )
    return [
        Section(sentences=(gate.answer(result),), table=shown),
        *remedies(result),
        Section(title="Every check", table=_table(result.checks), details=True),
    ]


def remedies(result: GateResult) -> list[Section]:
    """Why checks fail together, and the command that accepts what was found."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in sorted(result.failed, key=lambda check: check.cause is None):
        cause = sentence(check.cause) if check.cause else ""
        groups.setdefault((cause, "" if cause else check.remedy), []).append(check)
    return [Section(sentences=tuple(gate.remedy(group))) for group in groups.values()]


def _table(checks: Sequence[Check]) -> Table | None:
    rows = [
        (
            check.name if check.passed else Cell(text=check.name, look="bad"),
            "ok" if check.passed else "FAIL",
            "" if check.subject == ALL else check.subject,
            *(gate.limit_text(check), gate.found(check)),
        )
        for check in checks
    ]
    heads = ("check", "", "of", "limit", "found")
    return table_of(heads, rows, words=heads)
