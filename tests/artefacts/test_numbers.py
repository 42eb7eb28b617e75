"""Numbers with units: read exactly, written so that two that differ look different."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.artefacts.figures import figures_row
from chunkscope.artefacts.numbers import COUNT, RATE, SECONDS, SHARE, SIZE, TOKENS
from chunkscope.lengths.histogram import Ranked
from tests import build


@pytest.mark.parametrize(
    ("unit", "given", "value"),
    [
        (SECONDS, " 2 min ", 120),
        (SECONDS, "250us", 0.00025),
        (SIZE, "80GiB", 80),
        (SIZE, "512MiB", 0.5),
        (SIZE, "24GB", 24e9 / 2**30),
        (SHARE, "5%", 0.05),
        (TOKENS, 2048, 2048),
        (TOKENS, "2K", 2048),
        (TOKENS, "2k", 2000),
        (TOKENS, "1.5K", 1536),
        (TOKENS, "300 tokens", 300),
        (RATE, "4500.5 tokens/s", 4500.5),
    ],
)
def test_a_number_is_read_with_its_unit(unit, given, value):
    assert unit.read(given) == value


@pytest.mark.parametrize(
    ("unit", "given"),
    [
        pytest.param(SECONDS, 200, id="a bare time"),
        pytest.param(SECONDS, "200GiB", id="a size for a time"),
        pytest.param(SHARE, 5, id="a share without its sign"),
        pytest.param(TOKENS, "2.0001K", id="a part of a token"),
        pytest.param(TOKENS, "many", id="a word"),
        pytest.param(TOKENS, True, id="a truth value"),
        pytest.param(TOKENS, -1, id="a negative number"),
        pytest.param(RATE, float("nan"), id="not a number"),
        pytest.param(COUNT, 10**400, id="a huge number"),
        pytest.param(SECONDS, "1e999s", id="an exponent"),
        pytest.param(SECONDS, "٣s", id="digits of another script"),
        pytest.param(SECONDS, "9" * 5000 + "s", id="thousands of digits"),
    ],
)
def test_a_wrong_unit_is_told_what_would_be_right(unit, given):
    with pytest.raises(ValueError, match=re.escape(unit.accepted)) as error:
        unit.read(given)
    assert len(str(error.value)) < 200, "what was given is cut"


def test_numbers_that_differ_look_different():
    assert SHARE.write_both(0.1, 0.1001) == ("10 %", "10.01 %")
    assert SHARE.write_both(1.03, 1.03210215794) == ("103 %", "103.21 %")
    assert COUNT.write_both(0, 0) == ("0", "0")


@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6))
def test_all_times_that_differ_look_different(limit, value):
    texts = SECONDS.write_both(limit, value)
    if abs(limit - value) / limit > 1e-8:
        assert texts[0] != texts[1]


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 4)), max_size=9))
def test_percentiles_of_counted_values_are_those_of_all_of_them(counted):
    values = [value for value, times in counted for _ in range(times)]
    ranked = Ranked(*zip(*counted, strict=True)) if counted else Ranked([])
    assert ranked.count == len(values)
    if values:
        found = ranked.percentiles()
        wanted = np.percentile(values, [50, 95, 99, 100]).tolist()
        assert [found.p50, found.p95, found.p99, found.max] == wanted
        assert found.mean == pytest.approx(np.mean(values))


def test_a_run_is_a_row_of_the_figures_it_has():
    row = figures_row(build.run("plan", 10.0, outputs=None))
    assert (row["makespan_s"], row["ttft_s.p95"], row["activation_peak_gib"]) == (
        10.0,
        2.0,
        0.5,
    )
    assert "outputs.equal" not in row
