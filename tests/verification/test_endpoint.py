"""`verify --endpoint` against servers that are not vLLM, or not well."""

import asyncio
import json
import socketserver
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest
from aiohttp import web

from chunkscope.console import Progress
from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.simulation.workload import Session, Turn, Workload
from chunkscope.verification.endpoint import server as http
from chunkscope.verification.endpoint.client import (
    RANDOM_IDS,
    EndpointJob,
    MeasuredEndpoint,
    measure_endpoint,
)
from chunkscope.verification.endpoint.server import key_for, parse_address
from chunkscope.verification.result import Run
from chunkscope.vllm.enums import Task
from chunkscope.vllm.log.failures import Status
from tests.build import workload
from tests.verification.odd_server import (
    DONE,
    OddServer,
    event,
    raw,
    says,
    streamed,
    usage,
)

KEY = "sk-very-secret-0123456789"
VLLM = """\
# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
vllm:num_preemptions_total{{engine="0",model_name="odd"}} {preemptions}
vllm:request_success_total{{engine="0",finished_reason="length"}} {finished}
vllm:prefix_cache_queries_total{{engine="0",model_name="odd"}} {queries}
vllm:prefix_cache_hits_total{{engine="0",model_name="odd"}} {hits}
vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="100"}} 1.0
"""


SENT = workload(5, 9, 30, output=3)


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    monkeypatch.delenv("CHUNKSCOPE_API_KEY", raising=False)


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("CHUNKSCOPE_API_KEY", KEY)


def measure(
    server: OddServer | str,
    sent: Workload = SENT,
    *,
    model: str | None = None,
    listener: Progress | None = None,
    **changes,
) -> MeasuredEndpoint:
    job = EndpointJob(workload=sent, **{"repeats": 2, "timeout_s": 300.0, **changes})
    url = server if isinstance(server, str) else server.url
    return measure_endpoint(url, job, model, listener or Progress())


def codes(run: Run) -> list[str]:
    return [note.code for note in run.notes]


def run_of(answer=None, **changes) -> Run:
    with OddServer(answer=answer) as server:
        return measure(server, **changes).run


@pytest.mark.parametrize(
    "path", ["", "//v1/", "/v1/chat/completions", "/v1/models ", "/metrics"]
)
def test_an_address_may_be_written_in_many_ways(path):
    assert parse_address(f"http://localhost:8000{path}") == "http://localhost:8000"


@pytest.mark.parametrize(
    "written",
    [
        "localhost:8000",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:0",
        "http://host?key=sk-1",
        "http://me:sk-1@host/v1",
        "sk-1@host",
    ],
)
def test_what_is_no_address_is_refused_and_no_secret_in_it_is_repeated(written):
    with pytest.raises(UsageError, match="begins with http") as raised:
        parse_address(written)
    assert "sk-1" not in f"{raised.value.message} {raised.value.hint}"


@contextmanager
def listening(text: bytes):
    """Who says this to everybody, and nothing more. The port."""

    class Talker(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(text)
            while self.request.recv(1 << 16):
                pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Talker) as server:
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        pytest.param("http", b"SSH-2.0-OpenSSH_9.7\r\n", id="no HTTP"),
        pytest.param("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", id="no TLS"),
        pytest.param("http", b"", id="silence"),
        pytest.param(
            "http", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", id="no models"
        ),
    ],
)
def test_who_is_no_server_of_models_is_named(monkeypatch, scheme, text):
    monkeypatch.setattr(http, "PATIENCE_S", 0.5)
    with listening(text) as port:
        address = f"{scheme}://127.0.0.1:{port}"
        with pytest.raises(MissingError, match=address):
            measure(address)
    with pytest.raises(MissingError, match=address):  # and now nobody is there
        measure(address)


TWO_MODELS = {"data": [{"id": "a"}, {"id": "b"}]}


@pytest.mark.parametrize("model", [None, "other"])
def test_of_several_models_one_must_be_named(model):
    with OddServer(models=TWO_MODELS) as server, pytest.raises(UsageError) as raised:
        measure(server, model=model)
    assert "a, b" in raised.value.hint


def test_the_model_that_is_named_is_asked():
    with OddServer(models=TWO_MODELS) as server:
        measured = measure(server, model="b")
    assert (measured.model.name, measured.run.status) == ("b", Status.OK)
    assert {body["model"] for body in server.bodies} == {"b"}


def test_a_server_without_a_list_of_models_is_fine_if_one_is_named():
    with OddServer(routes={"/v1/models": says(404, {})}) as server:
        assert measure(server, model="mine").model.name == "mine"
        with pytest.raises(MissingError, match="404") as raised:
            measure(server)
    assert "before it" in raised.value.hint


@pytest.mark.parametrize(
    ("models", "why"),
    [
        pytest.param({"data": []}, "serves no model", id="none yet"),
        pytest.param({"models": ["a"]}, "not as an OpenAI-compatible", id="no list"),
        pytest.param({"data": [{"id": 7}]}, "not as an OpenAI-compatible", id="no id"),
    ],
)
def test_a_list_of_models_that_names_none_is_no_server(models, why):
    with OddServer(models=models) as server, pytest.raises(MissingError, match=why):
        measure(server)


def test_token_ids_are_in_every_vocabulary_and_new_in_every_repeat_and_every_run():
    with OddServer() as server:
        assert measure(server).run.ok
        assert measure(server).run.ok
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    for prompt in prompts:
        assert all(number in range(*RANDOM_IDS) for number in prompt)
    long = [prompt for prompt in prompts if len(prompt) == 30]
    assert len(long) == len(set(long)) == 6  # a warm-up and two repeats, twice


def test_requests_are_greedy_and_what_only_vllm_knows_is_not_sent_to_others():
    with OddServer() as server:
        measure(server)
    for body in server.bodies:
        assert body.pop("temperature") == 0
        assert body.pop("stream_options") == {"include_usage": True}
        assert set(body) == {"model", "prompt", "max_tokens", "stream"}


@pytest.mark.parametrize(
    ("owner", "asked"),
    [("me", {"echo": True, "logprobs": 1}), ("vllm", {"prompt_logprobs": 1})],
)
def test_likelihoods_are_asked_as_openai_and_vllm_have_them(owner, asked):
    answer = says(200, {"choices": [{"text": "x"}], "usage": {"completion_tokens": 1}})
    models = {"data": [{"id": "m", "owned_by": owner}]}
    sent = workload(5, 9, 30, output=1, task=Task.LOGLIKELIHOOD)
    with OddServer(answer=answer, models=models) as server:
        assert measure(server, sent).run.ok
    scoring = {"echo", "logprobs", "prompt_logprobs", "stream"}
    body = server.bodies[0]
    assert {name: body[name] for name in scoring & body.keys()} == asked


def test_requests_are_sent_at_their_time():
    run = run_of(sent=workload(5, 5, 5, output=3, apart_s=0.2), repeats=1)
    assert run.figures.makespan_s >= 0.4
    assert run.figures.e2e_s.p50 < 0.4


def test_at_most_so_many_requests_are_under_way():
    under_way, most = 0, 0

    async def answer(request):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        response = await streamed("a", "b", "c", pause_s=0.01)(request)
        under_way -= 1
        return response

    sent = workload(*[5] * 5, output=3, concurrency=2)
    assert run_of(answer, sent=sent, repeats=1).ok
    assert most == 2


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch):
    """vLLM closes it after 5 s.

    Under load it does so just as the next request comes.
    """
    came_from = set()
    clock = time.monotonic
    calls = iter(range(99))
    monkeypatch.setattr(
        "aiohttp.connector.monotonic", lambda: clock() + 4.0 * next(calls)
    )

    async def answer(request):
        came_from.add(request.transport.get_extra_info("peername"))
        return await streamed("a", "b", "c")(request)

    assert run_of(answer, sent=workload(5, output=3), repeats=3).ok
    assert len(came_from) == 4  # to warm it up, and three repeats


def test_what_does_not_fit_is_not_sent():
    models = {"data": [{"id": "m", "max_model_len": 32}]}
    with (
        OddServer(models=models) as server,
        pytest.raises(InputError, match="33 tokens"),
    ):
        measure(server)
    assert not server.bodies


def test_prompt_and_cached_tokens_are_the_servers_own():
    counted = usage(50, 1, prompt_tokens_details={"cached_tokens": 40})
    answer = raw(event("a", finish="stop"), counted)
    run = run_of(answer, sent=workload(5, output=1), repeats=1)
    assert run.figures.input_tokens_per_s * run.figures.makespan_s == pytest.approx(50)
    assert run.figures.prefix_hit_rate == pytest.approx(0.8)
    (note,) = run.notes
    assert note.code == "prompts_counted_otherwise"
    assert note.values == {"counted": 50, "sent": 5}


def test_without_a_count_each_piece_is_one_and_it_is_noted():
    parts = (event("a"), event("b"), event("", finish="stop"), DONE)
    run = run_of(raw(*parts), sent=workload(5, output=3), repeats=1)
    assert run.figures.output_tokens_per_s * run.figures.makespan_s == pytest.approx(2)
    assert codes(run) == ["answers_not_counted", "answers_ended_early"]


# -- sessions --------------------------------------------------------------------------

CHAT = Session(
    turns=(
        Turn(prompt_tokens=20, output_tokens=3),
        Turn(prompt_tokens=30, output_tokens=3, kept_tokens=23, think_s=0.2),
        Turn(prompt_tokens=25, output_tokens=3, kept_tokens=20),
    )
)
CHATS = replace(SENT, sessions=(CHAT, CHAT), samples_at_once=1)
OF_VLLM = {"data": [{"id": "m", "owned_by": "vllm"}]}
IDS = [240, 241, 242]  # of every answer


async def with_ids(request):
    choice = {"text": "abc", "token_ids": IDS, "finish_reason": "length"}
    counted = {"prompt_tokens": None, "completion_tokens": 3}
    body = {"choices": [choice], "usage": counted}
    return await raw(b"data: " + json.dumps(body).encode() + b"\n\n")(request)


def chatted(**changes) -> tuple[list[dict], Run]:
    """What was asked for in one repeat, and what came of it."""
    with OddServer(answer=with_ids, models=OF_VLLM) as server:
        run = measure(server, CHATS, repeats=1, **changes).run
    return server.bodies[2:], run  # two warm it up


def test_each_turn_goes_on_from_what_it_keeps_and_the_answer_before():
    bodies, run = chatted()
    assert run.ok
    first, second, third = [body["prompt"] for body in bodies[:3]]
    assert second[:23] == first + IDS
    assert third[:20] == first
    assert [len(first), len(second), len(third)] == [20, 30, 25]


def test_sessions_of_one_sample_at_once_follow_each_other():
    _, run = chatted()
    assert list(run.requests[0].session) == [0, 0, 0, 1, 1, 1]
    assert list(run.requests[0].turn) == [0, 1, 2] * 2
    assert run.requests[0].start_us[3] >= run.requests[0].end_us[2]


def test_a_turn_waits_for_the_time_to_think():
    _, run = chatted()
    assert run.requests[0].start_us[1] - run.requests[0].end_us[0] >= 200_000


def test_sessions_that_did_not_end_in_time_are_cut_off():
    async def slow(request):
        await asyncio.sleep(0.6)
        return await with_ids(request)

    with OddServer(answer=slow, models=OF_VLLM) as server:
        run = measure(server, CHATS, repeats=1, time_limit_s=1.0).run
    assert run.ok
    assert list(run.requests[0].turn) == [0]


def test_a_server_that_tells_no_token_ids_is_sent_no_sessions():
    with OddServer() as server, pytest.raises(UsageError, match="token ids"):
        measure(server, CHATS)


# -- metrics ---------------------------------------------------------------------------


class Metered:
    """Metrics that go on with every answer, as those of a vLLM before 0.16 would."""

    def __init__(self, others: int = 0, hangs_after: int = 99) -> None:
        self.finished = 0
        self.others = others
        self.left = hangs_after

    async def answer(self, request):
        self.finished += 1 + self.others
        return await streamed("a", "b", "c")(request)

    async def metrics(self, _):
        self.left -= 1
        if self.left < 0:
            await asyncio.sleep(600)
        done = self.finished
        counts = {"preemptions": 2 * done, "queries": 100 * done, "hits": 25 * done}
        return web.Response(text=VLLM.format(finished=done, **counts))

    def server(self):
        routes = {
            "/metrics": self.metrics,
            "/version": says(200, {"version": "0.11.0"}),
        }
        models = {"data": [{"id": "odd", "owned_by": "vllm", "max_model_len": 400}]}
        return OddServer(answer=self.answer, routes=routes, models=models)


def test_metrics_are_read_around_every_repeat():
    with Metered().server() as server:
        measured = measure(server)
    run = measured.run
    assert measured.machine.vllm == "0.11.0"
    assert [(f.preemptions, f.prefix_hit_rate) for f in run.repeats] == [(6, 0.25)] * 2
    assert (run.kv_cache_tokens, run.kv_concurrency) == (1_600, 4.0)
    assert codes(run) == ["kv_tokens_are_blocks"]
    body = server.bodies[-1]
    assert (body["ignore_eos"], body["min_tokens"]) == (True, 3)


def test_other_users_of_the_server_spoil_its_own_counts():
    with Metered(others=1).server() as server:
        run = measure(server).run
    assert run.ok
    assert (run.figures.preemptions, run.figures.prefix_hit_rate) == (None, None)
    assert run.notes[0].values == {"finished": 6, "sent": 3}


def after(good: int, then):
    """A server that answers so many requests well."""
    left = good

    async def answer(request):
        nonlocal left
        left -= 1
        handler = streamed("a", "b", "c") if left >= 0 else then
        return await handler(request)

    return answer


async def _reset(request):
    request.transport.abort()
    return web.Response()


async def _breaks_off(request):
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(event("a"))
    request.transport.abort()
    return response


def error_event(message: str, code: int) -> bytes:
    return b'data: {"error": {"message": "%s", "code": %d}}\n\n' % (
        message.encode(),
        code,
    )


@pytest.mark.parametrize(
    ("then", "status", "detail"),
    [
        (says(429, {"error": {"message": "Slow down"}}), Status.REFUSED, "Slow down"),
        (says(500, "oops"), Status.DIED, "oops"),
        (_reset, Status.DIED, "cannot be reached"),
        (_breaks_off, Status.DIED, "broke off its answer"),
        (raw(event("a"), b"data: {broken\n\n"), Status.DIED, "JSON"),
        (raw(event("a")), Status.DIED, ""),
        (says(200, {"choices": [{"text": "all at once"}]}), Status.DIED, ""),
        (
            raw(error_event("EngineCore died", 500), DONE),
            Status.DIED,
            "EngineCore died",
        ),
        (raw(error_event("too long", 400), DONE), Status.REFUSED, "too long"),
        (raw(event("", choices=5), DONE), Status.DIED, "choices"),
        (raw(event("a", usage={"completion_tokens": 800}), DONE), Status.DIED, "800"),
    ],
)
def test_a_failure_in_the_middle_is_a_result(then, status, detail):
    # Three answers warm it up, three are the first repeat.
    run = run_of(after(7, then))
    assert (run.status, run.failure.code) == (status, "server_failed")
    values = run.failure.values
    assert (values["phase"], values["sent"]) == ("measuring", 3)
    assert detail in values["detail"]
    assert (len(run.repeats), run.figures) == (1, None)


def test_a_server_that_hangs_is_a_timeout():
    async def hang(_):
        await asyncio.sleep(600)

    begun = time.monotonic()
    run = run_of(after(3, hang), timeout_s=2.0)
    assert time.monotonic() - begun < 300  # the requests on their way ended, too
    assert (run.status, run.failure.code) == (Status.TIMEOUT, "server_timeout")
    assert run.failure.values == {
        "seconds": 2.0,
        "phase": "measuring",
        "answered": 0,
        "sent": 3,
    }


def test_a_server_whose_metrics_hang_is_a_timeout():
    """Before the second repeat, of which nothing was sent."""
    with Metered(hangs_after=4).server() as server:
        run = measure(server, timeout_s=4.0).run
    assert (run.failure.values["answered"], run.failure.values["sent"]) == (0, 0)


ECHO = {"error": {"message": f"Incorrect API key provided: {KEY} (Bearer {KEY})"}}


def everything(value: object) -> str:
    if isinstance(value, ChunkscopeError):
        return f"{value!r} {value.message} {value.hint} {value.__cause__!r}"
    return f"{value!r} {asdict(value)}"


def authorizations(server: OddServer) -> set[str | None]:
    return {headers.get("Authorization") for _, headers, _ in server.requests}


@pytest.mark.usefixtures("key")
def test_the_key_is_sent_and_never_shown():
    with OddServer() as server:
        assert KEY not in everything(measure(server))
    assert authorizations(server) == {f"Bearer {KEY}"}


def test_openais_key_goes_nowhere_in_the_clear(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert (key_for("http://host"), key_for("https://host")) == ("", KEY)
    with OddServer() as server:
        measure(server)
    assert authorizations(server) == {None}


@pytest.mark.parametrize("key", ["sk-1\n", '"sk-1" ', "sk-\u00e9"])
def test_a_key_with_characters_that_no_key_has_is_refused(monkeypatch, key):
    monkeypatch.setenv("CHUNKSCOPE_API_KEY", key)
    with pytest.raises(UsageError) as raised:
        measure("http://127.0.0.1:1")
    assert "CHUNKSCOPE_API_KEY" in raised.value.hint


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize(
    "echo", [says(400, ECHO), raw(error_event(f"who is {KEY}?", 500), DONE)]
)
def test_a_server_that_repeats_the_key_is_quoted_without_it(echo):
    """The rest is shown: who sends a key has to see why a request was refused."""
    with OddServer(answer=after(3, echo)) as server:
        result = measure(server)
    assert "***" in result.run.failure.values["detail"]
    assert KEY not in everything(result)


@pytest.mark.usefixtures("key")
def test_a_refused_key_names_the_variable_and_not_the_key():
    with (
        OddServer(routes={"/v1/models": says(401, ECHO)}) as server,
        pytest.raises(MissingError, match="401") as raised,
    ):
        measure(server)
    assert "CHUNKSCOPE_API_KEY" in raised.value.hint
    assert KEY not in everything(raised.value)


@pytest.mark.usefixtures("key")
def test_a_redirect_is_not_followed_so_that_no_other_host_sees_the_key():
    with OddServer() as other:
        away = says(307, "", Location=f"{other.url}/v1/models?token={KEY}")
        with (
            OddServer(routes={"/v1/models": away}) as server,
            pytest.raises(MissingError, match="307") as raised,
        ):
            measure(server)
        with OddServer(answer=after(3, away)) as server:
            run = measure(server).run
    assert KEY not in everything(raised.value)
    assert run.status is Status.REFUSED
    assert not other.requests
