"""The profile: what is written is read back, and profiles add up."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope import AnalyzeOptions, DatasetProfile, LengthHistogram, Profile
from chunkscope.artefacts.artefact import built, plain
from chunkscope.artefacts.note import note
from chunkscope.errors import InputError
from chunkscope.lengths.histogram import PERCENTILES, added_up
from chunkscope.lengths.options import DatasetOptions
from chunkscope.lengths.profile import LongPrompt, Sample, guessed_fields, shares
from chunkscope.prompts.options import SelectOptions
from chunkscope.sources.base import BadRow
from tests import build

TOKENIZER = replace(
    build.TOKENIZER, notes=(note("counted_again", reference="tokenizers 0.23.3"),)
)
UNREAD = note("not_json", line=1, column=2, why="?")
FULL = build.dataset(
    "one", [10, 10, 10, 2000], group="data", unit="line", skipped=2, bytes=999,
    digest="ab" * 16,
    chars=8000, output_field="answer", output_lengths=LengthHistogram({4: 4}),
    longest=(LongPrompt(tokens=2000, position=7),),
    bad_rows=(BadRow(position=3, reason=note("nested_too_deeply")),),
    failure=note("not_a_document", path="x", reason=UNREAD),
    notes=(note("media_rows", count=3),), sample=Sample(rows=4, out_of=40, seed=0),
    engine="splintr-rs 1.0",
)  # fmt: skip
TRACE = build.dataset("trace", [500, 500], kind="lengths")
EMPTY = build.dataset("empty", [])


def profile(*datasets: DatasetProfile) -> Profile:
    options = AnalyzeOptions(select=SelectOptions(fields=("question",)), sample=4)
    return Profile(
        tokenizer=TOKENIZER, datasets=datasets, options=options, paths=("data",)
    )


@pytest.mark.parametrize(
    "datasets",
    [
        pytest.param((FULL, TRACE), id="everything known, and hardly anything"),
        pytest.param((EMPTY,), id="no rows"),
        pytest.param((), id="no datasets"),
    ],
)
def test_a_profile_survives_the_round_trip(tmp_path, datasets) -> None:
    before = profile(*datasets)
    before.save(tmp_path / "new folder" / "profile.json")
    after = Profile.load(tmp_path / "new folder" / "profile.json")
    assert after == replace(before, version=after.version)
    assert after.digest() == before.digest()
    assert all(built(DatasetProfile, plain(dataset)) == dataset for dataset in datasets)


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        pytest.param(
            replace(profile(FULL), command=("chunkscope", "analyze")),
            True,
            id="command",
        ),
        pytest.param(replace(profile(FULL), paths=("./data",)), True, id="paths"),
        pytest.param(
            profile(replace(FULL, engine="tokenizers 1", notes=())), True, id="engine"
        ),
        pytest.param(
            profile(replace(FULL, path="elsewhere/one.jsonl")), True, id="place"
        ),
        pytest.param(
            profile(replace(FULL, digest="cd" * 16)), False, id="another file"
        ),
        pytest.param(
            profile(replace(FULL, lengths=LengthHistogram({9: 4}))), False, id="lengths"
        ),
        pytest.param(profile(FULL, TRACE), False, id="one more dataset"),
    ],
)
def test_a_profile_is_what_was_counted_not_how(changed: Profile, same: bool) -> None:
    assert (changed.digest() == profile(FULL).digest()) is same


def test_shares_are_of_prompts_over_a_round_length() -> None:
    lengths = LengthHistogram({1024: 1, 1025: 1, 40_000: 2})
    assert shares(lengths) == {"1K": 0.75, "2K": 0.5, "4K": 0.5, "8K": 0.5, "32K": 0.5}
    assert set(shares(LengthHistogram({})).values()) == {None}


def test_profiles_of_several_machines_add_up() -> None:
    both = profile(FULL) + profile(FULL, TRACE)
    assert [dataset.name for dataset in both.datasets] == ["one", "one#2", "trace"]
    assert both.overall == LengthHistogram({10: 6, 2000: 2, 500: 2})
    assert both.skipped == 4
    assert len(both.failures) == 2
    of_traces = replace(
        profile(TRACE), tokenizer=replace(TOKENIZER, kind="none", digest="")
    )
    assert (of_traces + profile(FULL)).tokenizer == TOKENIZER


def test_fields_that_nobody_named_are_told_with_their_datasets() -> None:
    table = DatasetOptions(fields=("question",))
    options = AnalyzeOptions(datasets={"one": table})
    counted = replace(profile(FULL, TRACE, EMPTY), options=options)
    assert guessed_fields(counted) == {TRACE.field: ["trace"]}


def test_lengths_by_different_tokenizers_do_not_add_up() -> None:
    other = replace(
        profile(FULL), tokenizer=replace(TOKENIZER, name="other", digest="d2")
    )
    with pytest.raises(InputError, match=r"test and other"):
        _ = profile(FULL) + other


# -- the histogram --------------------------------------------------------------------


lengths = st.lists(
    st.integers(0, 200_000) | st.integers(0, 5), min_size=1, max_size=300
)
histograms = st.dictionaries(st.integers(0, 10**6), st.integers(1, 10**9)).map(
    LengthHistogram
)


@given(
    lengths=lengths, percent=st.floats(0, 100) | st.sampled_from([*PERCENTILES, 0, 100])
)
def test_percentiles_are_numpys_bit_for_bit(lengths: list[int], percent: float) -> None:
    found = LengthHistogram.of(lengths).percentile(percent)
    assert found == float(np.percentile(lengths, percent))


@given(lengths=lengths)
def test_the_summary_is_what_all_lengths_give(lengths: list[int]) -> None:
    summary = LengthHistogram.of(lengths).summary()
    assert summary["count"] == len(lengths)
    assert summary["total"] == sum(lengths)
    assert summary["mean"] == sum(lengths) / len(lengths)
    assert (summary["min"], summary["max"]) == (min(lengths), max(lengths))


@given(a=histograms, b=histograms, c=histograms)
def test_adding_up_does_not_depend_on_the_order(a, b, c) -> None:
    assert (
        added_up([added_up([a, b]), c])
        == added_up([a, added_up([b, c])])
        == added_up([a, b, c])
    )
    assert added_up([a, b]) == added_up([b, a])
    assert added_up([a, LengthHistogram({})]) == a


@given(lengths=lengths, limit=st.integers(-1, 200_001))
def test_over_counts_the_longer_ones(lengths: list[int], limit: int) -> None:
    histogram = LengthHistogram.of(lengths)
    longer = sum(length > limit for length in lengths)
    assert histogram.over(limit) == longer
    assert histogram.share_over(limit) == longer / len(lengths)


def test_nothing_counted_is_unknown_and_not_zero() -> None:
    empty = LengthHistogram({})
    assert empty.summary() == {
        "count": 0, "mean": None, "min": None, "p50": None, "p75": None, "p90": None,
        "p95": None, "p99": None, "max": None, "total": 0,
    }  # fmt: skip
    assert empty.share_over(10) is None
    assert empty.over(10) == 0


def test_steps_double_up_to_the_longest() -> None:
    assert LengthHistogram.of([200_000]).doubling() == [(131_072, 262_144, 1)]
    assert LengthHistogram.of([300_000]).doubling() == [(131_072, 300_001, 1)]
