"""The gate's verdict: what a check found, what to do, and its forms for CI."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.artefacts.note import note
from chunkscope.gating.check import Check, GateResult, Relation
from chunkscope.report import ci
from chunkscope.report.gate import alike, answer, failure, outcome, remedy


def check(name: str = "data.p95", *, passed: bool = False, **values: Any) -> Check:
    return Check(name=name, passed=passed, **values)


def result_of(*checks: Check) -> GateResult:
    return GateResult(
        budget=Path("chunkscope.toml"), folder=Path("reports"), checks=checks
    )


AT_MOST = {"relation": Relation.AT_MOST, "unit": "tokens"}
REFUSED = {"context": 8_000, "output": 256, "longest": 23_235, "of": 850}
ROWS = {"name": "data.datasets", "relation": Relation.AT_LEAST, "unit": "count"}
WITHIN = {"relation": Relation.WITHIN, "unit": "share", "limit": 0.05}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        pytest.param(
            {**AT_MOST, "limit": 2_000, "value": 2_880},
            "2,880 tokens (at most 2,000 tokens)",
            id="over a limit",
        ),
        pytest.param(
            {**ROWS, "limit": 1, "value": 0, "reason": note("gate_no_such_dataset")},
            "0 (at least 1 row): it is not in the profile",
            id="one is singular",
        ),
        pytest.param(
            {**AT_MOST, "limit": 5, "reason": note("gate_not_measured")},
            "not known (at most 5 tokens): this run did not measure it",
            id="not known",
        ),
        pytest.param({**WITHIN, "value": -0.21}, "-21 % (within 5 %)", id="a change"),
        pytest.param(
            {"limit": 256, "value": 1_024}, "1,024 instead of 256", id="a setting"
        ),
        pytest.param(
            {"limit": True, "value": None},
            "left to vLLM instead of on",
            id="a switch that is not set",
        ),
        pytest.param(
            {"relation": Relation.MADE_FROM, "limit": "plan.json", "value": "another"},
            "made from another plan.json",
            id="of another plan",
        ),
        pytest.param(
            {"relation": Relation.UNCHANGED, "value": "new"},
            "new, not in the profile",
            id="a new file",
        ),
        pytest.param(
            {"relation": Relation.ACCEPTED, "limit": "0.28"},
            "vLLM 0.28 refuses it",
            id="refused by vLLM",
        ),
        pytest.param(
            {
                **AT_MOST,
                "limit": 0,
                "value": 21,
                "reason": note("gate_refused_prompts", **REFUSED),
            },
            "21 prompts do not fit: max_model_len 8,000 leaves 7,744 tokens for the "
            "prompt",
            id="prompts that do not fit",
        ),
        pytest.param(
            {
                "relation": Relation.AT_MOST,
                "unit": "share",
                "limit": 1.03,
                "value": 22.21,
                "reason": note(
                    "gate_within_plan", requests=850, names=["max_num_seqs"]
                ),
            },
            "predicted to take 22x as long as the plan (limit: 1.03x); max_num_seqs "
            "differs from the plan (simulated with 850 requests)",
            id="slower than the plan",
        ),
    ],
)
def test_what_a_check_found_is_a_sentence(values: dict[str, Any], text: str) -> None:
    assert outcome(check(**values)) == text


def test_a_number_and_its_limit_never_look_the_same() -> None:
    times = {"relation": Relation.AT_MOST, "unit": "seconds"}
    text = outcome(check(**times, limit=1.0, value=1.0004))
    assert text == "1.0004 s (at most 1 s)"


@pytest.mark.parametrize(
    ("checks", "text"),
    [
        ((check(passed=True),), "1 check in chunkscope.toml passed."),
        ((check(), check(passed=True)), "1 of 2 checks in chunkscope.toml failed."),
    ],
    ids=["passed", "failed"],
)
def test_the_answer_counts_the_checks(checks: tuple[Check, ...], text: str) -> None:
    assert answer(result_of(*checks)) == text


def test_the_error_names_a_few_checks() -> None:
    names = ("data.a", "data.b", "data.c", "data.d")
    result = result_of(*(check(name) for name in names))
    assert failure(result) == "4 checks failed: data.a, data.b, data.c and 1 more"


def test_a_cause_is_said_once_for_all_its_checks() -> None:
    cause = note("made_from_another", file="plan.json", source="profile.json")
    remedies = {"cause": cause, "remedy": "chunkscope recommend"}
    failed = [check("slo.a", **remedies), check("data.p95"), check("slo.b", **remedies)]
    together, _ = alike(failed)
    assert list(remedy(together)) == [
        "plan.json was made from another profile.json. Affected: slo.a, slo.b.",
        "To make it again: chunkscope recommend",
    ]


# -- for CI ----------------------------------------------------------------------------


@given(st.text())
def test_junit_is_xml_whatever_a_dataset_is_called(name: str) -> None:
    result = result_of(check(subject=name, **AT_MOST, limit=1, value=2))
    assert ElementTree.fromstring(ci.junit(result)) is not None


@given(st.text())
def test_an_annotation_is_one_line_whatever_a_dataset_is_called(name: str) -> None:
    result = result_of(check(subject=name, **AT_MOST, limit=1, value=2))
    line, end = ci.annotations(result).split("\n")
    assert line.startswith("::error ")
    assert "\r" not in line
    assert not end


def test_a_gate_that_passes_leaves_a_notice() -> None:
    text = ci.annotations(result_of(check(passed=True)))
    title = "::notice title=chunkscope gate::"
    assert text == f"{title}1 check in chunkscope.toml passed.\n"
