"""Server-sent events, and how many tokens came when."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.verification.endpoint.server import RequestFailed
from chunkscope.verification.endpoint.stream import Events, Received, spread


def event(text="", finish=None, **more) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return json.dumps({"choices": [choice], **more}).encode()


def counted(prompt, output) -> dict:
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": output}}


def answer_of(*events: tuple[float, bytes], end: float = 9.0):
    received = Received()
    for now, content in events:
        received.take(content, now)
    return received.answer(0.5, end)


@given(st.lists(st.integers(1, 9)), st.sampled_from(["\n", "\r\n"]))
def test_events_are_the_same_however_they_are_cut(cuts, newline):
    whole = newline.join([": hi", "", "event: x", "data: 1", "data: 2", "", "data:3", "", ""])
    data, events, found = whole.encode(), Events(), []
    for cut in [*cuts, len(data)]:
        found += events.feed(data[:cut])
        data = data[cut:]
    assert found + events.end() == [b"1\n2", b"3"]


def test_tokens_counted_along_are_exact():
    made = answer_of(
        (1.0, event(**counted(4, 1))),
        (2.0, event(**counted(4, 4))),
        (3.0, event(finish="length", **counted(4, 5))),
        (3.0, json.dumps({"choices": [], **counted(4, 5)}).encode()),
    )
    assert (made.times, made.counts) == ((1.0, 2.0, 3.0), (1, 3, 1))


def test_what_is_read_together_came_together():
    made = answer_of(
        (1.0, event("a")), (2.0, event("b")), (2.0, event("c")), (2.0, event(finish="stop"))
    )
    assert (made.times, made.counts) == ((1.0, 2.0), (1, 2))
    assert made.gaps_s == [0.5, 0.5]


def test_pieces_are_stretched_to_the_servers_count():
    end = json.dumps({"choices": [], **counted(4, 7)}).encode()
    made = answer_of((1.0, event("a")), (2.0, event("b")), (3.0, event("c", "stop")), (4.0, end))
    assert sum(made.counts) == 7
    assert made.times == (1.0, 2.0, 3.0)


def test_an_answer_of_nothing_ends_when_it_ends():
    role = b'{"choices": [{"delta": {"role": "assistant"}, "finish_reason": "stop"}]}'
    made = answer_of((1.0, role), (1.2, b"[DONE]"), end=1.5)
    assert (made.times, made.counts, made.all_s) == ((1.5,), (0,), 1.0)


@given(st.lists(st.integers(0, 5), min_size=1), st.integers(0, 60))
def test_a_spread_is_of_the_whole_and_begins_with_something(counts, total):
    made = spread(counts, total)
    assert sum(made) == total
    assert len(made) == len(counts)
    assert min(made) >= 0


def test_a_stream_without_an_end():
    received = Received()
    received.take(event("a", **counted(4, 1)), 1.0)
    with pytest.raises(RequestFailed, match="in the middle"):
        received.answer(0.0, 2.0)
