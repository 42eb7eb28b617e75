"""Kinds of models other than dense ones, measured on an H200: predictions are computed again here.

The held-out rows were measured while nobody knew them who could set a constant, and predicted.jsonl
was on main before they were read.
"""

import json
import re

import pytest
from chunkscope.hardware.model_kind import MEASURED, traits_of

from tests.benchmarks.kinds_accuracy import (
    FOLDER,
    LIMITS,
    errors,
    predicted,
    rows,
    shape_of,
    table,
)

FIT = {(row["model"], row["budget"], row["eager"]): row for row in rows("fit")}
HELD_OUT = {(row["model"], row["budget"]): row for row in rows("held-out")}
# What is further off than was asked for. The reasons are in reports/h200/README.md.
SLOW_LAUNCH = {"makespan_s", "ttft_p50_s", "ttft_p95_s", "e2e_p50_s", "e2e_p95_s", "itl_p50_s"}
MISSED = {
    ("moonlight-16b-a3b", 2_048): {"activation_gib", *SLOW_LAUNCH},
    ("qwen1.5-moe-a2.7b", 8_192): {"activation_gib"},
    ("qwen1.5-moe-a2.7b", 2_048): {"activation_gib", *SLOW_LAUNCH},
    ("olmoe-1b-7b", 8_192): {"activation_gib", "makespan_s"},
    ("gemma-3-4b-text", 8_192): {"itl_p50_s"},
    ("gemma-3-4b-text", 2_048): {"activation_gib"},
    ("mistral-7b-v0.1", 8_192): {"itl_p50_s"},
}


def too_far(off):
    return {name for name, error in off.items() if abs(error) > LIMITS[name]}


@pytest.mark.parametrize("key", HELD_OUT)
def test_held_out_rows_come_as_near_as_asked_but_for_what_is_named(key):
    assert too_far(errors(HELD_OUT[key])) == MISSED.get(key, set())


@pytest.mark.parametrize("key", FIT)
def test_rows_that_constants_were_set_on_are_near(key):
    assert not too_far(errors(FIT[key]))


@pytest.mark.parametrize("key", [*HELD_OUT, *FIT])
def test_the_kv_cache_of_every_kind_is_within_a_percent(key):
    row = HELD_OUT.get(key) or FIT[key]
    assert abs(errors(row)["kv_tokens"]) < 0.01


def test_at_least_five_shapes_were_held_out():
    assert len({model for model, _ in HELD_OUT} - {model for model, *_ in FIT}) >= 5


def test_what_was_said_before_is_what_is_said_now():
    said = [json.loads(line) for line in (FOLDER / "predicted.jsonl").read_text().splitlines()]
    seen = [one for one in said if (one["model"], one["budget"]) in HELD_OUT]
    assert len(seen) == len(HELD_OUT)
    for one in seen:
        now = predicted(one["model"], one["budget"])
        assert {name: one[name] for name in now} == pytest.approx(now, rel=1e-3)


@pytest.mark.parametrize("kind", [kind for kind in MEASURED if kind.traits], ids=lambda k: k.name)
def test_the_range_of_a_kind_is_that_of_its_rows(kind):
    alike = [
        errors(row)["makespan_s"]
        for row in (*FIT.values(), *HELD_OUT.values())
        if "repeats" in row and traits_of(shape_of(row["model"])) == kind.traits
    ]
    assert (kind.least, kind.most) == pytest.approx((min(alike), max(alike)), abs=0.006)


def test_the_readme_shows_every_row():
    text = (FOLDER.parent / "README.md").read_text()
    number = re.compile(r"[+-]\d+\.\d%")
    for name in ("fit", "held-out"):
        for line in table(name):
            shown = next(
                (x for x in text.splitlines() if x.split("(")[0] == line.split("(")[0]), ""
            )
            pairs = zip(number.findall(shown), number.findall(line), strict=True)
            assert all(abs(float(a[:-1]) - float(b[:-1])) <= 0.3 for a, b in pairs), line
