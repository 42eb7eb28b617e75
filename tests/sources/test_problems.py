"""What is wrong with rows and datasets: sentences and hints by code."""

import pickle

import pytest

from chunkscope.artefacts.note import note
from chunkscope.sources.base import DataError, Problems


def test_an_error_has_the_sentence_and_the_hint_of_its_code():
    error = DataError("lfs_pointer", path="x.jsonl")

    assert error.message == str(error) == "x.jsonl is a Git LFS pointer, not the data"
    assert error.hint == "fetch the data with `git lfs pull`"
    assert error.__notes__ == [f"hint: {error.hint}"]


def test_a_cause_has_a_hint_of_its_own():
    error = DataError("cannot_read", path="x", why="no space left", cause="room")

    assert error.hint == "set TMPDIR to a folder with more room"


def test_the_reason_of_the_first_bad_row_is_part_of_the_sentence():
    reason = note("not_json", column=1, why="odd")
    values = {"rows": 2_000, "path": "x", "unit": "line", "position": 3}
    error = DataError("all_bad", **values, reason=reason)

    assert (
        "no row of x could be used (2,000 bad rows); line 3: not valid" in error.message
    )
    assert error.hint == "is it cut off, or is it a web page or Python's repr?"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        pytest.param(DataError("cells", cells=1, width=3), "1 cell instead", id="one"),
        pytest.param(
            DataError("cells", cells=2_000, width=3), "2,000 cells", id="several"
        ),
    ],
)
def test_a_number_goes_with_its_noun(error, sentence):
    assert sentence in error.message


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        pytest.param("text", "the row is a number, not text", id="without an article"),
        pytest.param("object", "the row is a number, not an object", id="with one"),
    ],
)
def test_types_have_their_articles(wanted, sentence):
    error = DataError("wrong_row", field="", found="number", wanted=wanted)

    assert error.message == sentence
    assert error.note.values["found"] == "number", "artefacts keep the bare type"


def test_fields_to_choose_from_are_listed():
    error = DataError("unknown_prompt", field_table=["a  text", "b  list"], more=3)

    assert error.message.split("\n")[1:] == [
        "the fields are:",
        "  a  text",
        "  b  list",
        "  ... and 3 more",
    ]


def test_what_strangers_wrote_cannot_act_on_a_terminal():
    assert DataError("not_there", path="a\x1b[2Jb").message == "there is no a\\x1b[2Jb"


def test_an_error_can_be_sent_to_another_process():
    error = DataError("not_there", path="x")

    assert pickle.loads(pickle.dumps(error)).note == error.note


def test_the_first_bad_rows_are_kept_in_order_and_all_are_counted():
    problems = Problems(keep=2)
    for position in (7, 3, 5):
        problems.bad(position, DataError("nested_too_deeply"))

    assert problems.count == 3
    assert [row.position for row in problems.rows] == [3, 5]
