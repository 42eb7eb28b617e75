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
from chunkscope.errors import InputError, UsageError
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import Workload
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
from chunkscope.verification.inside.chunkscope_sessions import (
    Answer,
    Client,
    Question,
    Round,
    SentSession,
)
from chunkscope.verification.latencies import (
    distribution_of,
    figures_of,
    median_of,
    rows_of,
)
from chunkscope.verification.prompts import Ids
from chunkscope.verification.result import Machine, Run, Subject
from chunkscope.verification.task import first_turns, sessions_of, sharing_of
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings

SETTING = "endpoint"
COMPLETIONS = "/v1/completions"
WARM_UP_SESSIONS = 8
WARM_UP_TOKENS = 16
SETTLE_S = 2.0  # a server counts an answer shortly after it was sent
# In every vocabulary, however small: a vLLM without a tokenizer dies of ids beyond its
# own.
RANDOM_IDS = (100, 250)
WARM_UP = "w"  # in place of a repeat's number


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointJob:
    """What a server is sent, and how often."""

    workload: Workload
    prompts: Sequence[Ids] = ()  # by session; none: random token ids
    repeats: int
    timeout_s: float
    time_limit_s: float | None = None  # of a repeat
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
        check_room(server, job.workload)
        check_turns(server, job.workload)
        run = await EndpointClient(connection, server, job, listener).run()
    address = connection.address
    return MeasuredEndpoint(
        machine=Machine(device="endpoint", vllm=server.version, endpoint=address),
        model=Subject(name=connection.safe(server.model), load_format="endpoint"),
        run=run,
    )


def check_room(server: Server, workload: Workload) -> None:
    longest = max(session.longest for session in workload.sessions)
    if server.max_model_len is not None and longest > server.max_model_len:
        raise InputError(
            f"not all requests fit: the longest takes {longest:,} tokens with its "
            f"answer, the server has room for {server.max_model_len:,}",
            hint="serve it with a larger max_model_len, or lower --max-output",
        )


def check_turns(server: Server, workload: Workload) -> None:
    if workload.has_turns and not server.is_vllm:
        raise UsageError(
            "a next turn repeats the answer token by token, and only vLLM returns the "
            "token ids of its answers",
            hint="measure a vLLM server, or data of single prompts",
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
        self._sessions = sessions_of(job.workload)
        self._writer = BodyWriter(server, job)
        self._phase = "connecting"
        self._sent = 0  # requests of this phase, and those of them that are answered
        self._answered = 0
        self._repeats: list[Figures] = []
        self._answers: list[list[Answer]] = []  # by repeat
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
            requests=tuple(rows_of(answers) for answers in self._answers),
            notes=tuple(self._notes.values()),
        )

    async def _measure(self) -> None:
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

    async def _warm_up(self) -> None:
        """Send the longest prompt and others: what is slow at first is slow here."""
        self._begin("warming up")
        ranked = sorted(self._sessions, key=lambda s: -s.turns[0].prompt_tokens)
        every = max(1, len(ranked) // WARM_UP_SESSIONS)
        sessions = ranked[::every][:WARM_UP_SESSIONS]
        short = first_turns(sessions, most_output=WARM_UP_TOKENS)
        client = Client(concurrency=self._job.workload.concurrency)
        answers = await self._send(short, WARM_UP, client)
        # Lest they count as the first repeat's.
        await self._settled(self._server.metrics, len(answers))

    # -- requests ----------------------------------------------------------------------

    async def _send(
        self, sessions: list[SentSession], name: str, client: Client
    ) -> list[Answer]:
        """All of them as the client does; the first failure ends it."""
        self._sent = sum(len(session.turns) for session in sessions)
        self._answered = 0
        texts = []
        for number, session in enumerate(sessions):
            texts.append(self._writer.texts(name, session, number))
        client = replace(client, tell=self._count)
        sending = Round(name, sessions, texts, self._ask, client)
        sending.begin()
        return await sending.finish()

    def _count(self) -> None:
        self._answered += 1
        self._listener.progress(self._answered, self._sent)

    async def _ask(self, question: Question) -> Answer:
        received = Received()
        body = self._writer.body(question)
        sent = time.perf_counter()
        async with self._connection.stream(COMPLETIONS, body) as parts:
            if question.about.is_scored:
                received.take_whole(await whole(parts), time.perf_counter())
            else:
                await received.follow(parts, time.perf_counter)
        answer = received.answer(question, sent, time.perf_counter())
        asked = question.about.output_tokens
        if answer.tokens > asked:  # it ignores what it was asked
            raise RequestFailed(
                f"answers with {answer.tokens:,} tokens where {asked:,} were asked for"
            )
        return answer

    # -- one repeat --------------------------------------------------------------------

    async def _repeat(self, repeat: int) -> Figures:
        workload = self._job.workload
        client = Client(
            samples_at_once=workload.samples_at_once,
            concurrency=workload.concurrency,
            limit_s=self._job.time_limit_s,
        )
        before = await self._connection.metrics()
        answers = await self._send(self._sessions, str(repeat), client)
        if not answers:
            raise UsageError(f"no request ended within {client.limit_s:g} s")
        after = await self._settled(before, len(answers))
        self._answers.append(answers)
        figures = figures_of(answers, workload.long_over, slo=self._job.slo)
        self._note_answers(answers)
        if before is None or after is None:
            return figures
        finished = metrics.counted(before, after, metrics.FINISHED)
        if finished is not None and finished != len(answers):
            if client.limit_s is None:
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
        counted = 0
        sent = 0
        for answer in answers:
            turn = self._sessions[answer.session].turns[answer.turn]
            counted += answer.prompt_tokens
            sent += turn.prompt_tokens
            if answer.tokens < turn.output_tokens:
                short += 1
        if short:
            self._note("answers_ended_early", answers=short, of=len(answers))
        if counted != sent:
            self._note("prompts_counted_otherwise", counted=counted, sent=sent)
        if self._job.prompts and not self._server.is_vllm:
            self._note("texts_sent_again")

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


class BodyWriter:
    """Writes requests down. What only vLLM understands is sent to vLLM only."""

    def __init__(self, server: Server, job: EndpointJob) -> None:
        stretches, ends = sharing_of(job.workload)
        self._server = server
        self._prompts = job.prompts
        self._has_turns = job.workload.has_turns
        self._ids = SharingIds(stretches, ends, RANDOM_IDS)
        self._seed = job.workload.seed
        self._salt = uuid4().hex  # no other run's prefixes are shared

    def texts(self, name: str, session: SentSession, number: int) -> list[list[int]]:
        """The token ids that each turn adds: others in each repeat, unless real."""
        if self._prompts:
            return [list(self._prompts[session.place or 0])]
        seed = f"{self._seed}/{self._salt}/{name}"
        return self._ids.texts(seed, session, number)

    def body(self, question: Question) -> bytes:
        """The request as it is posted."""
        about = question.about
        body: dict[str, Any] = {
            "model": self._server.model,
            "prompt": question.ids,
            "max_tokens": about.output_tokens,
            "temperature": 0,
        }
        is_vllm = self._server.is_vllm
        if not about.is_scored:
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
            body["min_tokens"] = about.output_tokens
            body["ignore_eos"] = True
            # Prompts with another salt share no prefix with this one.
            body["cache_salt"] = f"{self._salt}/{question.round}"
        if self._has_turns:
            body["return_token_ids"] = True
        return orjson.dumps(body)
