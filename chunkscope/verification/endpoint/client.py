"""Measure a server that runs already: any OpenAI-compatible one, and vLLM in more detail.

Requests ask for greedy answers (temperature 0): that is what settings are compared by.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import orjson

from chunkscope.artefacts.artefact import now
from chunkscope.artefacts.figures import Figures
from chunkscope.artefacts.note import Note, note
from chunkscope.console import Progress
from chunkscope.errors import InputError
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import Request, Workload, single
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
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings

SETTING, COMPLETIONS = "endpoint", "/v1/completions"
WARM_UP_REQUESTS = 8
WARM_UP_TOKENS = 16
SETTLE_S = 2.0  # a server counts an answer shortly after it was sent
# In every vocabulary, however small: a vLLM without a tokenizer dies of ids beyond its own.
RANDOM_IDS = (100, 250)


def measure_endpoint(
    url: str,
    workload: Workload,
    *,
    repeats: int,
    model: str | None,
    prompts: Sequence[RealPrompt],
    timeout_s: float,
    listener: Progress,
    slo: Slo = (),
) -> tuple[Machine, Subject, Run]:
    """Send the workload, `repeats` times; whatever happens once it is sent is a result."""
    listener.setting(SETTING, 1, 1)

    async def measure() -> tuple[Machine, Subject, Run]:
        listener.phase("connecting")
        async with Connection(url) as connection:
            server = await meet(connection, model)
            room = server.max_model_len
            sizes = [r.prompt_tokens + r.output_tokens for r in workload.requests]
            if room is not None and max(sizes) > room:
                raise InputError(
                    f"{sum(size > room for size in sizes):,} of {len(sizes):,} requests do not "
                    f"fit: the longest takes {max(sizes):,} tokens with its answer, the server "
                    f"has room for {room:,}",
                    hint="serve it with a larger max_model_len, or lower --max-output",
                )
            run = await _Client(
                connection, server, workload, prompts, listener, slo
            ).run(repeats, timeout_s)
        machine = Machine(
            device="endpoint", vllm=server.version, endpoint=connection.address
        )
        name = connection.safe(server.model)
        return machine, Subject(name=name, load_format="endpoint"), run

    return asyncio.run(measure())


@dataclass(slots=True)
class _Client:
    """From the first question to the last repeat."""

    connection: Connection
    server: Server
    workload: Workload
    real: Sequence[RealPrompt]
    listener: Progress
    slo: Slo
    phase: str = "connecting"
    sent: int = 0  # requests of this phase, and those of them that are answered
    answered: int = 0
    repeats: list[Figures] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    notes: dict[str, Note] = field(default_factory=dict)  # by code, the latest
    salt: str = field(
        default_factory=lambda: uuid4().hex
    )  # no other run's prefixes are shared

    async def run(self, repeats: int, timeout_s: float) -> Run:
        started, begin = now(), time.perf_counter()
        status, failure = Status.OK, None
        try:
            async with asyncio.timeout(timeout_s):
                await self._try_out()
                await self._warm_up()
                for repeat in range(repeats):
                    self._begin("measuring", f"repeat {repeat + 1} of {repeats}")
                    self.repeats.append(await self._repeat(repeat))
        except TimeoutError:
            status, failure = (
                Status.TIMEOUT,
                self._failure("server_timeout", seconds=timeout_s),
            )
        except RequestFailed as error:
            detail = self.connection.safe(error.message)
            status, failure = (
                error.status,
                self._failure("server_failed", detail=detail),
            )
        cache = metrics.kv_cache(
            self.server.metrics or Metrics(), self.server.max_model_len
        )
        if cache.is_upper_bound:
            self._note("kv_tokens_are_blocks")
        return Run(
            setting=SETTING,
            settings=Settings(),
            status=status,
            failure=failure,
            started=started,
            took_s=time.perf_counter() - begin,
            engine={**cache.engine, "max_model_len": self.server.max_model_len},
            kv_cache_tokens=cache.tokens,
            kv_concurrency=cache.concurrency,
            repeats=tuple(self.repeats),
            figures=median_of(self.repeats) if status is Status.OK else None,
            distribution=distribution_of(self.answers),
            notes=tuple(self.notes.values()),
        )

    def _begin(self, phase: str, detail: str = "") -> None:
        self.phase, self.sent, self.answered = phase, 0, 0
        self.listener.phase(phase, detail)

    def _failure(self, code: str, **values: Any) -> Note:
        return note(
            code, **values, phase=self.phase, answered=self.answered, sent=self.sent
        )

    def _note(self, code: str, **values: Any) -> None:
        self.notes[code] = note(code, **values)

    # -- before anything is measured -------------------------------------------------------------

    async def _try_out(self) -> None:
        """Does this server take our kind of prompt? The shortest; a likelihood, if any is asked."""
        requests, scored = self.workload.requests, self.workload.likelihoods
        place = min(
            scored or range(len(requests)), key=lambda n: requests[n].prompt_tokens
        )
        (body,) = self._bodies(
            [(place, replace(requests[place], output_tokens=1))], repeat=-1
        )
        try:
            await self._exchange(body, time.perf_counter(), is_scored=place in scored)
        except RequestFailed as failure:
            # vLLM says 400; others have no such prompts, and some of them break on it.
            if failure.code not in (400, 415, 422, 500, 501):
                raise self.connection.unusable(failure) from None
            kind, hint = "token ids", "send real texts: name the datasets with --data"
            kind, hint = ("texts", RANDOM_INSTEAD) if self.real else (kind, hint)
            what = f"{self.connection.address} refuses {kind} at {COMPLETIONS}"
            raise InputError(f"{what}: it {failure.message}", hint=hint) from None

    async def _warm_up(self) -> None:
        """The longest prompt and a few others: what is slow the first time is slow here."""
        self._begin("warming up")
        ranked = sorted(
            enumerate(self.workload.requests), key=lambda pair: -pair[1].prompt_tokens
        )
        some = ranked[:: max(1, len(ranked) // WARM_UP_REQUESTS)][:WARM_UP_REQUESTS]
        short = [
            (
                i,
                replace(
                    r, arrival_s=0.0, output_tokens=min(r.output_tokens, WARM_UP_TOKENS)
                ),
            )
            for i, r in some
        ]
        await self._send(short, repeat=-1)
        # With the one that was sent to try it out, lest they count as the first repeat's.
        await self._settled(self.server.metrics, len(short) + 1)

    # -- what is sent ----------------------------------------------------------------------------

    def _bodies(
        self, requests: Sequence[tuple[int, Request]], repeat: int
    ) -> list[bytes]:
        """By their places in the workload. What only vLLM understands is sent to vLLM only."""
        w, real, is_vllm = self.workload, self.real, self.server.is_vllm
        scored = w.likelihoods
        stretches = [(stretch.parent, stretch.tokens) for stretch in w.stretches]
        ids = SharingIds(
            stretches, [request.stretch for request in w.requests], RANDOM_IDS
        )
        seed, bodies = f"{w.seed}/{self.salt}/{repeat}", []
        for place, request in requests:
            tokens = request.output_tokens
            prompt = (
                real[place].text
                if real
                else ids.prompt(seed, place, request.prompt_tokens)
            )
            body: dict[str, Any] = {
                "model": self.server.model,
                "prompt": prompt,
                "max_tokens": tokens,
                "temperature": 0,
            }
            if (
                place in scored
            ):  # log-probabilities of the prompt, which come in one piece
                body |= (
                    {"prompt_logprobs": 1} if is_vllm else {"echo": True, "logprobs": 1}
                )
            else:
                along = {"continuous_usage_stats": True} if is_vllm else {}
                body |= {
                    "stream": True,
                    "stream_options": {"include_usage": True, **along},
                }
            if is_vllm:
                # Prompts with another salt share no prefix with this one.
                salt = f"{self.salt}/{repeat}"
                body |= {"min_tokens": tokens, "ignore_eos": True, "cache_salt": salt}
                if (
                    real and real[place].is_complete
                ):  # its special tokens are in the text
                    body["add_special_tokens"] = False
            bodies.append(orjson.dumps(body))
        return bodies

    async def _send(
        self, requests: Sequence[tuple[int, Request]], *, repeat: int
    ) -> list[Answer]:
        """All at their times, at most so many under way; the first failure ends it."""
        # Made before the clock starts: a long prompt of token ids takes a while to write down.
        bodies, scored = self._bodies(requests, repeat), self.workload.likelihoods
        self.sent, self.answered = len(requests), 0
        places = asyncio.Semaphore(self.workload.concurrency or len(requests))
        begin = time.perf_counter()

        async def one(body: bytes, place: int, request: Request) -> Answer:
            await asyncio.sleep(
                max(0.0, begin + request.arrival_s - time.perf_counter())
            )
            async with places:
                answer = await self._exchange(body, begin, is_scored=place in scored)
            if (tokens := sum(answer.counts)) > request.output_tokens:
                raise RequestFailed(
                    f"answers with {tokens:,} tokens where {request.output_tokens:,} were asked for"
                )
            self.answered += 1
            self.listener.progress(self.answered, self.sent)
            return answer

        try:
            async with asyncio.TaskGroup() as group:
                pairs = zip(bodies, requests, strict=True)
                tasks = [group.create_task(one(body, *pair)) for body, pair in pairs]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _exchange(self, body: bytes, begin: float, *, is_scored: bool) -> Answer:
        """One request and its answer; seconds count from `begin`."""

        def clock() -> float:
            return time.perf_counter() - begin

        received, sent = Received(), clock()
        async with self.connection.stream(COMPLETIONS, body) as parts:
            if is_scored:
                received.take_whole(await whole(parts), clock())
            else:
                await received.follow(parts, clock)
        return received.answer(sent, clock())

    # -- one repeat ------------------------------------------------------------------------------

    async def _repeat(self, repeat: int) -> Figures:
        before = await self.connection.metrics()
        answers = await self._send(
            list(enumerate(self.workload.requests)), repeat=repeat
        )
        after = await self._settled(before, len(answers))
        self.answers += answers
        figures = figures_of(answers, self._as_counted(answers), slo=self.slo)
        if uncounted := sum(not answer.is_counted for answer in answers):
            self._note("answers_not_counted", answers=uncounted)
        pairs = zip(answers, self.workload.requests, strict=True)
        if short := sum(
            sum(answer.counts) < request.output_tokens for answer, request in pairs
        ):
            self._note("answers_ended_early", answers=short, of=len(answers))
        if self.real and not self.server.is_vllm:
            self._note("texts_sent_again")
        if before is None or after is None:
            return figures
        finished = metrics.counted(before, after, metrics.FINISHED)
        if finished is not None and finished != len(answers):
            self._note("server_is_shared", finished=finished, sent=len(answers))
            return figures
        rate = figures.prefix_hit_rate
        return replace(
            figures,
            preemptions=metrics.counted(before, after, metrics.PREEMPTIONS),
            prefix_hit_rate=rate
            if rate is not None
            else metrics.prefix_hit_rate(before, after),
        )

    def _as_counted(self, answers: Sequence[Answer]) -> Workload:
        """The workload with the prompt lengths that the server found, if it tells them all."""
        requests, lengths = (
            self.workload.requests,
            [answer.prompt_tokens for answer in answers],
        )
        if not all(lengths) or lengths == [
            request.prompt_tokens for request in requests
        ]:
            return self.workload
        counted = sum(length or 0 for length in lengths)
        self._note(
            "prompts_counted_otherwise",
            counted=counted,
            sent=self.workload.input_tokens,
        )
        pairs = zip(requests, lengths, strict=True)
        return replace(
            self.workload,
            sessions=tuple(
                single(n or 1, one.output_tokens, one.arrival_s, one.stretch)
                for one, n in pairs
            ),
        )

    async def _settled(self, before: Metrics | None, sent: int) -> Metrics | None:
        """The metrics once all answers are in them."""
        deadline = time.monotonic() + SETTLE_S
        after = await self.connection.metrics()
        while before and after and time.monotonic() < deadline:
            finished = metrics.counted(before, after, metrics.FINISHED)
            if finished is None or finished >= sent:
                break
            await asyncio.sleep(0.1)
            after = await self.connection.metrics()
        return after
