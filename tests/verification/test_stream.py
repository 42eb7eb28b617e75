"""A streamed answer: which tokens came, and when."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.verification.endpoint.server import RequestFailed
from chunkscope.verification.endpoint.stream import Received
from chunkscope.verification.inside.chunkscope_sessions import Question, SentTurn
from tests.verification import odd_server

END = b"data: [DONE]"
QUESTION = Question("0", 0, 0, SentTurn(4, 3), ids=[])


def event(text: str = "", finish: str | None = None, output: int | None = None):
    """An event; `output`: how many tokens the server counted by then."""
    usage = {}
    if output is not None:
        usage["usage"] = {"prompt_tokens": 4, "completion_tokens": output}
    return odd_server.event(text, finish=finish, **usage).rstrip()


def counted(output: int) -> bytes:
    """The event at the end that has only the count."""
    return odd_server.usage(4, output).rstrip()


def answer_of(*events: tuple[float, bytes]):
    received = Received()
    for now, line in events:
        received.take_line(line, now)
    return received.answer(QUESTION, sent=0.5, now=9.0)


@given(st.lists(st.integers(1, 40)), st.sampled_from(["\n", "\r\n"]))
def test_events_are_the_same_however_they_are_cut(cuts, newline):
    lines = [
        ": hi",
        "event: x",
        event("a").decode(),
        "",
        event("b", "stop").decode(),
        "",
    ]
    data = newline.join(lines).encode()
    received = Received()

    async def parts():
        rest = data
        for cut in [*cuts, len(data)]:
            yield rest[:cut]
            rest = rest[cut:]

    asyncio.run(received.follow(parts(), lambda: 1.0))
    assert (received.times, received.ended) == ([1.0, 1.0], True)


@pytest.mark.parametrize(
    ("events", "times", "counts"),
    [
        pytest.param(
            [
                (1.0, event("a", output=1)),
                (2.0, event("b", output=4)),
                (3.0, event("", "length", 5)),
            ],
            (1.0, 2.0, 3.0),
            (1, 3, 1),
            id="the server counts at every event",
        ),
        pytest.param(
            [
                (1.0, event("a")),
                (2.0, event("b")),
                (2.0, event("c")),
                (2.0, event("", "stop")),
            ],
            (1.0, 2.0),
            (1, 2),
            id="read together, so they came together",
        ),
        pytest.param(
            [
                (1.0, event("a")),
                (2.0, event("b", "stop")),
                (4.0, counted(2)),
                (4.0, END),
            ],
            (1.0, 2.0),
            (1, 1),
            id="a piece for each token",
        ),
        pytest.param(
            [(1.0, event("a")), (2.0, event("b", "stop")), (4.0, counted(5))],
            (1.0, 2.0),
            (1, 4),
            id="more tokens than pieces: the rest came with the last",
        ),
        pytest.param(
            [
                (1.0, event("a")),
                (2.0, event("b")),
                (3.0, event("c", "stop")),
                (4.0, counted(2)),
            ],
            (1.0, 3.0),
            (1, 1),
            id="fewer tokens than pieces: the end stays the end",
        ),
        pytest.param(
            [(1.0, event("", "stop")), (1.2, END)], (9.0,), (0,), id="no token"
        ),
    ],
)
def test_a_piece_is_a_token_unless_the_server_counts(events, times, counts):
    answer = answer_of(*events)
    assert (tuple(answer.times), tuple(answer.counts)) == (times, counts)


@given(st.lists(st.integers(0, 10), min_size=1))
def test_there_are_as_many_tokens_as_the_server_counted_last(totals):
    received = Received()
    for now, total in enumerate(totals):
        received.take_line(event("a", "stop", total), float(now))
    answer = received.answer(QUESTION, sent=0.0, now=99.0)
    assert answer.tokens == totals[-1]
    assert list(answer.times) == sorted(answer.times)
    assert answer.is_counted


@pytest.mark.parametrize(
    ("events", "why"),
    [
        pytest.param([event("a")], "middle", id="it just ends"),
        pytest.param([END], "no answer", id="nothing but the end"),
        pytest.param([event("a", "stop", -1)], "usage", id="fewer than none"),
        pytest.param([event("a", "stop", 9**18)], "usage", id="more than there are"),
        pytest.param([b"data: {broken"], "JSON", id="no JSON"),
        pytest.param([b"data: \xff"], "cannot be read", id="no text"),
        pytest.param([b'data: {"choices": 5}'], "choices", id="choices are no list"),
        pytest.param([b'data: {"error": "full"}'], "full", id="an error as text"),
    ],
)
def test_what_is_no_whole_answer_is_a_failure(events, why):
    with pytest.raises(RequestFailed, match=why):
        answer_of(*[(1.0, line) for line in events])


def test_the_ids_of_an_answer_are_kept_to_go_on_from_there():
    first = b'data: {"choices": [{"text": "a", "token_ids": [7, 8]}]}'
    last = b'data: {"choices": [{"token_ids": [9], "finish_reason": "length"}]}'
    assert answer_of((1.0, first), (2.0, last)).ids == [7, 8, 9]


def test_an_answer_that_was_not_streamed_has_its_tokens_at_its_end():
    received = Received()
    received.take_whole(b'{"choices": [{"text": "x"}]}', 2.0)
    answer = received.answer(QUESTION, sent=1.0, now=2.0)
    assert (answer.times, answer.counts, answer.is_counted) == ([2.0], [1], False)
