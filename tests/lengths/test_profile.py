"""The profile: what is written is read back, and profiles add up."""

from dataclasses import replace

import pytest

from chunkscope import AnalyzeOptions, DatasetProfile, LengthHistogram, Profile
from chunkscope.artefacts.artefact import built, plain
from chunkscope.artefacts.note import note
from chunkscope.errors import InputError
from chunkscope.lengths.profile import LongPrompt, Sample, shares
from chunkscope.prompts.selection import SelectOptions
from chunkscope.sources.base import BadRow
from tests import build

TOKENIZER = replace(build.TOKENIZER, notes=(note("counted_again", reference="tokenizers 0.23.3"),))
FULL = build.dataset(
    "one", [10, 10, 10, 2000], group="data", unit="line", skipped=2, bytes=999, digest="ab" * 16,
    chars=8000, output_field="answer", output_lengths=LengthHistogram({4: 4}),
    longest=(LongPrompt(tokens=2000, position=7),),
    bad_rows=(BadRow(position=3, reason=note("nested_too_deeply")),),
    failure=note("not_a_document", path="x", reason=note("not_json", line=1, column=2, why="?")),
    notes=(note("media_rows", count=3),), sample=Sample(rows=4, out_of=40, seed=0),
    engine="splintr-rs 1.0",
)  # fmt: skip
TRACE = build.dataset("trace", [500, 500], kind="lengths")
EMPTY = build.dataset("empty", [])


def profile(*datasets: DatasetProfile) -> Profile:
    options = AnalyzeOptions(select=SelectOptions(fields=("question",)), sample=4)
    return Profile(tokenizer=TOKENIZER, datasets=datasets, options=options, paths=("data",))


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
        pytest.param(replace(profile(FULL), command=("chunkscope", "analyze")), True, id="command"),
        pytest.param(replace(profile(FULL), paths=("./data",)), True, id="paths"),
        pytest.param(profile(replace(FULL, engine="tokenizers 1", notes=())), True, id="engine"),
        pytest.param(profile(replace(FULL, path="elsewhere/one.jsonl")), True, id="place"),
        pytest.param(profile(replace(FULL, digest="cd" * 16)), False, id="another file"),
        pytest.param(profile(replace(FULL, lengths=LengthHistogram({9: 4}))), False, id="lengths"),
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
    of_traces = replace(profile(TRACE), tokenizer=replace(TOKENIZER, kind="none", digest=""))
    assert (of_traces + profile(FULL)).tokenizer == TOKENIZER


def test_lengths_by_different_tokenizers_do_not_add_up() -> None:
    other = replace(profile(FULL), tokenizer=replace(TOKENIZER, name="other", digest="d2"))
    with pytest.raises(InputError, match=r"test and other"):
        _ = profile(FULL) + other
