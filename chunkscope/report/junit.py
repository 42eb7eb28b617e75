"""Verdicts as JUnit XML: each table of the budget a suite, each promise a test case."""

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from chunkscope.gating.verdict import GateResult, Verdict

# Everything else, control characters above all, is no XML whichever way it is escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(result: GateResult) -> bytes:
    suites: dict[str, list[Verdict]] = {}
    for verdict in result.verdicts:
        suites.setdefault(verdict.promise.partition(".")[0], []).append(verdict)
    root = Element("testsuites", {"name": "chunkscope gate", **_counts(result.verdicts)})
    for name, verdicts in suites.items():
        suite = SubElement(root, "testsuite", name=name, timestamp=result.created[:19])
        suite.attrib.update(_counts(verdicts))
        for verdict in verdicts:
            _case(suite, verdict)
    indent(root)
    written: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _counts(verdicts: Iterable[Verdict]) -> dict[str, str]:
    kept = [verdict.kept for verdict in verdicts]
    failures = str(kept.count(False))
    return {"tests": str(len(kept)), "failures": failures, "errors": "0", "time": "0"}


def _case(suite: Element, verdict: Verdict) -> None:
    name = _xml(verdict.title)
    case = SubElement(suite, "testcase", classname="chunkscope.gate", name=name, time="0")
    if not verdict.kept:
        failure = SubElement(case, "failure", type="broken", message=_xml(verdict.both))
        told = (verdict.both, verdict.note, verdict.because, verdict.advice)
        failure.text = _xml("\n".join(filter(None, told)))
    else:
        SubElement(case, "system-out").text = _xml(verdict.both)


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
