"""`chunkscope analyze` on everything it reads, and the same from Python."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import zstandard

import chunkscope
from chunkscope import AnalyzeOptions, ChunkscopeError, Profile
from chunkscope.errors import InputError
from chunkscope.sources import opening
from tests.commands.helpers import (
    analyze,
    analyze_apart,
    engines_loaded,
    prompts,
    write_jsonl,
)

ROWS = [
    {"question": "How far is it" + " and back" * n + "?", "answer": f"{n} km"} for n in range(6)
]
QUESTIONS = [row["question"] for row in ROWS]


def lengths(place: Path, texts: list[str]) -> dict[str, int]:
    """What a histogram of these texts has to be, by the plainest of formats."""
    reference = write_jsonl(place / "plain" / "reference.jsonl", [{"prompt": t} for t in texts])
    return analyze(place / "plain", reference).dataset["histogram"]


# --- formats --------------------------------------------------------------------------------------


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def as_feather(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.feather.write_feather(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def as_stream(rows: list[dict[str, Any]]) -> bytes:
    table = pa.Table.from_pylist(rows)
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


COLUMNS = {key: [row[key] for row in ROWS] for key in ROWS[0]}
FORMATS: dict[str, tuple[str, bytes]] = {
    "a.jsonl": ("jsonl", as_jsonl(ROWS)),
    "a.ndjson": ("jsonl", as_jsonl(ROWS)),
    "lines.json": ("jsonl", as_jsonl(ROWS)),
    "a.json": ("json", json.dumps(ROWS).encode()),
    "held.json": ("json", json.dumps({"canary": "do not train", "examples": ROWS}).encode()),
    "columns.json": ("json", json.dumps(COLUMNS).encode()),
    "a.csv": ("csv", as_csv(ROWS)),
    "semicolons.csv": ("csv", as_csv(ROWS, ";")),
    "a.tsv": ("csv", as_csv(ROWS, "\t")),
    "a.parquet": ("parquet", as_parquet(ROWS)),
    "a.feather": ("arrow", as_feather(ROWS)),
    "a.arrow": ("arrow", as_stream(ROWS)),
}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_every_format_and_compression_gives_the_same_lengths(tmp_path: Path, suffix: str) -> None:
    for name, (_, data) in FORMATS.items():
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / (name + suffix)).write_bytes(PACKERS[suffix](data))
    run = analyze(tmp_path, "data")
    assert run.code == 0, run.err
    expected = lengths(tmp_path, QUESTIONS)
    found = {dataset["path"]: dataset for dataset in run.profile["datasets"]}
    assert len(found) == len(FORMATS)
    for name, (kind, _) in FORMATS.items():
        dataset = found[f"data/{name}{suffix}"]
        assert dataset["histogram"] == expected, name
        assert (dataset["format"], dataset["field"]) == (kind, "question")


def test_members_of_archives_are_datasets_of_their_own(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "packs.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (_, data) in FORMATS.items():
            archive.writestr(f"sets/{name}", data)
        archive.writestr("README.md", "about the data")
        archive.writestr("inner.jsonl.gz", gzip.compress(as_jsonl(ROWS)))
    with tarfile.open(tmp_path / "packs.tar.gz", "w:gz") as tar:
        for name, (_, data) in FORMATS.items():
            member = tarfile.TarInfo(f"sets/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    run = analyze(tmp_path, "packs.zip", "packs.tar.gz")
    assert run.code == 0, run.err
    expected = lengths(tmp_path, QUESTIONS)
    datasets = run.profile["datasets"]
    assert len(datasets) == 2 * len(FORMATS) + 1
    assert all(dataset["histogram"] == expected for dataset in datasets)
    assert {dataset["group"] for dataset in datasets} == {"packs.zip", "packs.tar.gz"}
    assert "skipped packs.zip/README.md: about the data, not data" in run.err


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_is_opened_once_per_thread_and_not_once_per_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Listing a zip, or unpacking a tar, again for each of thousands of members took minutes."""
    texts = [f"how much is {n} and {n}?" for n in range(200)]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number, text in enumerate(texts):
            archive.writestr(f"{number}.txt", text)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        for number, text in enumerate(texts):
            member = tarfile.TarInfo(f"{number}.txt")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    openings = []
    usual = opening.open_whole

    def counted(source: Any) -> Any:
        openings.append(source)
        return usual(source)

    monkeypatch.setattr(opening, "open_whole", counted)
    run = analyze(tmp_path, f"a.{kind}")
    assert run.code == 0, run.err
    assert run.profile["overall"]["rows"] == 200
    assert openings
    # Two threads may now and then be one member apart in the other order.
    assert len(openings) <= 4 * (os.cpu_count() or 1)


def test_the_last_of_two_members_of_one_name_counts_as_when_unpacked(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for count in (1, 4):
            data = as_jsonl(prompts(count))
            member = tarfile.TarInfo("x.jsonl")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    assert analyze(tmp_path, "a.tar").dataset["rows"] == 4


def test_a_folder_from_save_to_disk_is_a_dataset_per_split(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    split = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"test": split, "train": split}).save_to_disk(tmp_path / "saved")
    run = analyze(tmp_path, "saved")
    assert run.code == 0, run.err
    expected = lengths(tmp_path, QUESTIONS)
    found = {dataset["name"]: dataset["histogram"] for dataset in run.profile["datasets"]}
    assert found == {"test": expected, "train": expected}


def test_a_text_file_is_a_prompt_and_its_lines_are_with_per_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(QUESTIONS) + "\n")
    whole = analyze(tmp_path, "a.txt").dataset
    assert (whole["rows"], whole["field"]) == (1, "whole file")
    lines = analyze(tmp_path, "a.txt", "--per-line").dataset
    assert lines["histogram"] == lengths(tmp_path, QUESTIONS)


def test_header_and_delimiter_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question~n\nhow far is it?~1\nand back again?~2\n")
    with_header = analyze(tmp_path, "a.csv", "--delimiter", "~", "--header").dataset
    assert with_header["rows"] == 2
    without = analyze(tmp_path, "a.csv", "--delimiter", "~", "--no-header").dataset
    assert (without["rows"], without["field"]) == (3, "column0")


def test_input_format_wins_over_the_suffix(tmp_path: Path) -> None:
    (tmp_path / "a.data").write_bytes(as_csv(ROWS))
    (tmp_path / "b.txt").write_bytes(as_jsonl(ROWS))
    assert analyze(tmp_path, "a.data", "--input-format", "csv").dataset["rows"] == 6
    assert analyze(tmp_path, "b.txt", "--input-format", "jsonl").dataset["rows"] == 6


# --- where they are -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.jsonl", []),
        ("a.json", []),
        ("held.json", []),
        ("a.parquet", []),
        ("a.feather", []),
        ("a.csv", []),
        ("semicolons.csv", []),
        ("a.csv", ["--input-format", "csv"]),
        ("a.jsonl", ["--input-format", "jsonl"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) or "found",
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_standard_input_is_a_dataset(
    tmp_path: Path, name: str, words: list[str], suffix: str
) -> None:
    data = PACKERS[suffix](FORMATS[name][1])
    run = analyze(tmp_path, "-", *words, stdin=data)
    assert run.code == 0, run.err
    assert run.dataset["histogram"] == lengths(tmp_path, QUESTIONS)
    assert (run.dataset["name"], run.dataset["path"]) == ("stdin", "-")


def test_a_real_pipe_works_like_a_file(tmp_path: Path) -> None:
    rows = [{"prompt": "word " * (n % 50)} for n in range(20_000)]
    for data in (as_jsonl(rows), gzip.compress(as_jsonl(rows)), as_parquet(rows)):
        run = analyze_apart(tmp_path, "-", stdin=data)
        assert run.code == 0, run.err
        assert run.dataset["rows"] == 20_000


def test_prose_with_commas_is_no_table(tmp_path: Path) -> None:
    run = analyze(tmp_path, "-", stdin=b"Hello, world\nThis is, as you see, prose\n")
    assert (run.dataset["format"], run.dataset["rows"]) == ("text", 1)


@pytest.mark.parametrize("data", [b"", b"\n\n"], ids=["nothing", "blank lines"])
def test_an_empty_pipe_is_an_error(tmp_path: Path, data: bytes) -> None:
    run = analyze(tmp_path, "-", stdin=data)
    assert run.code == 3
    assert "there are no rows in -" in run.err


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("data/a.jsonl", "data/sub/b.jsonl", "data/sub/deep/c.jsonl", "data/d.jsonl"):
        write_jsonl(tmp_path / name, prompts())
    (tmp_path / "data" / "README.md").write_text("about")
    (tmp_path / "data" / ".hidden.jsonl").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["data"], ["a", "d", "sub/b", "sub/deep/c"]),
        (["data/"], ["a", "d", "sub/b", "sub/deep/c"]),
        (["data/*.jsonl"], ["a", "d"]),
        (["data/**/*.jsonl"], ["a", "d", "sub/b", "sub/deep/c"]),
        (["data/**"], ["a", "d", "sub/b", "sub/deep/c"]),
        (["data/**/deep/*"], ["sub/deep/c"]),
        (["data/sub/**/c.jsonl"], ["deep/c"]),
        (["data", "--include", "sub/*"], ["sub/b", "sub/deep/c"]),
        (["data", "--exclude", "sub"], ["a", "d"]),
        (["data", "--include", "*.jsonl", "--exclude", "d.*"], ["a", "sub/b", "sub/deep/c"]),
        (["data/a.jsonl", "data/d.jsonl"], ["a", "d"]),
        (["data/a.jsonl", "data/a.jsonl", "./data/a.jsonl"], ["a"]),
        (["data/a.jsonl", "--name", "mine"], ["mine"]),
        (["data/a.jsonl", "data/d.jsonl", "--name", "x", "--name", "y"], ["x", "y"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_named_is_what_is_read(tree: Path, words: list[str], names: list[str]) -> None:
    run = analyze(tree, *words)
    assert run.code == 0, run.err
    assert sorted(dataset["name"] for dataset in run.profile["datasets"]) == sorted(names)


# --- what the prompt is ---------------------------------------------------------------------------

NESTED = [
    {
        "id": n,
        "turns": ["first " * n, "second"],
        "ctxs": [{"text": "a " * n}, {"text": "b"}],
        "meta": {"q": "why " * n},
        "odd key": "x " * n,
        "a.b": "dotted " * n,
        "long": "y " * 50,
    }
    for n in range(1, 5)
]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--field", "turns[0]"], lambda r: r["turns"][0]),
        (["--field", "turns[-1]"], lambda r: r["turns"][-1]),
        (["--field", "turns"], lambda r: "\n\n".join(r["turns"])),
        (["--field", "ctxs[].text"], lambda r: "\n\n".join(c["text"] for c in r["ctxs"])),
        (["--field", "meta.q"], lambda r: r["meta"]["q"]),
        (["--field", '["odd key"]'], lambda r: r["odd key"]),
        (["--field", "odd key"], lambda r: r["odd key"]),
        (["--field", "a.b"], lambda r: r["a.b"]),
        (["-f", "long", "-f", "meta.q"], lambda r: r["long"] + "\n\n" + r["meta"]["q"]),
        (
            ["--template", "{long}\\n\\nQ: {meta.q}"],
            lambda r: f"{r['long']}\n\nQ: {r['meta']['q']}",
        ),
        (["--template", "{{{id}}} {turns[1]}"], lambda r: f"{{{r['id']}}} {r['turns'][1]}"),
        (
            ["--field", "meta.q", "--prefix-file", "prefix.txt"],
            lambda r: "Some examples.\n\n" + r["meta"]["q"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_prompt_is_what_was_asked_for(
    tmp_path: Path, words: list[str], text: Callable[[Any], str]
) -> None:
    write_jsonl(tmp_path / "a.jsonl", NESTED)
    (tmp_path / "prefix.txt").write_bytes(b"\xef\xbb\xbfSome examples.\n\n")
    run = analyze(tmp_path, "a.jsonl", *words)
    assert run.code == 0, run.err
    assert run.dataset["histogram"] == lengths(tmp_path, [text(row) for row in NESTED])


def test_when_nothing_fits_the_error_lists_the_fields_with_examples(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"alpha": "x", "beta": "y", "gamma": 3}] * 3)
    run = analyze(tmp_path, "a.jsonl")
    assert run.code == 3
    assert "cannot tell which field is the prompt" in run.err
    assert 'alpha  text       "x"' in run.err
    assert "gamma  a number   3" in run.err
    near = analyze(tmp_path, "a.jsonl", "--field", "alhpa")
    assert near.code == 3
    assert "did you mean --field alpha?" in near.err


def test_reference_answers_are_counted_as_outputs(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [*ROWS, {"question": "no answer here"}])
    run = analyze(tmp_path, "a.jsonl", "--output-field", "answer")
    assert run.code == 0
    assert run.dataset["output_field"] == "answer"
    assert run.dataset["output_tokens"]["count"] == 6
    assert run.dataset["rows"] == 7


# --- traces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "output"),
    [
        ("ContextTokens", "GeneratedTokens"),
        ("input_length", "output_length"),
        ("num_prefill_tokens", "num_decode_tokens"),
    ],
)
def test_a_trace_needs_no_tokenizer(tmp_path: Path, prompt: str, output: str) -> None:
    (tmp_path / "trace.csv").write_text(f"TIMESTAMP,{prompt},{output}\n1,4808,10\n2,3180,8\n")
    assert engines_loaded(tmp_path, "trace.csv", "--no-cache") == set()
    run = analyze(tmp_path, "trace.csv")
    assert run.dataset["histogram"] == {"3180": 1, "4808": 1}
    assert run.dataset["output_histogram"] == {"8": 1, "10": 1}
    assert run.profile["tokenizer"]["kind"] == "none"
    assert "no tokenizer was needed" in run.out


def test_lengths_that_are_none_are_bad_rows(tmp_path: Path) -> None:
    values = ["5", "-1", "x", "", "1.5", "1e3", "NaN", "9" * 30, "7"]
    rows = "".join(f"{value},1\n" for value in values)
    (tmp_path / "trace.csv").write_text("ContextTokens,GeneratedTokens\n" + rows)
    run = analyze(tmp_path, "trace.csv")
    assert run.code == 3
    assert run.dataset["histogram"] == {"5": 1, "7": 1}
    assert run.dataset["skipped"] == 7


# --- chats ----------------------------------------------------------------------------------------

MESSAGES = [{"role": "user", "content": "How far is it?"}]
CHATS: dict[str, Any] = {
    "messages": {"messages": MESSAGES},
    "conversations": {"conversations": [{"from": "human", "value": "How far is it?"}]},
    "batch request": {"custom_id": "1", "method": "POST", "body": {"messages": MESSAGES}},
    "content parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "How far is it?"}]}]
    },
    "bare list": MESSAGES,
}


def test_chats_are_rendered_and_more_than_their_text(tmp_path: Path) -> None:
    for name, row in CHATS.items():
        write_jsonl(tmp_path / "chats" / f"{name}.jsonl", [row] * 3)
    chats = analyze(tmp_path, "chats")
    plains = analyze(tmp_path, "chats", "--no-chat-template")
    assert chats.code == plains.code == 0, chats.err + plains.err
    expected = lengths(tmp_path, ["How far is it?"] * 3)
    pairs = zip(chats.profile["datasets"], plains.profile["datasets"], strict=True)
    for chat, plain in pairs:
        assert (chat["kind"], chat["rows"], plain["kind"]) == ("chat", 3, "text"), chat["name"]
        assert plain["histogram"] == expected
        assert chat["tokens"]["min"] > plain["tokens"]["min"]


def test_a_template_from_a_file_is_used_for_chats_and_for_texts(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    write_jsonl(tmp_path / "chat.jsonl", [CHATS["messages"]])
    write_jsonl(tmp_path / "text.jsonl", [{"prompt": "How far is it?"}])
    rendered = "<user>How far is it?<assistant>"
    expected = lengths(tmp_path, [rendered])
    for words in (["chat.jsonl"], ["text.jsonl", "--apply-chat-template"]):
        run = analyze(tmp_path, *words, "--chat-template", "t.jinja")
        assert run.code == 0, run.err
        # The template writes the special tokens itself: this one writes none, so one is missing.
        assert run.dataset["tokens"]["max"] == int(next(iter(expected))) - 1
    assert run.dataset["field"] == "prompt (as chat)"


def test_a_tokenizer_without_a_template_says_what_to_do(tmp_path: Path, shared: Path) -> None:
    tokenizer = shared / "tokenizers" / "gpt2" / "tokenizer.json"
    write_jsonl(tmp_path / "a.jsonl", [CHATS["messages"]])
    run = analyze(tmp_path, "a.jsonl", "--tokenizer", tokenizer)
    assert run.code == 3
    assert "has no chat template" in run.err
    assert "--chat-template FILE" in run.err
    assert "--no-chat-template" in run.err


def test_a_template_that_prints_the_date_is_said_and_can_be_pinned(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{{ strftime_now('%A, %d %B %Y') }}{{ messages[0].content }}")
    write_jsonl(tmp_path / "a.jsonl", [CHATS["messages"]])
    run = analyze(tmp_path, "a.jsonl", "--chat-template", "t.jinja")
    assert "the chat template prints the date" in run.err
    short, long = (
        analyze(tmp_path, "a.jsonl", "--chat-template", "t.jinja", "--chat-date", day).dataset
        for day in ("2026-05-04", "2026-09-30")
    )
    assert short["chars"] < long["chars"]


def test_a_conversation_that_is_refused_is_a_bad_row_and_so_is_its_answer(tmp_path: Path) -> None:
    backwards = [{"role": "assistant", "content": "first"}, {"role": "system", "content": "second"}]
    rows = [{"messages": MESSAGES, "answer": "3 km"}] * 3
    write_jsonl(tmp_path / "a.jsonl", [*rows, {"messages": backwards, "answer": "none " * 50}])
    run = analyze(tmp_path, "a.jsonl", "--output-field", "answer")
    assert run.code == 3
    assert (run.dataset["rows"], run.dataset["skipped"]) == (3, 1)
    assert run.dataset["output_tokens"]["count"] == 3


def test_a_template_that_fails_is_a_bad_row_and_a_broken_one_an_error(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [CHATS["messages"]])
    for text, said in (
        ("{{ raise_exception('no thanks') }}", "no thanks"),
        ("{% if %}", "not valid Jinja"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
    ):
        (tmp_path / "t.jinja").write_text(text)
        run = analyze(tmp_path, "a.jsonl", "--chat-template", "t.jinja")
        assert run.code == 3
        assert said in run.err


# --- from Python ----------------------------------------------------------------------------------


def test_python_gives_the_same_profile_as_the_command(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", ROWS)
    profile = chunkscope.analyze(str(file))
    assert profile.overall.max == analyze(tmp_path, file).dataset["tokens"]["max"]
    assert chunkscope.analyze([file]).overall == chunkscope.analyze(file).overall == profile.overall


def test_a_profile_survives_json(tmp_path: Path) -> None:
    rows = [*ROWS, {"question": None}]
    options = AnalyzeOptions(sample=4)
    profile = chunkscope.analyze(write_jsonl(tmp_path / "a.jsonl", rows), options=options)
    read_back = Profile.from_json(json.loads(json.dumps(profile.to_json())))
    assert read_back == replace(profile, version=chunkscope.__version__)
    profile.save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json").to_json() == profile.to_json()


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.update(schema="chunkscope/profile/2"),
        lambda p: p.update(schema="something/else"),
        lambda p: p.pop("datasets"),
        lambda p: p["datasets"][0].update(rows=99),
        lambda p: p["datasets"][0].update(histogram={"x": 1}),
        lambda p: p["datasets"][0].update(histogram={"5": -1}),
        lambda p: p["datasets"][0].update(unknown=1),
        lambda p: p.update(tokenizer=None),
    ],
)
def test_a_profile_that_was_tampered_with_is_refused(
    tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    profile = chunkscope.analyze(write_jsonl(tmp_path / "a.jsonl", ROWS)).to_json()
    change(profile)
    (tmp_path / "p.json").write_text(json.dumps(profile))
    with pytest.raises(InputError):
        Profile.load(tmp_path / "p.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff", b'"chunkscope/profile/2"'])
def test_a_profile_that_is_none_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "p.json").write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        Profile.load(tmp_path / "p.json")


def test_profiles_add_up(tmp_path: Path) -> None:
    a = chunkscope.analyze(write_jsonl(tmp_path / "x" / "a.jsonl", ROWS[:2]))
    b = chunkscope.analyze(write_jsonl(tmp_path / "y" / "a.jsonl", ROWS[2:]))
    both = a + b
    assert both.overall == a.overall + b.overall
    assert [dataset.name for dataset in both.datasets] == ["a", "a#2"]
    assert Profile.from_json(both.to_json()).overall == both.overall


def test_a_trace_adds_to_anything_since_no_tokenizer_counted_it(tmp_path: Path) -> None:
    texts = chunkscope.analyze(write_jsonl(tmp_path / "a.jsonl", ROWS))
    trace = chunkscope.analyze(
        write_jsonl(tmp_path / "t.jsonl", [{"input_length": 7, "output_length": 1}])
    )
    for both in (texts + trace, trace + texts):
        assert both.overall.count == 7
        assert both.tokenizer == texts.tokenizer


def test_lengths_of_different_tokenizers_do_not_add_up(tmp_path: Path, shared: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", ROWS)
    tokenizer = shared / "tokenizers" / "gpt2" / "tokenizer.json"
    with pytest.raises(InputError, match="different tokenizers"):
        chunkscope.analyze(file) + chunkscope.analyze(file, str(tokenizer))


def test_a_profile_becomes_a_table(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    write_jsonl(tmp_path / "b.jsonl", prompts())
    frame = chunkscope.analyze(tmp_path).to_frame()
    assert list(frame["name"]) == ["a", "b"]
    assert list(frame["rows"]) == [6, 3]
    assert {"p50", "p95", "max", "over_2K", "chars_per_token"} <= {*frame.columns}


def test_python_errors_are_all_of_one_kind(tmp_path: Path) -> None:
    for paths in ([], "", "nope.jsonl", [tmp_path]):
        with pytest.raises(ChunkscopeError):
            chunkscope.analyze(paths)


def test_the_tokenizer_that_was_named_is_written_down(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", ROWS)
    profile = chunkscope.analyze(file, "default", options=AnalyzeOptions(sample=2))
    assert profile.options["tokenizer"] == "default"
