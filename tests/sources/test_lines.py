import gzip
import json

import pytest

from chunkscope.sources import json_rows
from chunkscope.sources.base import CHUNK_BYTES
from tests.sources.helpers import read, read_bytes


def test_the_head_shows_many_rows_however_long_the_first_is():
    rows = [{"task": "x" * 2000}, *({"task": str(n)} for n in range(150))]
    assert len(read_bytes("x.jsonl", "\n".join(map(json.dumps, rows)).encode()).head) >= 100


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"a": 1}\n{"a": 2}', id="no newline at the end"),
        pytest.param(b'{"a": 1}\r\n{"a": 2}\r\n', id="CRLF"),
        *('\ufeff{"a": 1}\n{"a": 2}\n'.encode(f"utf-{form}") for form in ("8", "16-le", "32-be")),
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
    error = read_bytes("x.jsonl", gzip.compress(b'{"prompt": "' + b"a" * (8 << 20))).error
    assert "x.jsonl:1 " in error.message


def test_what_python_writes_beyond_json_and_odd_line_ends_inside_a_string_are_read():
    text = "one\u2028two\u0085three"
    line = json.dumps({"a": text}, ensure_ascii=False).encode()
    result = read_bytes(
        "x.jsonl", line + b'\n{"b": -Infinity, "c": 123456789012345678901234567890}\n'
    )
    assert result.records[0] == {"a": text}
    assert result.records[1] == {"b": float("-inf"), "c": 123456789012345678901234567890}


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
