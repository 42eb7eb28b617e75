"""Measure a server that runs: any OpenAI-compatible one, and vLLM in more detail.

Requests ask for greedy answers (temperature 0): that is what settings are compared by.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import orjson

from chunkscope.artefacts.artefact import now
from chunkscope.artefacts.figures import Figures
from chunkscope.artefacts.note import Note, note
from chunkscope.console import Progress
from chunkscope.errors import InputError
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import Workload, single
from chunkscope.verification.endpoint import metrics
from chunkscope.verification.endpoint.metrics import Metrics
from chunkscope.verification.endpoint.server import (
    Connection,
    RequestFailed,
    Server,
    meet,
    whole,
)
from chunkscope.verification.endpoint.stream import Received
from chunkscope.verification.inside.chunkscope_prompts import SharingIds
from chunkscope.verification.latencies import (
    Answer,
    distribution_of,
    figures_of,
    median_of,
)
from chunkscope.verification.prompts import RANDOM_INSTEAD, RealPrompt
from chunkscope.verification.result import Machine, Run, Subject
from chunkscope.verification.task import TaskRequest, requests_of, sharing_of
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings

SETTING = "endpoint"
COMPLETIONS = "/v1/completions"
WARM_UP_REQUESTS = 8
WARM_UP_TOKENS = 16
SETTLE_S = 2.0  # a server counts an answer shortly after it was sent
# In every vocabulary, however small: a vLLM without a tokenizer dies of ids beyond its
# own.
RANDOM_IDS = (100, 250)
BEFORE = (
    "before"  # in place of a repeat's number: what is sent before they are measured
)
# With these a server refuses a kind of prompt: vLLM says 400, and some others break on
# it.
REFUSING_PROMPTS = (400, 415, 422, 500, 501)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointJob:
    """What a server is sent, and how often."""

    workload: Workload
    prompts: Sequence[RealPrompt] = ()  # by request; none: random token ids
    repeats: int
    timeout_s: float
    slo: Slo = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEndpoint:
    machine: Machine
    model: Subject
    run: Run


def measure_endpoint(
    url: str, job: EndpointJob, model: str | None, listener: Progress
) -> MeasuredEndpoint:
    """Send the workload to a server; whatever happens then is a result."""
    listener.setting(SETTING, 1, 1)
    return asyncio.run(_measure(url, job, model, listener))


async def _measure(
    url: str, job: EndpointJob, model: str | None, listener: Progress
) -> MeasuredEndpoint:
    listener.phase("connecting")
    async with Connection(url) as connection:
        server = await meet(connection, model)
        check_room(server, requests_of(job.workload))
        run = await EndpointClient(connection, server, job, listener).run()
    address = connection.address
    return MeasuredEndpoint(
        machine=Machine(device="endpoint", vllm=server.version, endpoint=address),
        model=Subject(name=connection.safe(server.model), load_format="endpoint"),
        run=run,
    )


def check_room(server: Server, requests: Sequence[TaskRequest]) -> None:
    room = server.max_model_len
    if room is None:
        return
    too_long = [request for request in requests if request.tokens > room]
    if too_long:
        longest = max(request.tokens for request in too_long)
        raise InputError(
            f"{len(too_long):,} of {len(requests):,} requests do not fit: the longest "
            f"takes {longest:,} tokens with its answer, the server has room for "
            f"{room:,}",
            hint="serve it with a larger max_model_len, or lower --max-output",
        )


class EndpointClient:
    """One server, from the first question to the last repeat."""

    def __init__(
        self,
        connection: Connection,
        server: Server,
        job: EndpointJob,
        listener: Progress,
    ) -> None:
        self._connection = connection
        self._server = server
        self._job = job
        self._listener = listener
        self._requests = requests_of(job.workload)
        self._writer = BodyWriter(server, job)
        self._phase = "connecting"
        self._sent = 0  # requests of this phase, and those of them that are answered
        self._answered = 0
        self._repeats: list[Figures] = []
        self._answers: list[Answer] = []
        self._notes: dict[str, Note] = {}  # by code, the latest

    async def run(self) -> Run:
        started = now()
        begin = time.perf_counter()
        status = Status.OK
        failure = None
        try:
            async with asyncio.timeout(self._job.timeout_s):
                await self._measure()
        except TimeoutError:
            status = Status.TIMEOUT
            failure = self._failure("server_timeout", seconds=self._job.timeout_s)
        except RequestFailed as error:
            status = error.status
            detail = self._connection.safe(error.message)
            failure = self._failure("server_failed", detail=detail)
        room = self._server.max_model_len
        cache = metrics.kv_cache(self._server.metrics or Metrics(), room)
        if cache.is_upper_bound:
            self._note("kv_tokens_are_blocks")
        return Run(
            setting=SETTING,
            settings=Settings(),
            status=status,
            failure=failure,
            started=started,
            took_s=time.perf_counter() - begin,
            engine={**cache.engine, "max_model_len": room},
            kv_cache_tokens=cache.tokens,
            kv_concurrency=cache.concurrency,
            repeats=tuple(self._repeats),
            figures=median_of(self._repeats) if status is Status.OK else None,
            distribution=distribution_of(self._answers),
            notes=tuple(self._notes.values()),
        )

    async def _measure(self) -> None:
        await self._try_out()
        await self._warm_up()
        for repeat in range(self._job.repeats):
            detail = f"repeat {repeat + 1} of {self._job.repeats}"
            self._begin("measuring", detail)
            self._repeats.append(await self._repeat(repeat))

    def _begin(self, phase: str, detail: str = "") -> None:
        self._phase = phase
        self._sent = 0
        self._answered = 0
        self._listener.phase(phase, detail)

    def _failure(self, code: str, **values: str | float) -> Note:
        return note(
            code,
            **values,
            phase=self._phase,
            answered=self._answered,
            sent=self._sent,
        )

    def _note(self, code: str, **values: int) -> None:
        self._notes[code] = note(code, **values)

    # -- before anything is measured ---------------------------------------------------

    async def _try_out(self) -> None:
        """Does this server take our kind of prompt?

        The shortest is sent, with one token.
        """
        scored = [request for request in self._requests if request.is_scored]
        shortest = min(scored or self._requests, key=lambda r: r.prompt_tokens)
        request = replace(shortest, output_tokens=1)
        body = self._writer.body(request, BEFORE)
        try:
            await self._exchange(request, body, time.perf_counter())
        except RequestFailed as failure:
            if failure.code not in REFUSING_PROMPTS:
                raise self._connection.unusable(failure) from None
            kind = "texts" if self._job.prompts else "token ids"
            address = self._connection.address
            raise InputError(
                f"{address} refuses {kind} at {COMPLETIONS}: it {failure.message}",
                hint=RANDOM_INSTEAD
                if self._job.prompts
                else "send real texts: name the datasets with --data",
            ) from None

    async def _warm_up(self) -> None:
        """Send the longest prompt and others: what is slow at first is slow here."""
        self._begin("warming up")
        ranked = sorted(self._requests, key=lambda r: -r.prompt_tokens)
        every = max(1, len(ranked) // WARM_UP_REQUESTS)
        short = []
        for request in ranked[::every][:WARM_UP_REQUESTS]:
            output = min(request.output_tokens, WARM_UP_TOKENS)
            short.append(replace(request, arrival_s=0.0, output_tokens=output))
        await self._send(short, BEFORE)
        # With the one that was sent to try it out, lest they count as the first
        # repeat's.
        await self._settled(self._server.metrics, len(short) + 1)

    # -- requests ----------------------------------------------------------------------

    async def _send(self, requests: Sequence[TaskRequest], repeat: str) -> list[Answer]:
        """All at their times, at most so many under way; the first failure ends it."""
        # Made before the clock starts: a long prompt takes a while to write down.
        bodies = [self._writer.body(request, repeat) for request in requests]
        self._sent = len(requests)
        self._answered = 0
        under_way = asyncio.Semaphore(self._job.workload.concurrency or len(requests))
        begin = time.perf_counter()

        async def send_one(request: TaskRequest, body: bytes) -> Answer:
            wait_s = begin + request.arrival_s - time.perf_counter()
            await asyncio.sleep(max(0.0, wait_s))
            async with under_way:
                answer = await self._exchange(request, body, begin)
            check_length(answer, request)
            self._answered += 1
            self._listener.progress(self._answered, self._sent)
            return answer

        tasks = []
        try:
            async with asyncio.TaskGroup() as group:
                for request, body in zip(requests, bodies, strict=True):
                    tasks.append(group.create_task(send_one(request, body)))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _exchange(
        self, request: TaskRequest, body: bytes, begin: float
    ) -> Answer:
        """One request and its answer; seconds count from `begin`."""

        def clock() -> float:
            return time.perf_counter() - begin

        received = Received()
        sent = clock()
        async with self._connection.stream(COMPLETIONS, body) as parts:
            if request.is_scored:
                received.take_whole(await whole(parts), clock())
            else:
                await received.follow(parts, clock)
        return received.answer(sent, clock())

    # -- one repeat --------------------------------------------------------------------

    async def _repeat(self, repeat: int) -> Figures:
        before = await self._connection.metrics()
        answers = await self._send(self._requests, str(repeat))
        after = await self._settled(before, len(answers))
        self._answers += answers
        workload = self._as_counted(answers)
        figures = figures_of(answers, workload, slo=self._job.slo)
        self._note_answers(answers)
        if before is None or after is None:
            return figures
        finished = metrics.counted(before, after, metrics.FINISHED)
        if finished is not None and finished != len(answers):
            self._note("server_is_shared", finished=finished, sent=len(answers))
            return figures
        if figures.prefix_hit_rate is None:
            rate = metrics.prefix_hit_rate(before, after)
            figures = replace(figures, prefix_hit_rate=rate)
        preemptions = metrics.counted(before, after, metrics.PREEMPTIONS)
        return replace(figures, preemptions=preemptions)

    def _note_answers(self, answers: Sequence[Answer]) -> None:
        """Note what is not as it should be."""
        uncounted = [answer for answer in answers if not answer.is_counted]
        if uncounted:
            self._note("answers_not_counted", answers=len(uncounted))
        short = 0
        for answer, request in zip(answers, self._requests, strict=True):
            if answer.tokens < request.output_tokens:
                short += 1
        if short:
            self._note("answers_ended_early", answers=short, of=len(answers))
        if self._job.prompts and not self._server.is_vllm:
            self._note("texts_sent_again")

    def _as_counted(self, answers: Sequence[Answer]) -> Workload:
        """The workload with the prompt lengths that the server counted, if it did."""
        workload = self._job.workload
        sessions = []
        for answer, request in zip(answers, workload.requests, strict=True):
            tokens = answer.prompt_tokens
            if not tokens:
                return workload
            output = request.output_tokens
            sessions.append(single(tokens, output, request.arrival_s, request.stretch))
        counted = replace(workload, sessions=tuple(sessions))
        if counted != workload:
            self._note(
                "prompts_counted_otherwise",
                counted=counted.input_tokens,
                sent=workload.input_tokens,
            )
        return counted

    async def _settled(self, before: Metrics | None, sent: int) -> Metrics | None:
        """The metrics once all answers are in them."""
        deadline = time.monotonic() + SETTLE_S
        after = await self._connection.metrics()
        while before and after and time.monotonic() < deadline:
            finished = metrics.counted(before, after, metrics.FINISHED)
            if finished is None or finished >= sent:
                break
            await asyncio.sleep(0.1)
            after = await self._connection.metrics()
        return after


def check_length(answer: Answer, request: TaskRequest) -> None:
    """A server that ignores what it was asked measures something else."""
    if answer.tokens > request.output_tokens:
        raise RequestFailed(
            f"answers with {answer.tokens:,} tokens where {request.output_tokens:,} "
            "were asked for"
        )


class BodyWriter:
    """Writes requests down. What only vLLM understands is sent to vLLM only."""

    def __init__(self, server: Server, job: EndpointJob) -> None:
        stretches, ends = sharing_of(job.workload)
        self._server = server
        self._prompts = job.prompts
        self._ids = SharingIds(stretches, ends, RANDOM_IDS)
        self._seed = job.workload.seed
        self._salt = uuid4().hex  # no other run's prefixes are shared

    def body(self, request: TaskRequest, repeat: str) -> bytes:
        """The request as it is posted.

        In each repeat another prompt, unless it is real.
        """
        body: dict[str, Any] = {
            "model": self._server.model,
            "prompt": self._prompt(request, repeat),
            "max_tokens": request.output_tokens,
            "temperature": 0,
        }
        is_vllm = self._server.is_vllm
        if not request.is_scored:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
            if is_vllm:
                body["stream_options"]["continuous_usage_stats"] = True
        elif is_vllm:
            body["prompt_logprobs"] = 1
        else:
            body["echo"] = True
            body["logprobs"] = 1
        if is_vllm:
            body["min_tokens"] = request.output_tokens
            body["ignore_eos"] = True
            # Prompts with another salt share no prefix with this one.
            body["cache_salt"] = f"{self._salt}/{repeat}"
            if self._has_special_tokens(request):
                body["add_special_tokens"] = False
        return orjson.dumps(body)

    def _prompt(self, request: TaskRequest, repeat: str) -> str | list[int]:
        place = request.place or 0
        if self._prompts:
            return self._prompts[place].text
        seed = f"{self._seed}/{self._salt}/{repeat}"
        return self._ids.prompt(seed, place, request.prompt_tokens)

    def _has_special_tokens(self, request: TaskRequest) -> bool:
        return bool(self._prompts) and self._prompts[request.place or 0].is_complete
