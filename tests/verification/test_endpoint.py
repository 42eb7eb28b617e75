"""`verify --endpoint` against servers that are not vLLM, or not well."""

import asyncio
import base64
import re
import socket
import threading
import time
from dataclasses import asdict, replace

import pytest
from aiohttp import web

from chunkscope.console import VerifyProgress
from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.simulation.workload import Request, Workload
from chunkscope.verification.endpoint import measure_endpoint
from chunkscope.verification.endpoint import server as http
from chunkscope.verification.endpoint.request_body import BYTES
from chunkscope.verification.endpoint.server import Connection, parse_address
from chunkscope.verification.prompts import RealPrompts
from chunkscope.verification.result import Run
from chunkscope.vllm.enums import Task
from chunkscope.vllm.log.fate import Status
from tests.verification.odd_server import (
    DONE,
    OddServer,
    chat_event,
    event,
    raw,
    says,
    streamed,
    usage,
)

KEY = "sk-very-secret-0123456789"
TEXTS = RealPrompts(texts=("one", "two", "three"), ids=(), source="made up")
VLLM = """\
# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
vllm:num_preemptions_total{{engine="0",model_name="odd"}} {preemptions}
vllm:request_success_total{{engine="0",finished_reason="length",model_name="odd"}} {finished}
vllm:gpu_prefix_cache_queries_total{{engine="0",model_name="odd"}} {queries}
vllm:gpu_prefix_cache_hits_total{{engine="0",model_name="odd"}} {hits}
vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="100"}} 1.0
"""


def workload(*lengths: int, output: int = 3, task: Task = Task.GENERATE) -> Workload:
    requests = tuple(Request(prompt_tokens=n, output_tokens=output) for n in lengths or (5, 9, 30))
    return Workload(requests=requests, seed=3, arrivals="batch", task=task, long_over=20)


def measure(server: OddServer | str, sent: Workload | None = None, **changes):
    how = {
        "repeats": 2,
        "model": None,
        "key": None,
        "prompts": None,
        "timeout_s": 20.0,
        "listener": VerifyProgress(),
    }
    url = server if isinstance(server, str) else server.url
    return measure_endpoint(url, sent or workload(), **{**how, **changes})


def notes(run: Run) -> list[str]:
    """Without what is about the machine the tests run on."""
    return [note for note in run.notes if not note.startswith("this machine was busy")]


def run_of(answer=None, **changes) -> Run:
    with OddServer(answer=answer) as server:
        return measure(server, **changes)[2]


@pytest.mark.parametrize(("idle_s", "connections"), [(0.1, 1), (4.0, 2)])
def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch, idle_s, connections):
    """vLLM's server closes it after 5 s; under load it does so just as the next request comes."""
    came_from, clock = set(), time.monotonic

    async def answer(request):
        came_from.add(request.transport.get_extra_info("peername"))
        return web.json_response({})

    async def twice(address):
        async with Connection(address, None) as connection:
            await connection.ask("/v1/completions", b"{}")
            monkeypatch.setattr("aiohttp.connector.monotonic", lambda: clock() + idle_s)
            await connection.ask("/v1/completions", b"{}")

    with OddServer(answer=answer) as server:
        asyncio.run(twice(server.url))
    assert len(came_from) == connections


def test_at_most_so_many_requests_are_under_way():
    under_way, most = 0, 0

    async def answer(request):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        told = await streamed("a", "b", "c", pause_s=0.01)(request)
        under_way -= 1
        return told

    with OddServer(answer=answer) as server:
        run = measure(server, replace(workload(*[5] * 9), concurrency=2))[2]
    assert run.ok, run.message
    assert most == 2


# -- the address ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        "http://localhost:8000",
        "http://localhost:8000/",
        "http://localhost:8000/v1",
        "http://localhost:8000/v1/",
        "http://localhost:8000/v1/completions",
        "http://localhost:8000/v1/chat/completions",
        "  http://localhost:8000/v1/models ",
    ],
)
def test_an_address_may_be_written_in_many_ways(written):
    assert parse_address(written) == "http://localhost:8000"


def test_a_server_may_live_below_a_path_and_behind_tls():
    assert parse_address("https://host/llm/v1") == "https://host/llm"
    assert parse_address("http://[::1]:8000/v1") == "http://[::1]:8000"


@pytest.mark.parametrize(
    "written",
    ["localhost:8000", "ftp://host", "http://", "", "http://host:port", "http://host?key=sk-1"],
)
def test_what_is_no_address_is_refused(written):
    with pytest.raises(UsageError, match="--endpoint") as raised:
        parse_address(written)
    assert "sk-1" not in raised.value.message


@pytest.mark.parametrize(
    "written", ["http://me:sk-1@host/v1", "http://sk-1@host", "sk-1@host", "http://me:sk-1@host:x"]
)
def test_a_password_in_the_address_is_refused_and_not_repeated(written):
    with pytest.raises(UsageError) as raised:
        parse_address(written)
    assert "sk-1" not in f"{raised.value.message} {raised.value.hint}"


# -- who answers ---------------------------------------------------------------------------------


def test_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(MissingError, match="nothing listens there") as raised:
        measure(f"http://127.0.0.1:{port}")
    assert "vllm serve" in raised.value.hint


def test_a_host_that_does_not_exist():
    with pytest.raises(MissingError, match="cannot be found"):
        measure("http://no-such-host.invalid:8000")


def test_tls_where_there_is_none():
    with OddServer() as server, pytest.raises(MissingError, match="no valid TLS"):
        measure(server.url.replace("http:", "https:"))


def test_a_server_that_gives_no_answer(monkeypatch):
    monkeypatch.setattr(http, "PATIENCE_S", 0.3)

    async def silence(_):
        await asyncio.sleep(5)

    with (
        OddServer(routes={"/v1/models": silence}) as server,
        pytest.raises(MissingError, match="gave no answer"),
    ):
        measure(server)


def test_something_else_than_http():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]

        def speak():
            caller, _ = listening.accept()
            with caller:
                caller.recv(1_000)
                caller.sendall(b"+PONG\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(MissingError, match="does not answer in HTTP"):
            measure(f"http://127.0.0.1:{port}")
        thread.join()


@pytest.mark.parametrize("page", ["<html>It works!</html>", '["not a list of models"]', "{}"])
def test_a_server_of_another_kind(page):
    with (
        OddServer(routes={"/v1/models": says(200, page)}) as server,
        pytest.raises(MissingError, match="not as an OpenAI-compatible server"),
    ):
        measure(server)


def test_several_models_and_none_named():
    models = {"data": [{"id": "a"}, {"id": "b"}]}
    with OddServer(models=models) as server:
        with pytest.raises(UsageError, match="several models") as raised:
            measure(server)
        assert raised.value.hint == "name one with --model: a, b"
        _, subject, run = measure(server, model="b")
    assert (subject.name, run.status) == ("b", Status.OK)
    assert {body["model"] for body in server.bodies} == {"b"}


def test_a_model_that_is_not_served():
    with OddServer() as server, pytest.raises(UsageError, match="does not serve other"):
        measure(server, model="other")


def test_no_list_of_models_is_fine_when_the_model_is_named():
    with OddServer(routes={"/v1/models": says(404, {})}) as server:
        assert measure(server, model="mine")[1].name == "mine"
        with pytest.raises(MissingError, match="404 Not Found"):
            measure(server)


def test_a_server_that_is_still_loading():
    with (
        OddServer(models={"data": []}) as server,
        pytest.raises(MissingError, match="serves no model"),
    ):
        measure(server)


# -- what is sent --------------------------------------------------------------------------------


def test_token_ids_are_low_and_new_in_every_repeat_and_every_run():
    with OddServer() as server:
        assert measure(server)[2].status is Status.OK
        assert measure(server)[2].status is Status.OK
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert all(BYTES[0] <= i < BYTES[1] for prompt in prompts for i in prompt)
    long = [prompt for prompt in prompts if len(prompt) == 30]
    assert len(long) == len(set(long)) == 6  # a warm-up and two repeats, twice


def test_what_only_vllm_knows_is_not_sent_to_others():
    with OddServer() as server:
        measure(server)
    assert {key for body in server.bodies for key in body} == {
        *("model", "prompt", "max_tokens", "temperature", "stream", "stream_options")
    }
    assert server.bodies[0]["stream_options"] == {"include_usage": True}


def test_likelihoods_are_asked_as_openai_has_them():
    answer = says(200, {"choices": [{"text": "x"}], "usage": {"completion_tokens": 1}})
    with OddServer(answer=answer) as server:
        run = measure(server, workload(output=1, task=Task.LOGLIKELIHOOD))[2]
    assert run.status is Status.OK
    assert (server.bodies[0]["echo"], server.bodies[0]["logprobs"]) == (True, 1)
    assert "stream" not in server.bodies[0]


def test_requests_are_sent_at_their_time():
    sent = Workload(
        requests=tuple(
            Request(prompt_tokens=5, output_tokens=3, arrival_s=i * 0.2) for i in range(3)
        ),
        seed=0,
        arrivals="5/s",
        task=Task.GENERATE,
        long_over=20,
    )
    run = run_of(sent=sent, repeats=1)
    assert run.figures.makespan_s >= 0.4
    assert run.figures.e2e_s.all.p50 < 0.4


def test_a_server_without_token_ids_gets_a_hint():
    refusal = says(422, {"detail": [{"msg": "Input should be a valid string"}]})
    with pytest.raises(InputError, match="takes no prompts of token ids") as raised:
        run_of(refusal)
    assert "--data" in raised.value.hint


def test_texts_go_to_the_chat_where_there_is_nothing_else():
    def chat(request):
        parts = [
            chat_event(role="assistant", content=""),
            chat_event(content="a"),
            chat_event(reasoning_content="b"),
            chat_event(finish="stop"),
            usage(11, 2),
            DONE,
        ]
        return raw(*parts)(request)

    routes = {"/v1/completions": says(404, {}), "/v1/chat/completions": chat}
    with OddServer(routes=routes) as server:
        run = measure(server, prompts=TEXTS)[2]
        with pytest.raises(InputError, match="takes no prompts of token ids"):
            measure(server)
        with pytest.raises(InputError, match="no log-probabilities"):
            measure(server, workload(output=1, task=Task.LOGLIKELIHOOD), prompts=TEXTS)
    assert run.status is Status.OK
    assert "only /v1/chat/completions" in run.notes[0]
    contents = [b["messages"][0]["content"] for b in server.bodies if "messages" in b]
    assert sorted(set(contents)) == ["one", "three", "two"]


def test_what_does_not_fit_is_not_sent():
    models = {"data": [{"id": "m", "max_model_len": 32}]}
    with (
        OddServer(models=models) as server,
        pytest.raises(InputError, match=r"1 of 3 requests do not fit.*33 tokens"),
    ):
        measure(server)
    assert not server.bodies


def test_a_client_that_is_too_busy_to_look_at_the_clock_says_so():
    class Slow(VerifyProgress):
        def progress(self, *_):
            time.sleep(0.2)

    run = run_of(listener=Slow())
    assert run.status is Status.OK
    assert any("looked at the clock up to" in note for note in run.notes)


# -- tokens --------------------------------------------------------------------------------------


def seen_tokens(*parts: bytes, output: int = 3) -> tuple[float, Run]:
    run = run_of(raw(*parts), sent=workload(5, output=output), repeats=1)
    assert run.status is Status.OK, run.message
    return round(run.figures.output_tokens_per_s * run.figures.makespan_s, 6), run


def test_the_servers_count_wins_over_the_pieces():
    parts = [event("a b c"), event("d"), event("", finish="length"), usage(5, 9)]
    tokens, run = seen_tokens(*parts, output=9)
    assert tokens == 9
    assert notes(run) == []


def test_a_count_in_the_last_piece_counts_once():
    last = event("c", finish="stop", usage={"prompt_tokens": 5, "completion_tokens": 3})
    assert seen_tokens(event("a"), event("b"), last, DONE)[0] == 3


def test_without_a_count_each_piece_is_one_and_it_is_said():
    tokens, run = seen_tokens(event("a"), event("b"), event("", finish="stop"), DONE)
    assert tokens == 2
    assert "did not count the tokens of 1 answers" in run.notes[0]
    assert "1 of 1 answers ended before the length asked for" in run.notes[1]


def test_an_answer_may_be_empty():
    tokens, run = seen_tokens(event("", finish="stop"), usage(5, 0), DONE)
    assert tokens == 0
    assert run.figures.itl_s is None


def test_events_may_be_cut_anywhere_and_hold_comments():
    whole = b": ping\r\n\r\n" + event("ä").replace(b"\n", b"\r\n") + event("b", finish="stop")
    parts = [whole[i : i + 7] for i in range(0, len(whole), 7)]
    assert seen_tokens(*parts, usage(5, 2) + DONE, output=2)[0] == 2


def test_prompt_tokens_are_the_servers_own():
    run = run_of(raw(event("a", finish="stop"), usage(50, 1)), sent=workload(5), repeats=1)
    assert run.figures.input_tokens_per_s * run.figures.makespan_s == pytest.approx(50)
    assert "counts 50 prompt tokens where the workload has 5" in run.notes[0]


def test_cached_tokens_are_a_hit_rate():
    counted = usage(5, 1, prompt_tokens_details={"cached_tokens": 4})
    run = run_of(raw(event("a", finish="stop"), counted), sent=workload(5), repeats=1)
    assert run.figures.prefix_hit_rate == pytest.approx(0.8)


# -- vLLM's own figures --------------------------------------------------------------------------


class Metered:
    """Metrics that go on with every answer, as those of a vLLM before 0.12 would."""

    def __init__(self, others: int = 0) -> None:
        self.finished, self.others = 0, others

    async def answer(self, request):
        self.finished += 1 + self.others
        return await streamed("a", "b", "c")(request)

    async def metrics(self, _):
        text = VLLM.format(
            preemptions=2 * self.finished,
            finished=self.finished,
            queries=100 * self.finished,
            hits=25 * self.finished,
        )
        return web.Response(text=text)

    def server(self):
        routes = {"/metrics": self.metrics, "/version": says(200, {"version": "0.11.0"})}
        models = {"data": [{"id": "odd", "owned_by": "vllm", "max_model_len": 400}]}
        return OddServer(answer=self.answer, routes=routes, models=models)


def test_metrics_are_read_around_every_repeat():
    with Metered().server() as server:
        machine, _, run = measure(server)
    assert machine.vllm == "0.11.0"
    assert [f.preemptions for f in run.repeats] == [6, 6]
    assert [f.prefix_hit_rate for f in run.repeats] == [0.25, 0.25]
    assert (run.kv_cache_tokens, run.kv_concurrency) == (1_600, 4.0)
    assert notes(run) == ["KV cache tokens are blocks x block size: too many for a hybrid model"]
    assert server.bodies[-1]["ignore_eos"] is True
    assert server.bodies[-1]["min_tokens"] == 3


def test_other_users_of_the_server_spoil_its_own_counts():
    with Metered(others=1).server() as server:
        run = measure(server)[2]
    assert run.status is Status.OK
    assert (run.figures.preemptions, run.figures.prefix_hit_rate) == (None, None)
    assert any("finished 6 requests where 3 were sent" in note for note in run.notes)


# -- what goes wrong on the way ------------------------------------------------------------------


def after(good: int, then):
    """A server that answers so many requests well."""
    left = [good]

    async def answer(request):
        left[0] -= 1
        return await (streamed("a", "b", "c") if left[0] >= 0 else then)(request)

    return answer


async def _reset(request):
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize(
    ("then", "status", "says_what"),
    [
        (says(429, {"error": {"message": "Slow down"}}), Status.REFUSED, "429 .*: Slow down"),
        (says(400, {"error": {"message": "No"}}), Status.REFUSED, "400 Bad Request: No"),
        (says(500, "oops"), Status.DIED, "500 Internal Server Error: oops"),
        (says(503, {"error": "Overloaded"}), Status.DIED, "503 .*: Overloaded"),
        (says(401, {}), Status.REFUSED, "401 Unauthorized"),
        (says(599, "<html>gateway</html>"), Status.DIED, "answered 599,"),
        (_reset, Status.DIED, "broke the connection off"),
        (raw(event("a"), b"data: {broken\n\n"), Status.DIED, "not JSON"),
        (raw(event("a"), b"data: []\n\n"), Status.DIED, "not a JSON object"),
        (raw(event("a")), Status.DIED, "ended its answer in the middle"),
        (says(200, "<html>"), Status.DIED, "does not stream"),
        (says(200, {"choices": [{"text": "all at once"}]}), Status.DIED, "does not stream"),
        (raw(b""), Status.DIED, "does not stream"),
        (
            raw(b'data: {"error": {"message": "EngineCore died", "code": 500}}\n\n', DONE),
            Status.DIED,
            "said in its stream: EngineCore died",
        ),
        (
            raw(b'data: {"error": {"message": "too long", "code": 400}}\n\n', DONE),
            Status.REFUSED,
            "too long",
        ),
    ],
)
def test_a_failure_in_the_middle_is_a_result(then, status, says_what):
    # One answer tries it out, three warm it up, three are the first repeat.
    run = run_of(after(8, then))
    assert (run.status, run.phase) == (status, "measuring")
    assert len(run.repeats) == 1
    assert run.figures is None
    assert re.search(says_what, run.message), run.message
    assert "of 3 answers" in run.message


def test_what_happened_on_the_way_is_told_even_where_a_key_was_sent():
    """Only what a server says may hold the key: these words are ours."""
    run = run_of(after(8, _reset), key=KEY)
    assert run.message.startswith("the server broke the connection off, after ")


def test_a_failure_ends_the_requests_that_are_on_their_way():
    answers = []

    async def answer(request):
        prompt = (await request.json())["prompt"]
        if len(prompt) == 30:
            return await says(500, "no")(request)
        await asyncio.sleep(5)
        answers.append(prompt)
        return await streamed("a")(request)

    async def quick_probe(request):
        prompt = (await request.json())["prompt"]
        return await (streamed("a") if len(prompt) == 2 else answer)(request)

    run = run_of(quick_probe)
    assert (run.status, run.phase) == (Status.DIED, "warming up")
    assert run.took_s < 4
    assert not answers


def test_a_server_that_hangs_is_a_timeout():
    async def hang(_):
        await asyncio.sleep(30)

    run = run_of(after(4, hang), timeout_s=0.5)
    assert (run.status, run.phase) == (Status.TIMEOUT, "measuring")
    assert run.message == "no end after 0.5 s, after 0 of 3 answers"
    assert 0.5 <= run.took_s < 10


# -- what cannot be --------------------------------------------------------------------------------


def told(**counts: object) -> bytes:
    return event("", finish="length", usage=counts)


@pytest.mark.parametrize(
    ("parts", "says_what"),
    [
        pytest.param([event("", choices=5), DONE], "choices that are no list", id="choices"),
        pytest.param(
            [event("", choices=[{"delta": "x"}]), DONE], "a delta that is no object", id="delta"
        ),
        pytest.param([DONE], "without having begun it", id="only the end"),
        pytest.param(
            [event("a"), told(completion_tokens=800), DONE], "800 tokens where 3", id="too many"
        ),
        pytest.param([event("a"), told(completion_tokens=-4), DONE], "cannot be", id="negative"),
        pytest.param([event("a"), told(prompt_tokens=9 * 10**18), DONE], "cannot be", id="huge"),
        pytest.param(
            [event("a"), told(prompt_tokens=5, prompt_tokens_details={"cached_tokens": 9}), DONE],
            "9 of 5 prompt tokens were cached",
            id="more cached than there is",
        ),
    ],
)
def test_impossible_answers_make_the_row_unusable_and_say_why(parts, says_what):
    run = run_of(raw(*parts))
    assert not run.ok
    assert run.figures is None
    assert says_what in run.message


@pytest.mark.parametrize("value", ["+Inf", "NaN", "1e300", "-Inf"])
def test_counters_that_no_server_reaches_are_left_out(value):
    text = VLLM.format(preemptions=value, finished=value, queries=value, hits=value)
    text = text.replace('num_gpu_blocks="100"', 'num_gpu_blocks="1e999"')

    async def metrics(_):
        return web.Response(text=text)

    with OddServer(routes={"/metrics": metrics}) as server:
        run = measure(server)[2]
    assert run.ok, run.message
    assert (run.figures.preemptions, run.kv_cache_tokens) == (None, None)


@pytest.mark.parametrize("length", [-1, 0, True, 1 << 70, "x"])
def test_a_room_that_cannot_be_is_not_told(length):
    assert http._served({"id": "odd", "max_model_len": length}).max_model_len is None


# -- the key -------------------------------------------------------------------------------------


def everything_said(value: object) -> str:
    if isinstance(value, ChunkscopeError):
        return f"{value!r} {value.message} {value.hint} {value.__cause__!r} {value.__context__!r}"
    return f"{value!r} {[asdict(part) for part in value]}"


def test_the_key_is_sent_and_never_shown():
    with OddServer() as server:
        result = measure(server, key=KEY)
    assert all(headers["Authorization"] == f"Bearer {KEY}" for _, headers, _ in server.requests)
    assert KEY not in everything_said(result)
    assert KEY not in repr(Connection("http://host", KEY))


def test_without_a_key_there_is_no_header():
    with OddServer() as server:
        measure(server)
    assert not any("Authorization" in headers for _, headers, _ in server.requests)


ECHO = {"error": {"message": f"Incorrect API key provided: {KEY} (Bearer {KEY})"}}


@pytest.mark.parametrize("status", [400, 403, 429, 500])
def test_a_server_that_repeats_the_key_is_quoted_without_it(status):
    with OddServer(answer=after(4, says(status, ECHO))) as server:
        result = measure(server, key=KEY)
    assert result[2].status is not Status.OK
    assert KEY not in everything_said(result)
    assert KEY[3:] not in everything_said(result)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/completions"])
@pytest.mark.parametrize(("key", "says_what"), [(KEY, "does not take"), (None, "wants an API key")])
def test_a_refused_key_names_the_variable_and_not_the_key(path, key, says_what):
    with (
        OddServer(routes={path: says(401, ECHO if key else {})}) as server,
        pytest.raises(MissingError, match=says_what) as raised,
    ):
        measure(server, key=key)
    assert "CHUNKSCOPE_API_KEY" in raised.value.hint
    assert KEY not in everything_said(raised.value)


CODED = (KEY[::-1], base64.b64encode(KEY.encode()).decode(), KEY.encode().hex(), " ".join(KEY))


@pytest.mark.parametrize("coded", CODED)
@pytest.mark.parametrize("status", [302, 418, 500])
def test_a_key_that_comes_back_in_another_form_is_not_shown(coded, status):
    echo = says(status, {"error": coded}, Location=f"http://{coded}/")
    with OddServer(answer=after(4, echo)) as server:
        result = measure(server, key=KEY)
    assert ("redirects" if status == 302 else str(status)) in result[2].message
    assert coded not in everything_said(result)


def test_names_and_versions_of_a_server_that_was_sent_a_key_are_not_shown():
    listed = {"data": [{"id": KEY[::-1]}, {"id": "b"}]}
    with OddServer(models=listed) as server, pytest.raises(UsageError) as raised:
        measure(server, key=KEY)
    assert KEY[::-1] not in everything_said(raised.value)
    assert "2 models" in raised.value.hint
    routes = {
        "/version": says(200, {"version": KEY[::-1]}),
        "/metrics": says(200, "vllm:num_preemptions_total 1"),
    }
    with OddServer(routes=routes) as server:
        assert KEY[::-1] not in everything_said(measure(server, key=KEY))


def test_the_only_model_of_a_server_that_was_sent_a_key_is_not_named_by_it():
    listed = {"data": [{"id": KEY[::-1], "max_model_len": 100}]}
    with OddServer(models=listed) as server:
        subject = measure(server, workload(5, 9), key=KEY, repeats=1)[1]
        assert subject.name.startswith("(not shown, for a key was sent; sha256 ")
        assert server.bodies[-1]["model"] == KEY[::-1]  # it is asked for by its name
        with pytest.raises(InputError, match="not shown") as raised:
            measure(server, workload(200, 9), key=KEY)
        assert KEY[::-1] not in everything_said(raised.value)
    with OddServer(models={"data": [{"id": "mine"}]}) as server:
        named = measure(server, workload(5, 9), key=KEY, model="mine", repeats=1)[1]
    assert named.name == "mine"  # the user's own word


def test_an_error_in_the_stream_is_quoted_without_the_key():
    bad = f'data: {{"error": "who is {KEY}?"}}\n\n'.encode()
    with OddServer(answer=after(4, raw(bad))) as server:
        result = measure(server, key=KEY)
    assert "said in its stream: (not shown, for a key was sent; sha256 " in result[2].message
    assert "who" not in result[2].message
    assert KEY not in everything_said(result)


@pytest.mark.parametrize("key", ["sk-1\n", "sk 1\r\nX-Other: 1", "schlüssel", " sk-1"])
def test_a_key_that_no_header_takes_is_refused_unseen(key):
    with pytest.raises(UsageError, match="characters that no key has") as raised:
        measure("http://localhost:1", key=key)
    assert key.strip() not in everything_said(raised.value)


def test_a_redirect_is_not_followed_so_that_no_other_host_sees_the_key():
    with OddServer() as other:
        away = says(307, "", Location=f"{other.url}/v1/models?token={KEY}")
        with (
            OddServer(routes={"/v1/models": away}) as server,
            pytest.raises(MissingError, match="redirects to") as raised,
        ):
            measure(server, key=KEY)
        away = says(308, "", Location=f"{other.url}/v1/completions")
        with OddServer(answer=away) as server, pytest.raises(MissingError, match="redirects to"):
            measure(server, key=KEY, prompts=TEXTS)
        with OddServer(answer=after(4, away)) as server:
            run = measure(server, key=KEY)[2]
    assert KEY not in everything_said(raised.value)
    assert other.url not in everything_said(raised.value)
    assert "curl -I" in raised.value.hint
    assert run.status is Status.REFUSED
    assert not other.requests
