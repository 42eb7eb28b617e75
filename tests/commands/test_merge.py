"""`analyze --shard` on several machines and `merge`: the same profile as one process makes."""

import json
import shutil
from pathlib import Path

import pytest

from tests.commands.helpers import analyze, chunkscope
from tests.large_input import PIECE, comparable, write_large_input

SHARDS = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, its profile by one process, and the parts of four shards."""
    place = tmp_path_factory.mktemp("shards")
    write_large_input(place / "data")
    for number in range(1, SHARDS + 1):
        shard = ("--shard", f"{number}/{SHARDS}")
        run = analyze(place, "data", *PIECE, *shard, "--output-field", "answer", "--no-cache")
        assert run.code == 0, run.err
        assert f"part-{number}-of-{SHARDS}.json" in run.err
    return place


def test_a_part_of_another_name_is_named_where_the_next_step_is(place: Path) -> None:
    run = analyze(place, "data/few.csv", "--shard", "1/1", "-o", "mine.json", "--no-cache")
    assert "chunkscope merge mine.json" in run.err


def parts(place: Path) -> list[Path]:
    return sorted((place / "reports").glob("part-*.json"))


def test_shards_add_up_to_what_one_process_finds(place: Path) -> None:
    alone = analyze(place, "data", *PIECE, "--output-field", "answer", "--no-cache")
    pieces = [piece for part in parts(place) for piece in json.loads(part.read_bytes())["pieces"]]
    by_path = [piece["dataset"]["path"] for piece in pieces]
    assert {path: by_path.count(path) for path in by_path} == {
        "data/lines.jsonl": 3,
        "data/chats.jsonl": 2,
        "data/table.parquet": 2,
        "data/few.csv": 1,
        "data/cut.jsonl.gz": 1,
    }
    merged = chunkscope(place, "merge", *reversed(parts(place)))
    assert merged.code == alone.code == 3  # bad rows and a file that cannot be read
    assert comparable(merged.profile) == comparable(alone.profile)
    lines = next(d for d in merged.profile["datasets"] if d["name"] == "lines")
    assert lines["longest"][0]["position"] == 1501
    assert [row["position"] for row in lines["bad_rows"]][-1] > 3000
    assert lines["prefixes"]["prompts"] < lines["rows"]
    assert merged.profile["options"]["command"][1:] == [
        *("analyze", "data", *PIECE, "--output-field", "answer", "--no-cache")
    ]


def test_the_size_of_pieces_changes_no_length(place: Path) -> None:
    whole = analyze(place, "data", "--output-field", "answer", "--no-cache").profile
    divided = chunkscope(place, "merge", *parts(place)).profile
    figures = ("name", "rows", "skipped", "chars", "tokens", "histogram", "longest", "bad_rows")
    figures = (*figures, "output_histogram", "failure", "notes", "unit", "bytes", "sha256")
    for one, other in zip(whole["datasets"], divided["datasets"], strict=True):
        assert {name: one[name] for name in figures} == {name: other[name] for name in figures}


def refused(place: Path, tmp_path: Path, *names: Path) -> str:
    run = chunkscope(place, "merge", *names, "-o", tmp_path / "profile.json")
    assert run.code == 3, run.err
    assert not (tmp_path / "profile.json").exists()
    return run.err


def test_missing_shards_are_refused(place: Path, tmp_path: Path) -> None:
    said = refused(place, tmp_path, *parts(place)[1:3])
    assert "2 of 4 shards are missing: 1, 4" in said
    assert "--shard 1/4" in said


def test_a_shard_that_is_there_twice_is_refused(place: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.json"
    shutil.copy(parts(place)[0], again)
    assert "are both shard 1 of 4" in refused(place, tmp_path, *parts(place), again)


def changed(part: Path, tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / part.name
    path.write_text(json.dumps({**json.loads(part.read_bytes()), **changes}))
    return path


def test_pieces_that_two_parts_have_are_refused(place: Path, tmp_path: Path) -> None:
    first, second, *others = parts(place)
    both = json.loads(first.read_bytes())["pieces"] + json.loads(second.read_bytes())["pieces"]
    overlapping = changed(second, tmp_path, pieces=both)
    assert "both counted" in refused(place, tmp_path, first, overlapping, *others)
    emptied = changed(second, tmp_path, pieces=[])
    assert "pieces are in no part" in refused(place, tmp_path, first, emptied, *others)


def test_parts_of_other_input_options_and_versions_are_refused(place: Path, tmp_path: Path) -> None:
    first, second, *others = parts(place)
    options = json.loads(second.read_bytes())["options"]
    for changes, said in (
        ({"divided": "0" * 64}, "was made of other files"),
        ({"options": {**options, "special_tokens": False}}, "other options than"),
        ({"chunkscope": "0.0.1"}, "was written by chunkscope 0.0.1"),
        ({"of": 5}, "is one of 5 shards"),
        ({"tokenizer": {**json.loads(second.read_bytes())["tokenizer"], "digest": "0"}}, "add up"),
    ):
        other = changed(second, tmp_path, **changes)
        assert said in refused(place, tmp_path, first, other, *others)


def test_a_part_that_is_damaged_is_said(place: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(parts(place)[0].read_bytes()[:500])
    assert "is damaged" in refused(place, tmp_path, cut)
    profile = place / "reports" / "profile.json"
    chunkscope(place, "merge", *parts(place))
    assert "is a profile file, not a part file" in refused(place, tmp_path, profile)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("few.csv", "--shard", "5/4"), "not a shard"),
        (("-", "--shard", "1/4"), "cannot divide -"),
        (("few.csv", "--shard", "1/4", "--order", "sorted.csv"), "excludes --order"),
        (("few.csv", "--shard", "1/4", "--export-trace", "t.jsonl"), "excludes --export-trace"),
        (("few.csv", "--shard", "1/4", "--format", "csv"), "excludes --format"),
    ],
)
def test_what_cannot_be_divided_is_refused(place: Path, words: tuple[str, ...], said: str) -> None:
    run = analyze(place / "data", *words, stdin=b'{"prompt": "x"}\n')
    assert run.code == 2
    assert said in run.err


def test_there_may_be_more_shards_than_pieces(place: Path, tmp_path: Path) -> None:
    for number in range(1, 4):
        run = analyze(tmp_path, place / "data" / "few.csv", "--shard", f"{number}/3")
        assert run.code == 0, run.err
    merged = chunkscope(tmp_path, "merge", *parts(tmp_path))
    assert merged.dataset["rows"] == 2
