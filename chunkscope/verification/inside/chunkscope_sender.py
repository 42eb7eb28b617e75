"""Send sessions to a vLLM engine, and note when each of their tokens comes back."""

import asyncio
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chunkscope_prompts import SharingIds
from chunkscope_sessions import Answer, Client, Question, Round, SentSession

# Prompts of `--check-outputs` are those of the first repeat, so that rows can be
# compared.
FIRST_REPEAT = "0"


@dataclass
class Sent:
    """The answers to a round. `held`: all waited in the engine until the start."""

    held: bool
    answers: "list[Answer]"

    def told(self) -> "list[dict[str, Any]]":
        return [answer.told() for answer in self.answers]


class Sender:
    """Sends sessions of one task to one engine."""

    def __init__(self, engine: Any, task: "dict[str, Any]", *, vocab: int) -> None:
        self._engine = engine
        self._seed = task["seed"]
        self._given = task.get("prompts")  # token ids by place, where they are real
        # Special tokens sit at either end of most vocabularies.
        ids = (1_000, vocab * 6 // 10) if vocab >= 5_000 else (1, vocab)
        self._sharing = SharingIds(task["stretches"], task["ends"], ids)
        self._tokens = TokenTimes(engine.output_processor)
        self.fastest = 0.0  # the most tokens per second that were computed

    async def warm_up(self, sessions: "list[SentSession]") -> None:
        """Send sessions whose times do not count; see that their tokens can be seen."""
        sent = await self.send(sessions, "w", Client())
        for answer in sent.answers:
            if answer.tokens != len(answer.ids):
                raise RuntimeError(
                    "chunkscope cannot see the tokens of this vLLM version"
                )

    async def send(
        self,
        sessions: "list[SentSession]",
        name: str,
        client: Client,
    ) -> Sent:
        """Send all at their times, as the client does.

        Each `name` has prompts of its own, unless they are given.
        """
        texts = self._texts(name, sessions)
        sending = Round(name, sessions, texts, self._ask, client)
        held = False
        if client.sends_all:
            held = await self._hold(sessions)
        tasks = sending.begin()
        if held:
            sending.began = await self._let_go(tasks)
        answers = await sending.finish()
        self._tokens.forget()  # those of requests that were given up
        computed = 0
        for answer in answers:
            computed += answer.prompt_tokens - (answer.cached or 0) + answer.tokens
        self.fastest = max(self.fastest, computed / sending.clock())
        return Sent(held, answers)

    async def outputs(
        self,
        sessions: "list[SentSession]",
        tell: "Callable[[], None]",
        *,
        again: bool,
    ) -> "list[list[int]]":
        """The tokens that answer the sessions, which have one turn each.

        `again` batches them otherwise: the last first, half of them under way.
        """
        order = list(sessions)
        client = Client(tell=tell)
        if again:
            order.reverse()
            client.concurrency = (len(order) + 1) // 2
        sent = await self.send(order, FIRST_REPEAT, client)
        ids = [answer.ids for answer in sent.answers]
        if again:
            ids.reverse()
        return ids

    def _texts(
        self, name: str, sessions: "list[SentSession]"
    ) -> "list[list[list[int]]]":
        seed = f"{self._seed}/{name}"
        texts = []
        for number, session in enumerate(sessions):
            if self._given is not None and session.place is not None:
                texts.append([self._given[session.place]])
            else:
                texts.append(self._sharing.texts(seed, session, number))
        return texts

    async def _ask(self, question: Question) -> Answer:
        """Send one request; its tokens' times are noted as they come."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=question.about.output_tokens,
            ignore_eos=True,
            detokenize=False,
            prompt_logprobs=1 if question.about.is_scored else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        sent = time.perf_counter()
        cached = None
        ids: list[int] = []
        prompt = {"prompt_token_ids": question.ids}
        async for output in self._engine.generate(prompt, params, question.name):
            ids += output.outputs[0].token_ids
            cached = getattr(output, "num_cached_tokens", None)
        times, counts = self._tokens.take(question.name)
        return Answer(
            session=question.session,
            turn=question.turn,
            prompt_tokens=len(question.ids),
            sent=sent,
            times=times,
            counts=counts,
            cached=cached,
            ids=ids,
        )

    async def _hold(self, sessions: "list[SentSession]") -> bool:
        """Let the engine take requests and begin none.

        False where sessions come at times of their own, and if the engine cannot.
        """
        if any(session.arrival_s for session in sessions):
            return False
        pause = getattr(self._engine, "pause_generation", None)
        if pause is None or "mode" not in inspect.signature(pause).parameters:
            return False
        if not hasattr(self._engine.engine_core, "pause_scheduler_async"):
            return False
        await pause(mode="keep", clear_cache=False)
        return True

    async def _let_go(self, tasks: "list[asyncio.Task[None]]") -> float:
        """Start the engine when all sessions wait in it; the time of the start.

        It starts as well when one of the requests failed.
        """
        waiting = self._engine.output_processor.get_num_unfinished_requests
        while waiting() < len(tasks) and not any(task.done() for task in tasks):
            await asyncio.sleep(0.001)
        await self._engine.is_paused()  # it answers after all that was sent before
        start = time.perf_counter()
        await self._engine.resume_generation()
        return start


class TokenTimes:
    """When the tokens of each request came.

    Streaming them would slow down the engine.
    """

    def __init__(self, processor: Any) -> None:
        self._times: dict[str, list[float]] = {}
        self._counts: dict[str, list[int]] = {}
        process = processor.process_outputs

        def process_outputs(outputs: "list[Any]", *args: Any, **kwargs: Any) -> Any:
            self._note(outputs)
            return process(outputs, *args, **kwargs)

        processor.process_outputs = process_outputs

    def _note(self, outputs: "list[Any]") -> None:
        now = time.perf_counter()
        for output in outputs:
            count = len(output.new_token_ids)
            if not count:
                continue
            # vLLM adds letters to the names of requests, after a dash.
            name = output.request_id.partition("-")[0]
            self._times.setdefault(name, []).append(now)
            self._counts.setdefault(name, []).append(count)

    def take(self, name: str) -> "tuple[list[float], list[int]]":
        """The times and counts of one request, which are forgotten here."""
        return self._times.pop(name, []), self._counts.pop(name, [])

    def forget(self) -> None:
        """Drop all that nobody took."""
        self._times.clear()
        self._counts.clear()
