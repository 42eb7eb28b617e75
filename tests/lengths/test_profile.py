"""The profile as an artefact: what is written is read back, what is damaged is refused."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope import DatasetProfile, LengthHistogram, Profile
from chunkscope.errors import InputError
from chunkscope.lengths.profile import LongPrompt, Sample, TokenizerInfo, shares
from chunkscope.sources.base import BadRow

TOKENIZER = TokenizerInfo(
    name="org/model",
    digest="d1",
    kind="hf",
    engine="splintr 0.22.0",
    reference="tokenizers 0.23.3",
    special_tokens_added=1,
    notes=("a note",),
)
FULL = DatasetProfile(
    name="one",
    group="data",
    path="data/one.jsonl",
    format="jsonl",
    kind="text",
    field="question",
    unit="line",
    lengths=LengthHistogram({10: 3, 2000: 1}),
    skipped=2,
    bytes=999,
    sha256="ab" * 32,
    chars=8000,
    output_field="answer",
    output_lengths=LengthHistogram({4: 4}),
    longest=(LongPrompt(tokens=2000, position=7),),
    bad_rows=(BadRow(position=3, reason="not JSON"),),
    failure="cut off",
    notes=("dataset note",),
    sample=Sample(rows=4, out_of=40, seed=0),
    engine="splintr 0.22.0",
)
TRACE = DatasetProfile(
    name="trace",
    path="t.csv",
    format="csv",
    field="ContextTokens",
    kind="lengths",
    lengths=LengthHistogram({500: 2}),
)
EMPTY = replace(TRACE, name="empty", lengths=LengthHistogram({}))


def profile(*datasets: DatasetProfile) -> Profile:
    return Profile(tokenizer=TOKENIZER, datasets=datasets, options={"paths": ["data"]})


def written(*datasets: DatasetProfile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(profile(*datasets).to_json()))
    return found


@pytest.mark.parametrize(
    "datasets",
    [
        pytest.param((FULL, TRACE), id="everything known, and hardly anything"),
        pytest.param((EMPTY,), id="no rows"),
        pytest.param((), id="no datasets"),
    ],
)
def test_a_profile_survives_the_round_trip(
    tmp_path: Path, datasets: tuple[DatasetProfile, ...]
) -> None:
    before = profile(*datasets)
    before.save(tmp_path / "new folder" / "profile.json")
    after = Profile.load(tmp_path / "new folder" / "profile.json")
    assert after == replace(before, version=after.version)
    assert after.to_json() == before.to_json()


@given(counts=st.dictionaries(st.integers(0, 10**7), st.integers(1, 10**9), max_size=50))
def test_any_lengths_survive_the_round_trip(counts: dict[int, int]) -> None:
    dataset = replace(TRACE, lengths=LengthHistogram(counts))
    (found,) = Profile.from_json(written(dataset)).datasets
    assert found.lengths == dataset.lengths


def test_the_artefact_has_the_promised_keys() -> None:
    found = written(FULL, TRACE)
    assert found["schema"] == "chunkscope/profile/2"
    assert found["tokenizer"]["name"] == "org/model"
    first = found["datasets"][0]
    assert (first["name"], first["rows"], first["skipped"]) == ("one", 4, 2)
    assert first["histogram"] == {"10": 3, "2000": 1}
    names = {"count", "mean", "min", "p50", "p75", "p90", "p95", "p99", "max", "total"}
    assert first["tokens"].keys() == found["overall"]["tokens"].keys() == names
    assert found["overall"]["tokens"]["count"] == 6


def test_characters_per_token_leave_traces_out() -> None:
    overall = written(FULL, TRACE)["overall"]
    assert overall["chars_per_token"] == 8000 / 2030
    assert written(TRACE)["overall"]["chars_per_token"] is None


def test_shares_are_of_prompts_over_a_round_length() -> None:
    lengths = LengthHistogram({1024: 1, 1025: 1, 40_000: 2})
    assert shares(lengths) == {"1K": 0.75, "2K": 0.5, "4K": 0.5, "8K": 0.5, "32K": 0.5}
    assert set(shares(LengthHistogram({})).values()) == {None}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document where something can be damaged."""
    inside: list[tuple[Any, ...]] = []
    if isinstance(value, dict):
        inside = [leaf for key in value for leaf in leaves(value[key], (*path, key))]
    elif isinstance(value, list):
        inside = [leaf for i, item in enumerate(value) for leaf in leaves(item, (*path, i))]
    return [path, *inside] if path else inside


def damaged(path: tuple[Any, ...], damage: Callable[[Any, Any], None]) -> dict[str, Any]:
    document = copy.deepcopy(WRITTEN)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    damage(place, path[-1])
    return document


WRITTEN = written(FULL)
# These are read as they are.
FREE = ("options",)
CHECKED = [path for path in leaves(WRITTEN) if path[0] not in FREE]


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: ".".join(map(str, path)))
def test_a_field_of_the_wrong_type_is_found(path: tuple[Any, ...]) -> None:
    def strange(place: Any, key: Any) -> None:
        place[key] = {"strange": [1.5]}

    with pytest.raises(InputError, match="the profile is damaged") as raised:
        Profile.from_json(damaged(path, strange))
    assert raised.value.hint == "make it again: `chunkscope analyze data/`"


NEEDED = [p for p in CHECKED if isinstance(p[-1], str) and p[-1] not in Profile.added_later]


@pytest.mark.parametrize("path", NEEDED, ids=lambda path: ".".join(map(str, path)))
def test_a_missing_field_is_found(path: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="the profile is damaged"):
        Profile.from_json(damaged(path, lambda place, key: place.pop(key)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("rows",), 5, id="rows"),
        pytest.param(("tokens", "count"), 5, id="count"),
        pytest.param(("tokens", "p95"), 1.0, id="a percentile"),
        pytest.param(("tokens", "mean"), None, id="a mean that is not there"),
        pytest.param(("histogram", "11"), 1, id="a length more"),
        pytest.param(("histogram", "10"), 4, id="a row more"),
        pytest.param(("histogram", "10"), -3, id="fewer rows than none"),
        pytest.param(("histogram", "ten"), 1, id="a length that is no number"),
        pytest.param(("unheard_of",), 1, id="a field nobody knows"),
    ],
)
def test_figures_must_follow_from_the_histogram(path: tuple[Any, ...], value: Any) -> None:
    def change(place: Any, key: Any) -> None:
        place[key] = value

    with pytest.raises(InputError, match="the profile is damaged"):
        Profile.from_json(damaged(("datasets", 0, *path), change))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "is damaged: not JSON", id="empty"),
        pytest.param(b'{"schema": "chunkscope/pro', "is damaged: not JSON", id="cut off"),
        pytest.param(b"[]", "its schema is None", id="a list"),
        pytest.param(b"{}", "its schema is None", id="no schema"),
        pytest.param(b'{"schema": "other/1"}', "its schema is 'other/1'", id="another artefact"),
        pytest.param(
            b'{"schema": "chunkscope/plan/2"}', "is a plan file, not a profile", id="a plan"
        ),
        pytest.param(
            b'{"schema": "chunkscope/profile/2"}', "has schema chunkscope/profile/2", id="newer"
        ),
        pytest.param(
            b'{"schema": "chunkscope/profile/2"}', "is damaged", id="nothing but a schema"
        ),
    ],
)
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        Profile.load(path)
    assert "chunkscope analyze" in (raised.value.hint or "")


def test_a_profile_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file") as raised:
        Profile.load(tmp_path / "profile.json")
    assert raised.value.hint == "run `chunkscope analyze data/` first"


# --- together -------------------------------------------------------------------------------


def test_profiles_of_shards_add_up() -> None:
    both = profile(FULL) + profile(FULL, TRACE)
    assert [dataset.name for dataset in both.datasets] == ["one", "one#2", "trace"]
    assert both.overall == LengthHistogram({10: 6, 2000: 2, 500: 2})
    assert both.skipped == 4
    assert len(both.failures) == 2


def test_lengths_by_different_tokenizers_do_not_add_up() -> None:
    other = replace(profile(FULL), tokenizer=replace(TOKENIZER, name="other", digest="d2"))
    with pytest.raises(InputError, match=r"different tokenizers \(org/model and other\)"):
        _ = profile(FULL) + other


def test_datasets_are_grouped_by_folder_in_the_order_they_were_found() -> None:
    groups = profile(FULL, TRACE, replace(FULL, name="two")).groups
    assert {name: [d.name for d in found] for name, found in groups.items()} == {
        "data": ["one", "two"],
        "": ["trace"],
    }


def test_a_profile_becomes_a_table() -> None:
    frame = profile(FULL, TRACE).to_frame()
    assert list(frame["name"]) == ["one", "trace"]
    assert list(frame["p50"]) == [10.0, 500.0]
    assert list(frame["over_1K"]) == [0.25, 0.0]
