"""Rows of text: lines, whole documents, parts of either, and what packs them."""

import gzip
import json
import os
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.errors import InputError
from chunkscope.sources import json_rows
from chunkscope.sources.base import CHUNK_BYTES, Problems, ReadOptions, Source
from chunkscope.sources.reader import RecordReader, split
from chunkscope.sources.streams import open_stream
from tests.sources.helpers import PACKERS, read, read_bytes


def test_the_head_shows_many_rows_however_long_the_first_is():
    rows = [{"task": "x" * 2000}, *({"task": str(n)} for n in range(150))]
    head = read_bytes("x.jsonl", "\n".join(map(json.dumps, rows)).encode()).head
    assert len(head) >= 100
    assert head[0] == rows[0]
    assert head[-1]["task"] > "140", (
        "sets are often sorted: their first rows are all of one kind"
    )


@pytest.mark.parametrize(
    "suffix", ["jsonl", "json", "csv", "txt", "parquet", "jsonl.gz"]
)
def test_a_git_lfs_pointer_is_no_data(suffix):
    data = (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    )
    result = read_bytes(f"x.{suffix}", data)
    assert "Git LFS pointer" in result.error.message
    assert (result.records, result.bad) == ([], [])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"a": 1}\n{"a": 2}', id="no newline at the end"),
        pytest.param(b'{"a": 1}\r\n{"a": 2}\r\n', id="CRLF"),
        *(
            '\ufeff{"a": 1}\n{"a": 2}\n'.encode(f"utf-{form}")
            for form in ("8", "16-le", "32-be")
        ),
    ],
)
def test_every_kind_of_text_file_gives_the_same_rows(data):
    result = read_bytes("x.jsonl", data)
    assert (result.records, result.positions) == ([{"a": 1}, {"a": 2}], [1, 2])
    assert (result.unit, result.format, result.bad) == ("line", "jsonl", [])
    blank = read_bytes("x.jsonl", b'\n{"a": 1}\n\r\n   \n{"a": 2}\n\n')
    assert (blank.positions, blank.bad) == ([2, 5], []), "blank lines count as lines"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"a": "x\0y"}', id="a NUL byte"),
        pytest.param(b"[" * 100_000, id="nesting"),
        pytest.param(b"9" * 10_000, id="a number beyond reason"),
        pytest.param(b'{"a": 1} {"a": 2}', id="two values on a line"),
        pytest.param(b'{"a": "caf\xe9"}', id="Latin-1"),
    ],
)
def test_what_cannot_be_a_row_is_a_bad_row(line):
    result = read_bytes("x.jsonl", line + b'\n{"a": 2}\n{"a": "cu')
    assert result.records == [{"a": 2}]
    assert [number for number, _ in result.bad] == [1, 3]


@pytest.mark.parametrize(
    "sizes",
    [
        *((CHUNK_BYTES - len('{"a":""}\n') + around, 1, 1) for around in (-1, 0, 1)),
        tuple(CHUNK_BYTES * halves // 2 for halves in (1, 9, 0, 5, 1, 7)),
    ],
    ids=str,
)
def test_rows_on_the_edge_of_a_block_or_longer_than_one_stay_whole(sizes):
    rows = [{"a": str(place) * size} for place, size in enumerate(sizes)]
    data = b"\n".join(json.dumps(row, separators=(",", ":")).encode() for row in rows)
    result = read_bytes("x.jsonl", data)
    assert result.records == rows
    assert result.positions == list(range(1, len(rows) + 1))


def test_a_row_that_would_fill_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr(json_rows, "MOST_ROW_BYTES", 1 << 20)
    error = read_bytes(
        "x.jsonl", gzip.compress(b'{"prompt": "' + b"a" * (8 << 20))
    ).error
    assert "x.jsonl:1 " in error.message


def test_what_python_writes_beyond_json_and_odd_line_ends_inside_a_string_are_read():
    text = "one\u2028two\u0085three"
    line = json.dumps({"a": text}, ensure_ascii=False).encode()
    result = read_bytes(
        "x.jsonl", line + b'\n{"b": -Infinity, "c": 123456789012345678901234567890}\n'
    )
    assert result.records[0] == {"a": text}
    assert result.records[1] == {
        "b": float("-inf"),
        "c": 123456789012345678901234567890,
    }


# --- plain text ---------------------------------------------------------------------------------


def test_a_text_file_is_one_prompt_or_each_line_that_is_not_blank(tmp_path):
    path, text = tmp_path / "x.md", "one\r\n\n  \ntwo\u2028still two\nthree\n"
    path.write_bytes(text.encode())
    assert (read(path).records, read(path).positions) == ([text], [1])
    result = read(path, per_line=True)
    assert result.records == ["one", "two\u2028still two", "three"]
    assert (result.positions, result.unit) == ([1, 4, 5], "line")


def test_latin_1_is_a_bad_row_that_says_where(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"fine\ncaf\xe9\n")
    assert "byte 9 (0xe9)" in read(path).bad[0][1]
    assert "byte 4 (0xe9)" in read(path, per_line=True).bad[0][1]
    assert read(path, encoding="ascii", per_line=True).records == ["fine"]


# -- compressed ------------------------------------------------------------------------------------


LONG_ROWS = b"".join(
    b'{"b": "%s"}\n' % os.urandom(500).hex().encode() for _ in range(3000)
)


@pytest.mark.parametrize("suffix", PACKERS)
def test_rows_before_a_cut_or_damage_are_read_and_then_it_is_said(suffix):
    name, packed = f"x.jsonl.{suffix}", PACKERS[suffix](LONG_ROWS)
    start, rest = packed[: len(packed) // 2], packed[len(packed) // 2 + 40 :]
    cut, damaged = (
        read_bytes(name, start),
        read_bytes(name, start + b"\xff" * 40 + rest),
    )
    assert 500 < len(cut.records) < 2000
    for error in (cut.error, damaged.error):
        assert isinstance(error, InputError)
        assert name in error.message


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_bomb_comes_out_in_bounded_pieces(tmp_path, suffix):
    path = tmp_path / f"x.txt.{suffix}"
    path.write_bytes(PACKERS[suffix](b"\0" * (32 << 20)))
    with open_stream(Source(path=path.name, file=path)) as stream:
        sizes = [len(block) for block in iter(stream.read, b"")]
    assert sum(sizes) == 32 << 20
    assert max(sizes) <= CHUNK_BYTES


# -- parts, for tasks on other machines ------------------------------------------------------------


def source(size: int | None, path: str = "x.jsonl", **more: object) -> Source:
    form = path.rpartition("/")[2].split(".")[1]
    return Source(
        name="x", group="", path=path, format=form, file=Path(path), bytes=size, **more
    )


def bytes_of(path: Path, start: int, end: int) -> bytes:
    part = source(None, str(path), part=range(start, end))
    with RecordReader(part, ReadOptions(), Problems()) as reader:
        return b"".join(iter(lambda: reader.stream.read(7), b""))


@given(
    st.lists(st.sampled_from([b"\n", b"a", b"bc", b"defghij" * 3]), max_size=30),
    st.sets(st.integers(1, 60), max_size=5),
    st.booleans(),
)
def test_every_line_is_in_one_part(tmp_path_factory, parts, cuts, has_mark) -> None:
    text = b"".join(parts)
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + text if has_mark else text)
    bounds = [0, *sorted(cuts), 1000]
    pieces = [bytes_of(path, start, end) for start, end in pairwise(bounds)]
    lines = [line for piece in pieces for line in piece.splitlines(keepends=True)]
    assert lines == text.splitlines(keepends=True), "none is cut"


def test_the_parts_of_a_file_hold_all_its_rows_in_order(tmp_path):
    records = [{"q": f"{n}" * 50} for n in range(300)]
    pq.write_table(
        pa.Table.from_pylist(records), tmp_path / "x.parquet", row_group_size=20
    )
    lines = tmp_path / "x.jsonl"
    lines.write_text("".join(f'{{"q": "{row["q"]}"}}\n' for row in records))
    for path in (lines, tmp_path / "x.parquet"):
        whole = source(path.stat().st_size, str(path))
        parts = split(whole, whole.bytes // 5)
        assert len(parts) > 4
        assert [row for part in parts for row in read(part).records] == records
        with RecordReader(whole, ReadOptions(), Problems()) as reader:
            reader.head()
            assert reader.is_divisible


def test_only_large_files_that_have_places_to_begin_at_are_divided() -> None:
    parts = [part.part for part in split(source(1000), 400)]
    assert parts == [range(400), range(400, 800), range(800, 1000)]
    assert len(split(source(1000, "x.parquet"), 400)) == 3
    small = (source(400), source(None))
    packed = (source(1000, "x.jsonl.gz"), source(1000, member="a.jsonl"))
    for other in (*small, *packed, source(1000, "x.csv"), source(1000, rendered=True)):
        assert split(other, 400) == [other]


# -- documents -------------------------------------------------------------------------------------


SHAPES = [
    pytest.param(
        [{"q": "a"}, {"q": "b"}], [{"q": "a"}, {"q": "b"}], id="array of objects"
    ),
    pytest.param(["a long prompt", "b"], ["a long prompt", "b"], id="array of strings"),
    pytest.param(
        {"canary": "x", "rows": [{"q": "a"}], "n": [1]}, [{"q": "a"}], id="under a key"
    ),
    pytest.param(
        {"question": ["a", "b"], "answer": [1, 2]},
        [{"question": "a", "answer": 1}, {"question": "b", "answer": 2}],
        id="columns",
    ),
    pytest.param(
        {"q": {"0": "a", "1": "b"}}, [{"q": "a"}, {"q": "b"}], id="columns of pandas"
    ),
    pytest.param(
        {"messages": {"0": [{"role": "user", "content": "hi"}], "1": []}},
        [{"messages": [{"role": "user", "content": "hi"}]}, {"messages": []}],
        id="chats as pandas writes them",
    ),
    pytest.param(
        {
            "columns": ["q", "n"],
            "index": [0],
            "data": [["a", 1], ["b", 2]],
            "index_names": [None],
        },
        [{"q": "a", "n": 1}, {"q": "b", "n": 2}],
        id="split as pandas writes it",
    ),
    pytest.param(
        {"x1": {"q": "a"}, "x2": {"q": "b"}}, [{"q": "a"}, {"q": "b"}], id="by number"
    ),
    pytest.param(
        {"x": {"query": ""}, "y": {"query": ""}}, [{"query": ""}] * 2, id="by name"
    ),
    *(
        pytest.param(row, [row], id=f"one row: {row}")
        for row in (
            {"question": "what is it?", "choices": ["a", "b"]},
            {"messages": [{"role": "user", "content": "hi"}]},
            {"train": [{"q": "a"}], "test": [{"q": "b"}]},
            {"q": ["a", "b"], "n": [1]},
            {"in": {"q": "a"}, "out": {"q": "b"}},
            {"q": {"0": "a"}, "n": {"1": 2}},
            {"history": [{"role": "user", "content": "a"}] * 4},
            {
                "chat": {"messages": [{"role": "user", "content": "a"}]},
                "meta": {"n": 1},
            },
        )
    ),
    pytest.param(
        {"rows": [{"role": "user"}]}, [{"role": "user"}], id="rows of a role alone"
    ),
    pytest.param(
        {"features": [{"n": 0}], "rows": [{"q": 1}]}, [{"q": 1}], id="the hub's viewer"
    ),
    pytest.param([], [], id="empty array"),
]


@pytest.mark.parametrize(("value", "rows"), SHAPES)
def test_the_rows_are_found_in_any_shape(value, rows):
    result = read_bytes("x.json", json.dumps(value))
    if isinstance(value, list):
        assert read_bytes("x.jsonl", json.dumps(value)).records == rows, (
            "in spite of the name"
        )
    large = read_bytes("x.json", json.dumps(value) + " " * (3 * CHUNK_BYTES))
    assert large.records == result.records
    assert (result.records, result.bad) == (rows, [])
    assert result.positions == list(range(1, len(rows) + 1))


def test_a_document_that_would_fill_the_memory_is_refused_and_lines_are_not(
    monkeypatch,
):
    monkeypatch.setattr(json_rows, "MOST_DOCUMENT_BYTES", CHUNK_BYTES)
    for value in ([{"q": "x" * 1000}] * 2000, {"rows": ["x" * 3 * CHUNK_BYTES]}):
        assert "x.json" in read_bytes("x.json", json.dumps(value)).error.message
    rows = b'{"q": "%s"}\n' % (b"x" * 100) * 20_000  # lines named .json: a row each
    assert len(read_bytes("x.json", rows).records) == 20_000


@pytest.mark.parametrize("suffix", ["json", "txt", "csv"])
@pytest.mark.parametrize("bad", [1, 2])
def test_json_lines_of_another_name_are_read_as_lines(bad, suffix):
    lines = [b'{"a": 1}', b'{"a": 2}', b'{"a": 3}']
    lines[bad - 1] = b'{"a": oops}'
    result = read_bytes(f"x.{suffix}", b"\n".join(lines))
    assert (result.format, result.unit) == ("jsonl", "line")
    assert [record["a"] for record in result.records] == [
        n for n in (1, 2, 3) if n != bad
    ]
    assert result.bad[0][0] == bad
    assert len(read_bytes("x.txt", b"\n".join(lines), per_line=True).records) == 3, (
        "if told so"
    )
    for end, rows in ((b"", 2), (b" Make it YAML.", 1)):
        assert len(read_bytes("x.txt", b'[{"a": 1},\n {"a": 2}]' + end).records) == rows


def test_rows_on_several_lines_each_are_read_whatever_the_name():
    rows = [{"a": [{"b": "} {"}, {"c": "}\n{"}], "n": n} for n in range(3)]
    text = "\n".join(json.dumps(row, indent=2) for row in rows)
    assert [read_bytes(f"x.{kind}", text).records for kind in ("json", "jsonl")] == [
        rows,
        rows,
    ]


@pytest.mark.parametrize("data", [b"", b"  \n ", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_rows(data):
    result = read_bytes("x.json", data)
    assert (result.records, result.error) == ([], None)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'[{"a": 1},\n {"a": 2},\n {"a": ', id="cut inside a row"),
        pytest.param(b'[{"a": 1}, 2] trailing', id="more after the end"),
        pytest.param(b'[{"a": "caf\xe9"}, {"a": "tea"}]', id="not UTF-8"),
    ],
)
def test_a_broken_document_is_refused_by_name(data):
    result = read_bytes("x.json", data)
    assert (result.records, "x.json" in result.error.message) == ([], True)
