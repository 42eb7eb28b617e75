"""Verdicts and symptoms for CI: JUnit readers and GitHub's annotations, whatever names hold."""

from pathlib import Path
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from chunkscope.gating.check import Check, GateResult, Relation
from chunkscope.report import gate
from chunkscope.report.words.gate import answer


@given(st.text())
def test_junit_is_xml_and_an_annotation_one_line_whatever_a_dataset_is_called(name: str) -> None:
    sizes = {"relation": Relation.AT_MOST, "limit": 1, "value": 2, "unit": "count"}
    check = Check(name="data.p95", subject=name, passed=False, **sizes)
    result = GateResult(budget=Path("chunkscope.toml"), folder=Path("reports"), checks=(check,))
    assert ElementTree.fromstring(gate.junit(result)) is not None
    line, end = gate.annotations(result).split("\n")
    assert line.startswith("::error ")
    assert "\r" not in line
    assert not end


def test_one_check_passes_alone() -> None:
    result = GateResult(budget=Path("b"), folder=Path(), checks=(Check(name="x", passed=True),))
    assert answer(result) == "The 1 check in b passes."
