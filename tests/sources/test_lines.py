"""Rows of text: lines, whole documents, parts of either, and what packs them."""

import gzip
import json
import os

import pytest

from chunkscope.errors import InputError
from chunkscope.sources import json_document, jsonl
from chunkscope.sources.base import CHUNK_BYTES, Source
from chunkscope.sources.open import open_stream
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
    monkeypatch.setattr(jsonl, "MOST_ROW_BYTES", 1 << 20)
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


# --- plain text -----------------------------------------------------------------------


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


# -- compressed ------------------------------------------------------------------------


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
        sizes = [len(block) for block in iter(lambda: stream.read1(), b"")]
    assert sum(sizes) == 32 << 20
    assert max(sizes) <= CHUNK_BYTES


def test_what_reads_a_stream_without_a_size_gets_all_of_it(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b"a" * (3 * CHUNK_BYTES)))
    with open_stream(Source(path=path.name, file=path)) as stream:
        assert len(stream.read()) == 3 * CHUNK_BYTES


# -- documents -------------------------------------------------------------------------


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
    monkeypatch.setattr(json_document, "MOST_DOCUMENT_BYTES", CHUNK_BYTES)
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
