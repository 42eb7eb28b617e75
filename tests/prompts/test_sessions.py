"""Sessions that any harness can write, and those of Bailian's traces."""

import json
from pathlib import Path
from typing import Any

import pytest

from chunkscope.prompts.choose import choose_prompt
from chunkscope.prompts.options import SelectOptions
from chunkscope.prompts.prompt import LogReader, read_prompts
from chunkscope.report.notes import sentence
from chunkscope.sources.base import Problems, ReadOptions
from chunkscope.sources.find import discover
from chunkscope.sources.reader import RecordReader
from tests.prompts.helpers import ReadLog, choose, read_log


def write(folder: Path, *rows: Any) -> Path:
    path = folder / "sessions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def turn(new: Any = 5, output: Any = 2, **more: Any) -> dict[str, Any]:
    return {"new_tokens": new, "output_tokens": output, **more}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def prompts(log: ReadLog) -> list[Any]:
    return [request.prompt for request in log.requests]


def pauses(log: ReadLog) -> list[float | None]:
    return [request.session.pause_s for request in log.requests]


def kept(log: ReadLog) -> list[int | None]:
    return [request.session.kept_tokens for request in log.requests]


def texts(log: ReadLog) -> list[list[str]]:
    """By request, what its messages say."""
    said = []
    for request in log.requests:
        said.append([message["content"] for message in request.prompt.messages])
    return said


def reasons(path: Path) -> list[str]:
    """What is said of the bad rows."""
    (source,) = discover([str(path)], options=ReadOptions())[0]
    problems = Problems()
    with RecordReader(source, ReadOptions(), problems) as records:
        reader = choose_prompt(records, records.head(), SelectOptions())
        for chunk in records.chunks():
            read_prompts(reader, chunk, problems)
    return [sentence(row.reason) for row in problems.rows]


# --- by numbers of tokens -------------------------------------------------------------


def test_a_prompt_is_all_before_it_and_what_is_new(tmp_path) -> None:
    row = {"id": 7, "system_tokens": 100, "turns": [turn(10, 3), turn(5, 2), turn(1)]}
    log = read_log(write(tmp_path, row))
    assert prompts(log) == [110, 118, 121]
    assert kept(log) == [0, 113, 120]
    assert [request.output for request in log.requests] == [3, 2, 2]
    assert {request.session.session for request in log.requests} == {"7"}


def test_a_client_may_keep_less_than_all(tmp_path) -> None:
    row = {"turns": [turn(100, 30), turn(50, 2, kept_tokens=80)]}
    log = read_log(write(tmp_path, row))
    assert prompts(log) == [100, 130]
    assert kept(log) == [0, 80]


def test_the_time_after_an_answer_goes_before_the_next_turn(tmp_path) -> None:
    row = {"turns": [turn(think_s=0.5), turn(think_s=2), turn()]}
    assert pauses(read_log(write(tmp_path, row))) == [None, 0.5, 2.0]


def test_sessions_without_an_id_are_told_apart(tmp_path) -> None:
    log = read_log(write(tmp_path, {"turns": [turn()]}, {"turns": [turn()]}))
    assert [request.session.session for request in log.requests] == ["1", "2"]


GOOD = {"id": 1, "system_tokens": 9, "turns": [turn(think_s=1), turn()]}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(3, "the row is a number, not an object", id="no object"),
        pytest.param({"id": 2}, 'field "turns" is', id="no turns"),
        pytest.param({"id": 2, "turns": []}, 'field "turns" is', id="empty"),
        pytest.param({"id": 2, "turns": [4]}, 'field "turns[0]" is a', id="no turn"),
        pytest.param(
            GOOD | {"id": 2, "turns": [turn(think_s=1), turn(output=None)]},
            'field "turns[1].output_tokens" is null',
            id="no answer",
        ),
        pytest.param(
            GOOD | {"id": 2, "turns": [turn(-1)]}, "turns[0].new_tokens", id="negative"
        ),
        pytest.param(
            GOOD | {"id": 2, "turns": [turn(), turn()]},
            'field "turns[0].think_s" is missing',
            id="no time",
        ),
        pytest.param(
            GOOD | {"id": 2, "turns": [turn(think_s="soon"), turn()]},
            "not a number of seconds",
            id="no number",
        ),
        pytest.param(
            GOOD | {"id": 2, "system_tokens": 8},
            'field "system_tokens" is 8, and 9',
            id="another system prompt",
        ),
        pytest.param(GOOD, 'the id "1" came before', id="twice"),
        pytest.param(
            {"id": 2, "system_tokens": 9, "turns": [turn(kept_tokens=1)]},
            "before it have 0 tokens",
            id="nothing to keep",
        ),
    ],
)
def test_a_bad_session_is_named_and_the_others_count(tmp_path, bad, reason) -> None:
    last = GOOD | {"id": "last"}
    path = write(tmp_path, GOOD, bad, last)
    log = read_log(path)
    assert log.bad == [2]
    assert len(log.requests) == 4
    (said,) = reasons(path)
    assert reason in said


# --- by messages ----------------------------------------------------------------------


def test_new_messages_and_answers_make_the_prompts(tmp_path) -> None:
    row = {
        "turns": [
            {"messages": [user("a")], "output": "A", "think_s": 0.5},
            {"messages": [user("b")], "output": "B"},
        ]
    }
    log = read_log(write(tmp_path, row))
    assert texts(log) == [["a"], ["a", "A", "b"]]
    assert [request.answer[0]["content"] for request in log.requests] == ["A", "B"]
    assert pauses(log) == [None, 0.5]


def test_a_whole_conversation_has_a_request_for_each_answer(tmp_path) -> None:
    said = [user("a"), assistant("A"), user("b"), assistant("B"), user("c")]
    log = read_log(write(tmp_path, {"turns": [{"messages": said}]}))
    assert texts(log) == [["a"], ["a", "A", "b"], ["a", "A", "b", "B", "c"]]
    assert [bool(request.answer) for request in log.requests] == [True, True, False]


def test_an_answer_may_be_a_number_of_tokens(tmp_path) -> None:
    turns = [
        {"messages": [user("a")], "output": 40},
        {"messages": [assistant("A"), user("b")], "output": 50},
    ]
    log = read_log(write(tmp_path, {"turns": turns}))
    assert texts(log) == [["a"], ["a", "A", "b"]]
    assert [request.output for request in log.requests] == [40, 50]


def test_tools_are_part_of_every_prompt(tmp_path) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    turns = [{"messages": [user("a")], "output": "A"}, {"messages": [user("b")]}]
    log = read_log(write(tmp_path, {"tools": [tool], "turns": turns}))
    assert [
        request.prompt.tools[0]["function"]["name"] for request in log.requests
    ] == [
        "add",
        "add",
    ]


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        pytest.param(
            [{"messages": [user("a")], "output": 4}, {"messages": [user("b")]}],
            "turns[1].messages has to begin with the assistant's message",
            id="an answer without its text",
        ),
        pytest.param(
            [{"messages": [user("a")]}, {"messages": [user("b")]}],
            'field "turns[0].output" is missing',
            id="no answer",
        ),
        pytest.param(
            [{"messages": [user("a"), assistant("A")], "output": "A"}],
            "end with its answer",
            id="two answers",
        ),
        pytest.param([{"messages": "a"}], "turns[0].messages", id="no list"),
        pytest.param([turn()], "turns[0].messages", id="tokens among texts"),
    ],
)
def test_a_bad_conversation_is_named(tmp_path, turns, reason) -> None:
    good = {"turns": [{"messages": [user("a")], "output": "A"}]}
    path = write(tmp_path, good, {"turns": turns}, good)
    (said,) = reasons(path)
    assert reason in said
    assert len(read_log(path).requests) == 2


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"id": 1, "messages": [user("a"), assistant("A")]}, id="a chat"),
        pytest.param({"question_id": 1, "turns": ["a", "b"]}, id="MT-bench's turns"),
        pytest.param({"id": 1, "turns": [user("a"), assistant("A")]}, id="messages"),
    ],
)
def test_other_rows_with_turns_are_no_sessions(row) -> None:
    assert not isinstance(choose(row), LogReader)


# --- Bailian's traces -----------------------------------------------------------------


def chat(number: int, parent: int, at: float, tokens: int, *blocks: int) -> dict:
    return {
        "chat_id": number,
        "parent_chat_id": parent,
        "timestamp": at,
        "input_length": tokens,
        "output_length": 20,
        "type": "text",
        "turn": 1 if parent == -1 else 2,
        "hash_ids": list(blocks),
    }


def test_a_chat_goes_on_with_its_parents_session(tmp_path) -> None:
    rows = [
        chat(1, -1, 0.5, 40, 1, 2, 3),
        chat(2, -1, 1.0, 40, 1, 4, 5),
        chat(3, 1, 31.0, 90, 1, 2, 6, 7, 8, 9),
        chat(4, 3, 41.0, 64, 1, 12, 13, 14),
    ]
    log = read_log(write(tmp_path, *rows))
    sessions = [request.session.session for request in log.requests]
    assert sessions == ["1", "2", "1", "1"]
    assert pauses(log) == [None, None, 30.5, 10.0]
    assert log.requests[2].blocks == [1, 2, 6, 7, 8, 9]


def test_a_chat_whose_parent_was_cut_off_begins_a_session(tmp_path) -> None:
    log = read_log(write(tmp_path, chat(3, 1, 0.5, 40, 1, 2, 3)))
    assert (log.requests[0].session.session, pauses(log)) == ("3", [None])


@pytest.mark.parametrize("field", ["hash_ids", "parent_chat_id", "output_length"])
def test_a_row_of_a_trace_that_lacks_a_field_names_it(tmp_path, field) -> None:
    rows = [chat(number, -1, 0.5, 40, 1, 2, 3) for number in (1, 2, 3)]
    del rows[1][field]
    path = write(tmp_path, *rows)
    (said,) = reasons(path)
    assert field in said
    assert len(read_log(path).requests) == 2
