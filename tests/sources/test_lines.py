import json

import pytest

from chunkscope.sources.base import CHUNK_BYTES
from chunkscope.sources.json_rows import not_utf8
from tests.sources.helpers import read


@pytest.fixture
def jsonl(tmp_path):
    def write(data: bytes):
        path = tmp_path / "x.jsonl"
        path.write_bytes(data)
        return path

    return write


def test_the_head_shows_many_rows_however_long_the_first_is(jsonl):
    rows = [{"task": "x" * 2000}, *({"task": str(n)} for n in range(150))]
    assert len(read(jsonl("\n".join(map(json.dumps, rows)).encode())).head) >= 100


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"a": 1}\n{"a": 2}', id="no newline at the end"),
        pytest.param(b'{"a": 1}\r\n{"a": 2}\r\n', id="CRLF"),
        pytest.param(b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n', id="BOM"),
        pytest.param('\ufeff{"a": 1}\n{"a": 2}\n'.encode("utf-16-le"), id="UTF-16"),
        pytest.param('\ufeff{"a": 1}\n{"a": 2}\n'.encode("utf-32-be"), id="UTF-32"),
    ],
)
def test_every_kind_of_text_file_gives_the_same_rows(jsonl, data):
    result = read(jsonl(data))
    assert (result.records, result.positions) == ([{"a": 1}, {"a": 2}], [1, 2])
    assert (result.unit, result.format, result.bad) == ("line", "jsonl", [])


def test_blank_lines_are_no_rows_but_count_as_lines(jsonl):
    result = read(jsonl(b'\n{"a": 1}\n\r\n   \n{"a": 2}\n\n'))
    assert (result.positions, result.bad) == ([2, 5], [])


def test_line_separators_inside_a_string_are_data(jsonl):
    text = "one\u2028two\u0085three\x0bfour\x1cfive"
    result = read(jsonl(json.dumps({"a": text}, ensure_ascii=False).encode() + b"\n"))
    # \x0b and \x1c must be escaped in JSON, and json.dumps does that
    assert result.records == [{"a": text}]


def test_what_python_writes_beyond_json_is_read(jsonl):
    result = read(jsonl(b'{"a": NaN, "b": -Infinity, "c": 123456789012345678901234567890}\n'))
    (record,) = result.records
    assert record["a"] != record["a"]
    assert record["c"] == 123456789012345678901234567890


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"a": "x\0y"}', id="a NUL byte"),
        pytest.param(b"[" * 100_000, id="nesting"),
        pytest.param(b"9" * 10_000, id="a number beyond reason"),
        pytest.param(b'{"a": 1} {"a": 2}', id="two values on a line"),
        pytest.param(b'{"a": oops}', id="no JSON"),
        pytest.param(b'{"a": "caf\xe9"}', id="Latin-1"),
    ],
)
def test_what_cannot_be_a_row_is_a_bad_row(jsonl, line):
    result = read(jsonl(line + b'\n{"a": 2}\n{"a": "cu'))
    assert result.records == [{"a": 2}]
    assert [number for number, _ in result.bad] == [1, 3]


@pytest.mark.parametrize("around", [-2, -1, 0, 1, 2])
def test_rows_on_the_edge_of_a_block_stay_whole(jsonl, around):
    rows = [{"a": "x" * (CHUNK_BYTES - len('{"a":""}\n') + around)}, {"a": "y"}, {"a": "z"}]
    data = b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)
    result = read(jsonl(data))
    assert result.records == rows
    assert result.positions == [1, 2, 3]


def test_rows_longer_than_a_block_come_alone_and_in_order(jsonl):
    rows = [{"a": str(i) * (CHUNK_BYTES * size // 2)} for i, size in enumerate((1, 9, 0, 5, 1, 7))]
    path = jsonl(b"\n".join(json.dumps(row).encode() for row in rows))
    result = read(path)
    assert result.records == rows
    assert result.positions == [1, 2, 3, 4, 5, 6]


# --- plain text ---------------------------------------------------------------------------------


def test_a_text_file_is_one_prompt_as_it_is(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"line one\r\nline two\n\n")
    result = read(path)
    assert (result.records, result.positions) == (["line one\r\nline two\n\n"], [1])


def test_per_line_each_line_is_a_prompt_and_blank_ones_are_not(tmp_path):
    path = tmp_path / "x.md"
    path.write_bytes("one\r\n\n  \ntwo\u2028still two\nthree".encode())
    result = read(path, per_line=True)
    assert result.records == ["one", "two\u2028still two", "three"]
    assert (result.positions, result.unit) == ([1, 4, 5], "line")


def test_latin_1_is_a_bad_row_that_says_where(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"fine\ncaf\xe9\n")
    assert read(path).bad == [(1, f"line 2: {not_utf8(0xE9, 4)}")]
    assert read(path, per_line=True).bad == [(2, not_utf8(0xE9, 4))]
    assert read(path, encoding="latin-1").records == ["fine\ncafé\n"]
