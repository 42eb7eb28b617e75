import json

import pytest

from chunkscope.sources import json_rows
from chunkscope.sources.base import CHUNK_BYTES
from tests.sources.helpers import read_bytes

SHAPES = [
    pytest.param([{"q": "a"}, {"q": "b"}], [{"q": "a"}, {"q": "b"}], id="array of objects"),
    pytest.param(["a long prompt", "b"], ["a long prompt", "b"], id="array of strings"),
    pytest.param({"canary": "x", "rows": [{"q": "a"}], "n": [1]}, [{"q": "a"}], id="under a key"),
    pytest.param(
        {"question": ["a", "b"], "answer": [1, 2]},
        [{"question": "a", "answer": 1}, {"question": "b", "answer": 2}],
        id="columns",
    ),
    pytest.param({"q": {"0": "a", "1": "b"}}, [{"q": "a"}, {"q": "b"}], id="columns of pandas"),
    pytest.param(
        {"columns": ["q", "n"], "index": [0], "data": [["a", 1], ["b", 2]], "index_names": [None]},
        [{"q": "a", "n": 1}, {"q": "b", "n": 2}],
        id="split as pandas writes it",
    ),
    pytest.param({"x1": {"q": "a"}, "x2": {"q": "b"}}, [{"q": "a"}, {"q": "b"}], id="by number"),
    pytest.param({"x": {"query": ""}, "y": {"query": ""}}, [{"query": ""}] * 2, id="by name"),
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
        )
    ),
    pytest.param({"rows": [{"role": "user"}]}, [{"role": "user"}], id="rows of a role alone"),
    pytest.param({"features": [{"n": 0}], "rows": [{"q": 1}]}, [{"q": 1}], id="the hub's viewer"),
    pytest.param([], [], id="empty array"),
]


@pytest.mark.parametrize(("value", "rows"), SHAPES)
def test_the_rows_are_found_in_any_shape(value, rows):
    result = read_bytes("x.json", json.dumps(value))
    if isinstance(value, list):
        assert read_bytes("x.jsonl", json.dumps(value)).records == rows, "in spite of the name"
    large = read_bytes("x.json", json.dumps(value) + " " * (3 * CHUNK_BYTES))
    assert large.records == result.records
    assert (result.records, result.bad) == (rows, [])
    assert result.positions == list(range(1, len(rows) + 1))


def test_a_document_that_would_fill_the_memory_is_refused_and_lines_are_not(monkeypatch):
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
    assert [record["a"] for record in result.records] == [n for n in (1, 2, 3) if n != bad]
    assert result.bad[0][0] == bad
    assert len(read_bytes("x.txt", b"\n".join(lines), per_line=True).records) == 3, "if told so"
    for end, rows in ((b"", 2), (b" Make it YAML.", 1)):
        assert len(read_bytes("x.txt", b'[{"a": 1},\n {"a": 2}]' + end).records) == rows


def test_rows_on_several_lines_each_are_read_whatever_the_name():
    rows = [{"a": [{"b": "} {"}, {"c": "}\n{"}], "n": n} for n in range(3)]
    text = "\n".join(json.dumps(row, indent=2) for row in rows)
    assert [read_bytes(f"x.{kind}", text).records for kind in ("json", "jsonl")] == [rows, rows]


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
