import json

import pytest

from chunkscope.sources.base import CHUNK_BYTES
from tests.sources.helpers import read, shared


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


def test_each_line_is_a_record_and_positions_are_line_numbers(jsonl):
    result = read(jsonl(b'{"a": 1}\n{"a": 2}\n'))
    assert (result.records, result.positions) == ([{"a": 1}, {"a": 2}], [1, 2])
    assert (result.unit, result.format, result.bad) == ("line", "jsonl", [])


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
    assert (result.records, result.bad) == ([{"a": 1}, {"a": 2}], [])


def test_blank_lines_are_no_rows_but_count_as_lines(jsonl):
    result = read(jsonl(b'\n{"a": 1}\n\r\n   \n{"a": 2}\n\n'))
    assert (result.positions, result.bad) == ([2, 5], [])


def test_line_separators_inside_a_string_are_data(jsonl):
    text = "one\u2028two\u0085three\x0bfour\x1cfive"
    result = read(jsonl(json.dumps({"a": text}, ensure_ascii=False).encode() + b"\n"))
    # \x0b and \x1c must be escaped in JSON, and json.dumps does that
    assert result.records == [{"a": text}]


def test_a_broken_line_in_the_middle_costs_only_itself(jsonl):
    result = read(jsonl(b'{"a": 1}\n{"a": oops}\n{"a": 3}\n'))
    assert result.positions == [1, 3]
    ((line, reason),) = result.bad
    assert line == 2
    assert "column 7" in reason


def test_a_cut_last_line_is_a_bad_row_that_says_so(jsonl):
    result = read(jsonl(b'{"a": 1}\n{"a": "tw'))
    assert result.positions == [1]
    assert [line for line, _ in result.bad] == [2]


def test_latin_1_is_a_bad_row_with_a_way_out(jsonl):
    path = jsonl(b'{"a": "caf\xe9"}\n{"a": "tea"}\n')
    result = read(path)
    assert result.records == [{"a": "tea"}]
    ((line, reason),) = result.bad
    assert line == 1
    assert "encoding" in reason
    assert read(path, encoding="latin-1").records == [{"a": "café"}, {"a": "tea"}]


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
    ],
)
def test_what_cannot_be_a_row_is_a_bad_row(jsonl, line):
    result = read(jsonl(line + b'\n{"a": 2}\n'))
    assert result.records == [{"a": 2}]
    assert [number for number, _ in result.bad] == [1]


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


def test_real_evaluation_sets_have_no_bad_rows():
    assert len(read(shared("gsm8k", "test.jsonl")).records) == 1319
    assert len(read(shared("humaneval", "HumanEval.jsonl.gz")).records) == 164
