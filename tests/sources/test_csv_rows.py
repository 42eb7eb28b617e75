import csv
import io

import pytest

from tests.sources.helpers import read_bytes

ROWS = [
    {"question": "why, oh why?", "answer": "x"},
    {"question": "how;so|?", "answer": "y"},
]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(delimiter):
    out = io.StringIO()
    writer = csv.DictWriter(out, ["question", "answer"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    assert read_bytes("x.csv", out.getvalue()).records == ROWS


def test_a_delimiter_can_be_given():
    for data, delimiter in (
        ("a:b\n1:2", ":"),
        ("a b\n1 2", " "),
        ("a\tb\n1\t2\n", "\\t"),
    ):
        records = read_bytes("x.csv", data, delimiter=delimiter, header=True).records
        assert records == [{"a": "1", "b": "2"}]


def test_a_tsv_is_split_at_tabs_though_its_texts_have_more_commas():
    data = "question\tanswer\na, b, c\tx, y\nd, e, f\tz, w\n"
    records = read_bytes("x.tsv", data).records
    assert records[0] == {"question": "a, b, c", "answer": "x, y"}


def test_quoted_cells_may_hold_newlines_and_positions_are_where_rows_start():
    result = read_bytes("x.csv", 'question,answer\n"one\ntwo\n""three""",a\nlast,b\n')
    assert result.records[0]["question"] == 'one\ntwo\n"three"'
    assert (result.positions, result.unit) == ([2, 5], "line")


def test_a_doubled_quote_is_one_and_a_backslash_is_text():
    data = 'question,answer\n"{""a"": ""\\""b\\""""}",\\frac\n'
    (record,) = read_bytes("x.csv", data).records
    assert record == {"question": '{"a": "\\"b\\""}', "answer": "\\frac"}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xef\xbb\xbfquestion,answer\r\nwhy,x\r\n", id="BOM and CRLF"),
        pytest.param(b"question,answer\rwhy,x\r", id="old Mac"),
        pytest.param(
            b"question,answer\n\n\nwhy,x", id="blank lines, no newline at the end"
        ),
        pytest.param(b"question,answer\nwhy,x,\n", id="a comma more"),
        pytest.param("\ufeffquestion,answer\nwhy,x\n".encode("utf-16-le"), id="UTF-16"),
    ],
)
def test_every_kind_of_csv_gives_the_same_rows(data):
    result = read_bytes("x.csv", data)
    assert (result.records, result.bad) == ([{"question": "why", "answer": "x"}], [])


@pytest.mark.parametrize(
    ("data", "names"),
    [
        pytest.param(
            "question,answer\nwhy,x\n", ["question", "answer"], id="known names"
        ),
        pytest.param(
            "Best Answer,Source URL\nyes,a\n", ["Best Answer", "Source URL"], id="words"
        ),
        pytest.param("#alpha,beta\n1,2\n3,4\n", ["#alpha", "beta"], id="unknown names"),
        pytest.param(",text\n0,a\n1,b\n", ["column0", "text"], id="pandas' index"),
        pytest.param(
            "id,text,\n0,a,\n1,b,\n", ["id", "text", "column2"], id="an empty column"
        ),
        pytest.param('""\na\nb\n', ["column0"], id="no name at all"),
        pytest.param(
            "x,x\n1,2\n", ["column0", "column1"], id="a name twice is no header"
        ),
        pytest.param("What is it?,3\nWho?,4\n", ["column0", "column1"], id="numbers"),
        pytest.param(
            "What is the point of all this?,A\n",
            ["column0", "column1"],
            id="a sentence",
        ),
        pytest.param("a b c d,beta\n1,2\n", ["a b c d", "beta"], id="four words"),
        pytest.param("a b c d e,beta\n1,2\n", ["column0", "column1"], id="five words"),
        pytest.param(f"{'a' * 60},b\n1,2\n", ["a" * 60, "b"], id="a long name"),
        pytest.param(
            f"{'a' * 61},b\n1,2\n", ["column0", "column1"], id="too long a name"
        ),
        pytest.param(
            "title_x,pass@1\na,1.0\nb,0.5\n", ["title_x", "pass@1"], id="a score"
        ),
        pytest.param("Note:,beta\n1,2\n", ["column0", "column1"], id="a colon"),
    ],
)
def test_a_header_is_known_by_its_names(data, names):
    assert list(read_bytes("x.csv", data).records[0]) == names


def test_a_header_can_be_said_to_be_there_or_not():
    data = "question,answer\nwhy,x\n"
    assert len(read_bytes("x.csv", data, header=False).records) == 2
    assert read_bytes("x.csv", "1,1,\na,b,c\n", header=True).records == [
        {"1": "a", "1_2": "b", "column2": "c"}
    ]


def test_rows_of_another_width_are_bad_and_move_no_cells():
    result = read_bytes(
        "x.csv", "question,answer\nwhy,x\nonly\nwhy,x,more,cells\nhow,y\n"
    )
    assert result.positions == [2, 5]
    assert [(line, reason[0]) for line, reason in result.bad] == [(3, "1"), (4, "4")]
    unclosed = read_bytes("x.csv", 'question,answer\nwhy,x\nhow,"y and on\nand on\n')
    assert (unclosed.positions, [line for line, _ in unclosed.bad]) == ([2], [3])
