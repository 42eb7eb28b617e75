"""Measure a server that runs already: any OpenAI-compatible one, and vLLM in more detail."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from chunkscope.artefacts.artefact import now
from chunkscope.console import VerifyProgress
from chunkscope.errors import InputError
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import Request, Workload
from chunkscope.verification.endpoint import metrics
from chunkscope.verification.endpoint.exchange import Exchange
from chunkscope.verification.endpoint.metrics import Metrics
from chunkscope.verification.endpoint.request_body import (
    BYTES,
    WORDS,
    RandomIds,
    RequestForm,
    Route,
)
from chunkscope.verification.endpoint.server import (
    Connection,
    RequestFailed,
    Server,
    meet,
    parse_address,
    scrape,
    unusable,
)
from chunkscope.verification.endpoint.spoken import NoLogprobsError, answer_in, score_in
from chunkscope.verification.inside.chunkscope_prompts import with_endings
from chunkscope.verification.latencies import Answer, distribution_of, figures_of, median_of
from chunkscope.verification.outputs import (
    OutputSample,
    RunOutputs,
    SpokenOutputs,
    compared,
    sample_of,
)
from chunkscope.verification.prompts import RealPrompts
from chunkscope.verification.result import Figures, Machine, Run, Subject
from chunkscope.vllm.log.fate import Status

SETTING = "endpoint"
WARM_UP_REQUESTS = 8
WARM_UP_TOKENS = 16
LATE_S = 0.1
NOT_COMPARED = "outputs were not compared"
EXPECTED = (NoLogprobsError, LookupError, TypeError, ValueError)  # of what is not as it should be
_SETTLE_S = 2.0  # a server counts an answer shortly after it was sent


def measure_endpoint(
    url: str,
    workload: Workload,
    *,
    repeats: int,
    model: str | None,
    key: str | None,
    prompts: RealPrompts | None,
    timeout_s: float,
    listener: VerifyProgress,
    slo: Slo = (),
    check_outputs: bool = False,
) -> tuple[Machine, Subject, Run]:
    """Send the workload to the server at `url`, `repeats` times.

    An error is raised for what makes no sense to send; what happens once it is sent is a result.
    """
    connection = Connection(parse_address(url), key)
    _allow_files(len(workload.requests))
    listener.setting(SETTING, 1, 1)

    async def measure() -> tuple[Machine, Subject, Run]:
        listener.phase("connecting")
        async with connection:
            server = await meet(connection, model)
            # Where a key was sent, by what the user called it or not at all.
            hidden = connection.has_key and server.model != model
            name = connection.safe(server.model) if hidden else server.model
            _refuse_what_does_not_fit(workload, server, name)
            session = _Session(connection, server, workload, prompts, listener, slo, check_outputs)
            run = await session.run(repeats, timeout_s)
        machine = Machine(device="endpoint", vllm=server.version, endpoint=connection.address)
        return machine, Subject(name=name, load_format="endpoint"), run

    return asyncio.run(measure())


def _allow_files(requests: int) -> None:
    """Every request on its way is an open file; most systems allow 1024 unless asked."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = requests + 256
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _refuse_what_does_not_fit(workload: Workload, server: Server, name: str) -> None:
    room = server.max_model_len
    sizes = [r.prompt_tokens + r.output_tokens for r in workload.requests]
    if room is None or max(sizes) <= room:
        return
    over = sum(size > room for size in sizes)
    raise InputError(
        f"{over:,} of {len(sizes):,} requests do not fit: the longest takes {max(sizes):,} tokens "
        f"with its answer, {name} is served with room for {room:,}",
        hint="serve it with a larger max_model_len, or lower --max-output",
    )


def _refuse_impossible(
    answers: Sequence[Answer], requests: Sequence[Request], server: Server
) -> None:
    """Figures made of what cannot be are no figures."""
    for answer, request in zip(answers, requests, strict=True):
        if (tokens := sum(answer.counts)) > request.output_tokens:
            asked = f"where {request.output_tokens:,} were asked for"
            raise RequestFailed(f"says that an answer has {tokens:,} tokens {asked}")
        room = server.max_model_len
        if room is not None and answer.prompt_tokens is not None and answer.prompt_tokens > room:
            has = f"has room for {room:,}"
            raise RequestFailed(f"says that a prompt has {answer.prompt_tokens:,} tokens and {has}")


@dataclass(slots=True)
class _Session:
    """From the first question to the last repeat."""

    connection: Connection
    server: Server
    workload: Workload
    real: RealPrompts | None
    listener: VerifyProgress
    slo: Slo = ()
    check_outputs: bool = False
    phase: str = "connecting"
    sent: int = 0  # requests of this phase, and those of them that are answered
    answered: int = 0
    repeats: list[Figures] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)  # each once, in order
    late_s: float = 0.0
    outputs: RunOutputs | None = None
    name: str = field(default_factory=lambda: uuid4().hex)
    ids: RandomIds = field(init=False)  # sent where there are no real prompts
    form: RequestForm = field(init=False)

    def __post_init__(self) -> None:
        self.form = RequestForm(
            model=self.server.model, is_vllm=self.server.is_vllm, task=self.workload.task
        )
        # Only a vLLM that has its tokenizer looks at ids before it uses them.
        ids = WORDS if self.server.has_tokenizer else BYTES
        self.ids = RandomIds(workload=self.workload, run=self.name, range=ids)

    async def run(self, repeats: int, timeout_s: float) -> Run:
        started, begin = now(), time.perf_counter()
        status, message = Status.OK, ""
        try:
            async with asyncio.timeout(timeout_s):
                await self._try_out()
                await self._warm_up()
                for repeat in range(repeats):
                    self._begin("measuring", f"repeat {repeat + 1} of {repeats}")
                    self.repeats.append(await self._repeat(repeat))
                if self.check_outputs:
                    await self._compare_outputs()
        except TimeoutError:
            status, message = Status.TIMEOUT, f"no end after {timeout_s:g} s{self._how_far()}"
        except RequestFailed as failure:
            status, message = failure.status, f"the server {failure.message}{self._how_far()}"
        return self._result(status, message, started, time.perf_counter() - begin)

    def _begin(self, phase: str, detail: str = "") -> None:
        self.phase, self.sent = phase, 0
        self.listener.phase(phase, detail)

    def _how_far(self) -> str:
        return f", after {self.answered:,} of {self.sent:,} answers" if self.sent else ""

    def _one_more(self) -> None:
        self.answered += 1
        self.listener.progress(self.answered, self.sent)

    def _result(self, status: Status, message: str, started: str, took_s: float) -> Run:
        cache = metrics.kv_cache(self.server.metrics or Metrics(), self.server.max_model_len)
        if cache.is_upper_bound:
            self._note("KV cache tokens are blocks x block size: too many for a hybrid model")
        if self.late_s > LATE_S:
            self._note(
                f"this machine was busy: it looked at the clock up to {self.late_s:.2f} s late, so "
                "latencies may be that much too long; measure from another machine"
            )
        return Run(
            setting=SETTING,
            args={},
            status=status,
            message=message,
            phase=None if status is Status.OK else self.phase,
            started=started,
            took_s=took_s,
            engine={**cache.engine, "max_model_len": self.server.max_model_len},
            kv_cache_tokens=cache.tokens,
            kv_concurrency=cache.concurrency,
            repeats=tuple(self.repeats),
            figures=median_of(self.repeats) if status is Status.OK and self.repeats else None,
            distribution=distribution_of(self.answers),
            outputs=self.outputs,
            notes=tuple(self.notes),
        )

    def _note(self, note: str) -> None:
        self.notes[note] = None

    # -- before anything is measured -------------------------------------------------------------

    async def _try_out(self) -> None:
        """Which path, and which kind of prompt, does this server take?"""
        try:
            await self._probe()
        except RequestFailed as failure:
            if failure.is_about_the_key or failure.is_redirect:
                raise unusable(self.connection, failure) from None
            if self.real is None and self._may_be_the_ids(failure):
                await self._try_lower(failure)
            elif failure.code == HTTPStatus.NOT_FOUND:
                await self._try_chat()
            else:
                raise

    async def _probe(self) -> None:
        prompt = min(self.real.texts, key=len) if self.real else self.ids.probe()
        body = self.form.body(prompt, 1, salt=f"{self.name}/probe")
        await Exchange(self.connection, self.form).send([body], [0.0], lambda: None)

    async def _try_chat(self) -> None:
        if not self.form.streams:
            raise InputError(
                f"{self.connection.address} has no {Route.COMPLETIONS}, and chats give no "
                "log-probabilities of a prompt",
                hint="measure it with --task generate",
            )
        self.form = replace(self.form, path=Route.CHAT)
        await self._probe()
        self._note(
            f"the server has only {Route.CHAT}: each prompt was sent as one user message, which "
            "the server put into its own chat template"
        )

    async def _try_lower(self, failure: RequestFailed) -> None:
        if self.ids.range != BYTES:
            self.ids = replace(self.ids, range=BYTES)
            try:
                return await self._probe()
            except RequestFailed as again:
                failure = again
        if not self._may_be_the_ids(failure):
            raise failure
        raise InputError(
            f"{self.connection.address} takes no prompts of token ids: it {failure.message}",
            hint="send real texts: name the datasets with --data",
        )

    def _may_be_the_ids(self, failure: RequestFailed) -> bool:
        """vLLM says 400; others have no such prompts, and some of them break on it."""
        if self.server.is_vllm:
            return failure.code == HTTPStatus.BAD_REQUEST
        return failure.code is not None and failure.code != HTTPStatus.TOO_MANY_REQUESTS

    async def _warm_up(self) -> None:
        """The longest prompt and a few others: what is slow the first time is slow here."""
        self._begin("warming up")
        ranked = sorted(enumerate(self.workload.requests), key=lambda pair: -pair[1].prompt_tokens)
        some = ranked[:: max(1, len(ranked) // WARM_UP_REQUESTS)][:WARM_UP_REQUESTS]
        short = [
            (i, replace(r, arrival_s=0.0, output_tokens=min(r.output_tokens, WARM_UP_TOKENS)))
            for i, r in some
        ]
        await self._send(short, repeat=-1)
        # With the one that was sent to try it out, lest they count as the first repeat's.
        await self._settled(self.server.metrics, len(short) + 1)

    # -- one repeat ------------------------------------------------------------------------------

    async def _repeat(self, repeat: int) -> Figures:
        before = await self._scrape()
        answers = await self._send(list(enumerate(self.workload.requests)), repeat=repeat)
        after = await self._settled(before, len(answers))
        self.answers += answers
        figures = figures_of(answers, self._as_counted(answers), slo=self.slo)
        self._look_at(answers)
        return self._with_metrics(figures, before, after, len(answers))

    async def _send(self, requests: Sequence[tuple[int, Request]], *, repeat: int) -> list[Answer]:
        """Requests and their numbers; the answer to each."""
        # Made before the clock starts: a long prompt of token ids takes a while to write down.
        bodies = self._bodies(repeat, requests)
        self.sent, self.answered = len(requests), 0
        exchange = Exchange(self.connection, self.form)
        at = [request.arrival_s for _, request in requests]
        most = self.workload.concurrency
        answers = await exchange.send(bodies, at, self._one_more, concurrency=most)
        _refuse_impossible(answers, [request for _, request in requests], self.server)
        if repeat >= 0:
            self.late_s = max(self.late_s, exchange.late_s)
        return answers

    def _bodies(self, repeat: int, requests: Sequence[tuple[int, Request]]) -> list[bytes]:
        salt, places = f"{self.name}/{repeat}", [place for place, _ in requests]
        outputs = [request.output_tokens for _, request in requests]
        if self.real is None:
            prompts = self.ids.prompts(repeat, places)
            both = zip(prompts, outputs, strict=True)
            return [self.form.body(ids, output, salt=salt) for ids, output in both]
        real = self.real
        return [
            self.form.body(
                real.texts[place], output, salt=salt, is_complete=real.is_complete(place)
            )
            for place, output in zip(places, outputs, strict=True)
        ]

    # -- the same prompts twice ------------------------------------------------------------------

    async def _compare_outputs(self) -> None:
        """A server has one setting: what is compared is the noise of sending it the same again."""
        sample = sample_of(self.workload)
        if sample is None or (sample.endings and self.real is not None):
            self._note(f"{NOT_COMPARED}: endings are made of random token ids, without --data")
            return
        self._begin("checking outputs")
        try:
            first, again = [await self._spoken(sample, again=again) for again in (False, True)]
        except RequestFailed as failure:
            # All is measured by now: that is not lost, whatever becomes of the server.
            self._note(f"{NOT_COMPARED}: the server {failure.message}")
        except EXPECTED:
            self._note(f"{NOT_COMPARED}: the server tells no log-probabilities")
        else:
            self.outputs = RunOutputs(tokens=sample.tokens, again=compared(first, again))

    async def _spoken(self, sample: OutputSample, *, again: bool) -> SpokenOutputs:
        """All at once; again in the opposite order, half of them under way."""
        form = replace(self.form, tells=True)
        prompts, ways = self._sampled(sample)
        outputs = [1] * len(prompts) if sample.endings else self._asked(sample)
        salt, turned = f"{self.name}/outputs/{again}", slice(None, None, -1 if again else 1)
        bodies = [
            form.body(prompt, output, salt=salt, is_complete=complete)
            for (prompt, complete), output in zip(prompts, outputs, strict=True)
        ]
        self.sent, self.answered = len(bodies), 0
        exchange = Exchange(self.connection, form, keeps=True)
        most = (len(bodies) + 1) // 2 if again else None
        answers = await exchange.send(
            bodies[turned], [0.0] * len(bodies), self._one_more, concurrency=most
        )
        wholes = [answer.whole for answer in answers][turned]
        if not sample.endings:
            return SpokenOutputs(answers=tuple(map(answer_in, wholes)))
        asked = zip(wholes, (list(prompt) for prompt, _ in prompts), strict=True)
        scores = [score_in(whole, ids, sample.tokens) for whole, ids in asked]
        pieces = (tuple(scores[n : n + ways]) for n in range(0, len(scores), ways))
        return SpokenOutputs(scores=tuple(pieces))

    def _asked(self, sample: OutputSample) -> list[int]:
        requests = self.workload.requests
        return [min(requests[place].output_tokens, sample.tokens) for place in sample.places]

    def _sampled(self, sample: OutputSample) -> tuple[list[tuple[Any, bool]], int]:
        """Prompts, each with whether it is complete; and how many endings each question has."""
        if (real := self.real) is not None:
            return [(real.texts[place], real.is_complete(place)) for place in sample.places], 1
        ids = self.ids.prompts(0, sample.places)
        if not sample.endings:
            return [(prompt, False) for prompt in ids], 1
        asked = with_endings(ids, sample.endings, sample.tokens)
        return [(prompt, False) for one in asked for prompt in one], len(asked[0])

    # -- what the server counted -----------------------------------------------------------------

    def _as_counted(self, answers: Sequence[Answer]) -> Workload:
        """The workload with the prompt lengths that the server found, if it tells them all."""
        counted = [answer.prompt_tokens for answer in answers]
        asked = self.workload.requests
        if not all(counted) or counted == [request.prompt_tokens for request in asked]:
            return self.workload
        self._note(
            f"the server counts {sum(c or 0 for c in counted):,} prompt tokens where the workload "
            f"has {self.workload.input_tokens:,}: another tokenizer, or its special tokens"
        )
        requests = tuple(
            replace(request, prompt_tokens=count or 1)
            for request, count in zip(asked, counted, strict=True)
        )
        return replace(self.workload, requests=requests)

    def _look_at(self, answers: Sequence[Answer]) -> None:
        if uncounted := sum(not answer.is_counted for answer in answers):
            self._note(
                f"the server did not count the tokens of {uncounted:,} answers: each piece of "
                "its stream counts as one"
            )
        pairs = zip(answers, self.workload.requests, strict=True)
        if short := sum(sum(answer.counts) < request.output_tokens for answer, request in pairs):
            self._note(f"{short:,} of {len(answers):,} answers ended before the length asked for")
        if self.real and not self.server.is_vllm:
            self._note("every repeat sends the same texts: a prefix cache may know them")

    async def _scrape(self) -> Metrics | None:
        return await scrape(self.connection) if self.server.metrics is not None else None

    async def _settled(self, before: Metrics | None, sent: int) -> Metrics | None:
        """The metrics once all answers are in them."""
        deadline = time.monotonic() + _SETTLE_S
        after = await self._scrape()
        while before and after and time.monotonic() < deadline:
            finished = metrics.counted(before, after, metrics.FINISHED)
            if finished is None or finished >= sent:
                break
            await asyncio.sleep(0.1)
            after = await self._scrape()
        return after

    def _with_metrics(
        self, figures: Figures, before: Metrics | None, after: Metrics | None, sent: int
    ) -> Figures:
        if before is None or after is None:
            return figures
        finished = metrics.counted(before, after, metrics.FINISHED)
        if finished is not None and finished != sent:
            self._note(
                f"the server finished {finished:,.0f} requests where {sent:,} were sent: others "
                "use it, or it is one of several; its own counts of preemptions and prefix-cache "
                "hits are left out"
            )
            return figures
        rate = figures.prefix_hit_rate
        return replace(
            figures,
            preemptions=metrics.preemptions(before, after),
            prefix_hit_rate=rate if rate is not None else metrics.prefix_hit_rate(before, after),
        )
