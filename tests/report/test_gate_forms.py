"""Verdicts and symptoms for CI: JUnit readers and GitHub's annotations, whatever names hold."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.gating.check import Check, GateResult, Relation
from chunkscope.report import gate
from tests import build
from tests.report.examples import HOSTILE


@pytest.fixture
def result(tmp_path) -> GateResult:
    place = build.Place(tmp_path)
    profile = place.save_profile(data=build.MIXED, other=[5])
    place.save_plan(profile)
    return place.gate("[data]\nlongest_prompt = 100\nmin_rows = 1\n")


def named(result: GateResult, name: str) -> GateResult:
    return replace(result, checks=tuple(replace(c, subject=name) for c in result.checks))


def test_junit_has_a_case_for_each_check_and_a_failure_for_each_that_fails(result) -> None:
    root = ElementTree.fromstring(gate.junit(result))
    assert len(root.findall(".//testcase")) == len(result.checks)
    assert len(root.findall(".//failure")) == len(result.failed) == 1
    assert root.get("failures") == "1"


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


def test_an_annotation_stands_at_its_check_and_where_all_pass_there_is_a_notice(result) -> None:
    (line,) = gate.annotations(named(result, HOSTILE)).splitlines()
    assert "line=2" in line
    assert "100" in line
    passing = replace(result, checks=tuple(c for c in result.checks if c.passed))
    assert gate.annotations(passing).startswith("::notice ")
