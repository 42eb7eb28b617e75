"""Servers that answer whatever they like: a row, a row that is not usable, or a
sentence."""

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import strategies as st

from tests.fuzz.helpers import anything, changed, damaged, explore, fine
from tests.verification.odd_server import DONE, OddServer, raw, says, usage
from tests.verification.odd_server import event as text_event
from tests.verification.test_endpoint import VLLM, measure, workload

EVENT = {
    "choices": [
        {"index": 0, "text": "a", "delta": {"content": "a"}, "finish_reason": None}
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3},
    "error": None,
}
MODELS = {"data": [{"id": "odd", "max_model_len": 100, "owned_by": "vllm"}]}
COUNTERS = VLLM.format(preemptions=1, finished=3, queries=9, hits=4)


def sent(content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


EVENTS = (
    changed(EVENT).map(sent)
    | damaged(sent(EVENT))
    | st.sampled_from(
        [text_event("a"), text_event("b"), usage(5, 3), DONE, b"\n", b": x\n"]
    )
)
PAST = [
    [sent({"choices": 5})],
    [sent({"choices": [{"delta": "x"}]})],
    [usage(-5, 3), DONE],
    [usage(5, 800), DONE],
    [usage(5, 9 * 10**18), DONE],
    [DONE],
    [sent({"choices": [], "usage": {"prompt_tokens": float("inf")}})],
    [b"data: \xff\n\n"],
]


@pytest.fixture
def server() -> Iterator[OddServer]:
    with OddServer() as serving:
        yield serving


def test_a_whole_run(server: OddServer) -> None:
    def check(parts: list[bytes], models: Any, counters: bytes) -> None:
        server.answer = raw(*parts)
        server.routes = {
            "/v1/models": says(200, json.dumps(models)),
            "/metrics": says(200, counters.decode(errors="replace")),
        }
        with fine():
            found = measure(server, workload(5, 9), repeats=1)
            orjson.dumps([found.model, found.run])  # goes into verify.json

    some = st.just(MODELS) | changed(MODELS) | anything
    endless = VLLM.format(
        preemptions="+Inf", finished="NaN", queries="-Inf", hits="1e999"
    ).encode()
    past = [(case, MODELS, COUNTERS.encode()) for case in PAST]
    past += [
        ([DONE], MODELS, odd)
        for odd in (endless, COUNTERS.replace("100", "nan").encode())
    ]
    counters = damaged(COUNTERS.encode())
    explore(check, st.lists(EVENTS, max_size=6), some, counters, past=past)
