import json

import pytest
from chunkscope.sources.documents import DocumentReader

from chunkscope.sources.base import CHUNK_BYTES, Problems, Source
from chunkscope.sources.opening import open_bytes
from tests.sources.helpers import read, shared


@pytest.fixture
def document(tmp_path):
    def write(value):
        path = tmp_path / "x.json"
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        return path

    return write


def read_streaming(path):
    """Read as if the file were too large to be parsed in one go."""
    problems = Problems()
    source = Source(name="x", group="", path="x.json", format="json", file=path)
    stream = open_bytes(path, shown="x.json")
    with DocumentReader(source, problems, stream, whole_bytes=16) as reader:
        records = [record for chunk in reader.chunks() for record in chunk.records]
    return records, reader.rows_at, [(row.position, row.reason) for row in problems.rows]


SHAPES = [
    pytest.param([{"q": "a"}, {"q": "b"}], None, [{"q": "a"}, {"q": "b"}], id="array of objects"),
    pytest.param(["a long prompt", "b"], None, ["a long prompt", "b"], id="array of strings"),
    pytest.param(
        {"canary": "do not train on it", "examples": [{"q": "a"}, {"q": "b"}], "n": [1, 2, 3]},
        "examples",
        [{"q": "a"}, {"q": "b"}],
        id="object holding one list of objects",
    ),
    pytest.param(
        {"question": ["a", "b"], "answer": [1, 2]},
        None,
        [{"question": "a", "answer": 1}, {"question": "b", "answer": 2}],
        id="columns",
    ),
    pytest.param(
        {"question": {"0": "a", "1": "b"}, "answer": {"0": 1, "1": 2}},
        None,
        [{"question": "a", "answer": 1}, {"question": "b", "answer": 2}],
        id="columns as pandas writes them",
    ),
    pytest.param(
        {"question": "what is it?", "choices": ["a", "b"]},
        None,
        [{"question": "what is it?", "choices": ["a", "b"]}],
        id="one row",
    ),
    pytest.param(
        {"messages": [{"role": "user", "content": "hi"}]},
        None,
        [{"messages": [{"role": "user", "content": "hi"}]}],
        id="one chat, whose messages are no rows",
    ),
    pytest.param("a prompt, all alone", None, ["a prompt, all alone"], id="a string"),
    pytest.param([], None, [], id="empty array"),
    pytest.param({}, None, [{}], id="empty object"),
]


@pytest.mark.parametrize(("value", "rows_at", "rows"), SHAPES)
def test_the_rows_are_found_in_any_shape(document, value, rows_at, rows):
    result = read(document(value))
    assert (result.records, result.rows_at, result.bad) == (rows, rows_at, [])
    assert result.positions == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(("value", "rows_at", "rows"), SHAPES)
def test_a_large_document_has_the_same_rows(tmp_path, value, rows_at, rows, indent):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(value, indent=indent) + "\n" * 20)
    assert read_streaming(path) == (rows, rows_at, [])


def test_two_lists_of_objects_are_one_row_as_nobody_can_tell_which(document):
    value = {"train": [{"q": "a"}], "test": [{"q": "b"}]}
    assert read(document(value)).records == [value]


@pytest.mark.parametrize("name", ["x.json", "x.txt.json"])
def test_json_lines_named_json_are_read_as_lines(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b'{"a": 1}\noops\n{"a": 3}\n')
    result = read(path)
    assert (result.format, result.unit) == ("jsonl", "line")
    assert result.records == [{"a": 1}, {"a": 3}]
    assert result.bad[0][0] == 2


def test_json_lines_with_a_broken_first_line_are_still_lines(document):
    result = read(document(b'{"a": oops}\n{"a": 2}\n{"a": 3}\n'))
    assert result.records == [{"a": 2}, {"a": 3}]


def test_a_document_on_one_line_is_no_json_lines(document):
    assert read(document(b'[{"a": 1}]\n\n')).records == [{"a": 1}]


def test_nan_is_read_though_it_is_no_json(document):
    result = read(document(b'[{"a": NaN}, {"a": 2}]'))
    assert len(result.records) == 2


@pytest.mark.parametrize("data", [b"", b"  \n ", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_rows(document, data):
    result = read(document(data))
    assert (result.records, result.error) == ([], None)


@pytest.mark.parametrize(
    ("data", "rows", "message"),
    [
        pytest.param(
            b'[{"a": 1},\n {"a": 2},\n {"a": ',
            2,
            "expecting a value (truncated?), line 3 column 8",
            id="cut inside a row",
        ),
        pytest.param(
            b'[{"a": 1},\n {"a": "tw',
            1,
            "a string that does not end, starting (truncated?), line 2 column 8",
            id="cut inside a string",
        ),
        pytest.param(
            b'[{"a": 1}, {"a": 2}',
            2,
            "expecting ',' or the end of the array (truncated?), line 1 column 20",
            id="cut between rows",
        ),
        pytest.param(
            b'[{"a": 1},\n {"a" 2}, {"a": 3}]',
            1,
            "expecting ':' delimiter, line 2 column 7",
            id="broken in the middle",
        ),
        pytest.param(
            b'{"examples": [{"a": 1}, {"a": 2}',
            2,
            "expecting ',' or the end of the array (truncated?), line 1 column 33",
            id="cut below a key",
        ),
        pytest.param(
            b'[{"a": 1}] trailing', 1, "something more after the end", id="more after the end"
        ),
        pytest.param(b"[" * 100_000, 0, "nested too deeply", id="nesting"),
        pytest.param(b"[" + b"9" * 10_000 + b"]", 0, "too many digits", id="a huge number"),
        pytest.param(b"oops", 0, "expecting a value, line 1 column 1", id="not JSON at all"),
        pytest.param(b'{"a": 1', 0, "expecting ',' or the end of the object", id="half an object"),
        pytest.param(b"{a: 1}", 0, "expecting a key in double quotes", id="a bare key"),
    ],
)
def test_rows_before_a_mistake_count_and_then_it_is_said_where(document, data, rows, message):
    result = read(document(data))
    assert len(result.records) == rows
    assert message in result.error.message


def test_the_place_of_a_mistake_is_right_after_many_blocks(document):
    good = b'{"a": "%s"},\n' % (b"x" * 1000)
    count = 3 * CHUNK_BYTES // 1000
    result = read(document(b"[" + good * count + b'  {"a": oops}]'))
    assert len(result.records) == count
    assert f"line {count + 1} column 9" in result.error.message


def test_bytes_that_are_not_utf_8_spoil_only_their_row(document):
    path = document(b'[{"a": "caf\xe9"}, {"a": "tea"}]')
    result = read(path)
    assert (result.records, result.positions) == ([{"a": "tea"}], [2])
    assert "byte 0xe9 at character 11 of the row is not UTF-8" in result.bad[0][1]
    assert len(read(path, encoding="latin-1").records) == 2


def test_half_a_surrogate_pair_is_left_to_the_selection(document):
    result = read(document(b'[{"a": "\\udc00"}, {"a": "tea"}]'))
    assert (result.records, result.bad) == ([{"a": "\udc00"}, {"a": "tea"}], [])


def test_rows_may_be_under_a_key_that_is_no_text(document):
    result = read(document(b'{"\\udc00": [{"a": "tea"}], "n": NaN}'))
    assert (result.records, result.rows_at) == ([{"a": "tea"}], "\udc00")


@pytest.mark.parametrize("value", [{"a": "é" * CHUNK_BYTES}, 7, 1.5, "x" * (3 * CHUNK_BYTES), True])
def test_values_that_cross_blocks_stay_whole(tmp_path, value):
    path = tmp_path / "x.json"
    path.write_text(json.dumps([value] * 5, ensure_ascii=False), encoding="utf-8")
    assert read_streaming(path)[0] == [value] * 5


def test_numbers_cut_at_a_block_are_not_split(tmp_path):
    numbers = list(range(10**11, 10**11 + 3 * CHUNK_BYTES // 12))
    path = tmp_path / "x.json"
    path.write_text(json.dumps(numbers, separators=(",", ":")))
    assert read_streaming(path)[0] == numbers


def test_real_documents_are_read():
    bbh = read(shared("bbh", "bbh", "boolean_expressions.json"))
    assert (bbh.rows_at, len(bbh.records)) == ("examples", 250)
    assert len(read(shared("mbpp", "sanitized-mbpp.json")).records) == 427
