"""`verify --endpoint --check-outputs`: the noise of a server, however it tells its answers."""

from contextlib import suppress
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.verification.endpoint.session import EXPECTED
from chunkscope.verification.endpoint.spoken import answer_in, score_in
from chunkscope.verification.prompts import RealPrompts
from chunkscope.vllm.enums import Task
from tests.verification.odd_server import DONE, OddServer, chat_event, raw, says, streamed
from tests.verification.test_endpoint import measure, notes, workload

TEXTS = RealPrompts(texts=("one", "two", "three"), ids=(), source="made up")


def telling(tell: Any) -> Any:
    """A server that streams, and otherwise answers with what `tell` makes of what was asked."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if asked.get("stream"):
            return await streamed("a", "b", "c")(request)
        return web.json_response({"choices": [{"text": "abc", **tell(asked)}]})

    return answer


def completion(asked: dict) -> dict:
    assert asked["logprobs"] == 3
    tops = [{"a": -0.1, "b": -2.5}] * 3
    told = {"tokens": ["a"] * 3, "token_logprobs": [-0.1] * 3, "top_logprobs": tops}
    return {"logprobs": told}


def checked(answer: Any, *, routes: dict | None = None, **more: Any) -> Any:
    with OddServer(answer=answer, routes=routes or {}) as server:
        run = measure(server, check_outputs=True, repeats=1, **more)[2]
    assert run.ok, run.message
    return run, server


def test_a_server_that_says_the_same_twice_has_no_noise():
    run, server = checked(telling(completion))
    again = run.outputs.again
    assert (again.prompts, again.equal, again.largest_logprob_change) == (3, 1.0, 0.0)
    assert run.outputs.beside is run.outputs.against is None
    sent = [body["prompt"] for body in server.bodies if "logprobs" in body]
    assert len(sent) == 6
    assert sorted(sent[:3]) == sorted(sent[3:]), "the same prompts twice"
    assert len(sent[3]) == 30, "and the last one first"


def test_what_changes_from_one_time_to_the_next_is_noise():
    count = 0

    def moody(asked: dict) -> dict:
        nonlocal count
        count += 1
        told = completion(asked)["logprobs"]
        if count > 3:
            token = {"tokens": ["a", "b", "a"], "token_logprobs": [-0.2, -0.3, -0.1]}
            told |= {**token, "top_logprobs": [{"a": -0.2}, {"b": -0.3, "a": -0.4}, {"a": -0.1}]}
        return {"logprobs": told}

    again = checked(telling(moody))[0].outputs.again
    assert (again.equal, again.first_difference) == (0.0, 2)
    assert again.difference_logprob == pytest.approx(0.3)


def test_chats_tell_them_in_another_shape():
    part = {"token": "a", "logprob": -0.1, "top_logprobs": [{"token": "b", "logprob": -2.5}]}

    async def chat(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if asked.get("stream"):
            return await raw(chat_event(content="a"), chat_event(finish="length"), DONE)(request)
        assert (asked["logprobs"], asked["top_logprobs"]) == (True, 3)
        told = {"message": {"content": "a"}, "logprobs": {"content": [part]}}
        return web.json_response({"choices": [told]})

    routes = {"/v1/chat/completions": chat}
    run, _ = checked(says(404, {"detail": "Not Found"}), routes=routes, prompts=TEXTS)
    assert (run.outputs.again.prompts, run.outputs.again.equal) == (3, 1.0)


def echoed(asked: dict) -> dict:
    assert asked["echo"] is True
    ids = [*asked["prompt"], 1]
    told = {"tokens": list(map(str, ids)), "token_logprobs": [None, *(-n / 100 for n in ids[1:])]}
    return {"logprobs": told}


def listed(asked: dict) -> dict:
    ids = asked["prompt"]
    return {"prompt_logprobs": [None, *({str(n): {"logprob": -n / 100}} for n in ids[1:])]}


@pytest.mark.parametrize("tell", [echoed, listed], ids=["echoed", "as vLLM does"])
def test_a_likelihood_is_asked_of_several_endings(tell):
    sent = workload(5, 9, 30, output=1, task=Task.LOGLIKELIHOOD)
    run, server = checked(telling(tell), sent=sent)
    again = run.outputs.again
    assert (again.prompts, again.flipped_choices, run.outputs.tokens) == (3, 0, 2)
    lengths = [len(body["prompt"]) for body in server.bodies[-9:]]
    assert sorted(lengths) == [5] * 3 + [9] * 3 + [30] * 3


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"logprobs": None},
        {"logprobs": "yes"},
        {"logprobs": {"tokens": ["a"], "token_logprobs": [None]}},
        {"logprobs": {"tokens": ["a"], "token_logprobs": []}},
        {"logprobs": {"content": [{"token": "a"}]}},
        {"logprobs": {"content": [7]}},
        {"logprobs": {"tokens": ["a"], "token_logprobs": [True]}},
    ],
)
def test_a_server_that_tells_no_log_probabilities_is_measured_all_the_same(told):
    run, _ = checked(telling(lambda _: told))
    assert run.outputs is None
    assert run.figures is not None
    assert "outputs were not compared: the server tells no log-probabilities" in notes(run)


@pytest.mark.parametrize("status", [400, 500])
def test_a_server_that_refuses_them_or_breaks_on_them_is_measured_all_the_same(status):
    async def answer(request: web.Request) -> web.StreamResponse:
        if (await request.json()).get("stream"):
            return await streamed("a", "b", "c")(request)
        return web.json_response({"error": {"message": "no logprobs here"}}, status=status)

    run, _ = checked(answer)
    (said,) = [note for note in notes(run) if note.startswith("outputs were not compared")]
    assert said.startswith(f"outputs were not compared: the server answered {status} ")
    assert said.endswith(": no logprobs here")
    assert run.outputs is None


some = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 0) | st.sampled_from(["a", "5"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    "logprobs",
                    "content",
                    "tokens",
                    "token_logprobs",
                    "top_logprobs",
                    "token",
                    "logprob",
                )
            )
            | st.sampled_from(("prompt_logprobs", "5")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(some, st.booleans())
def test_whatever_a_choice_holds_it_is_numbers_or_a_failure_that_is_expected(choice, bare):
    body = orjson.dumps({"choices": [choice if bare else {"logprobs": choice}]})
    for read in (answer_in, lambda body: score_in(body, [5, 5], 1)):
        with suppress(*EXPECTED):
            read(body)


def test_endings_are_made_of_ids_alone():
    sent = workload(5, 9, 30, output=1, task=Task.LOGLIKELIHOOD)
    run, _ = checked(telling(lambda _: {}), sent=sent, prompts=TEXTS)
    assert run.outputs is None
    assert any("without --data" in note for note in notes(run))
