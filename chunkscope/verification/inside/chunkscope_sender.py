"""Send requests to a vLLM engine, and note when each of their tokens comes back."""

import asyncio
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chunkscope_prompts import SharingIds, random_ids

# Prompts of `--check-outputs` are those of the first repeat, so that rows can be
# compared.
FIRST_REPEAT = "0"


@dataclass
class Request:
    """One request. Without a place in the workload its prompt shares nothing."""

    prompt_tokens: int
    output_tokens: int
    arrival_s: float = 0.0
    place: "int | None" = None
    is_scored: bool = False  # asks for the likelihood of its prompt


@dataclass
class Answer:
    """When a request was sent, and how many tokens came at which times."""

    sent: float
    times: "list[float]"
    counts: "list[int]"
    cached: "int | None"
    tokens: "list[int]"

    def told(self, start: float) -> "dict[str, Any]":
        """As JSON has it, in seconds since `start`."""
        return {
            "sent": max(0.0, self.sent - start),
            "times": [time - start for time in self.times],
            "counts": self.counts,
            "cached": self.cached,
        }


@dataclass
class Round:
    """All requests once. `held`: they waited in the engine until the start."""

    start: float
    held: bool
    answers: "list[Answer]"

    def told(self) -> "list[dict[str, Any]]":
        return [answer.told(self.start) for answer in self.answers]


def nobody_is_told() -> None:
    """What to call with every answer, where there is nothing to do."""


class Sender:
    """Sends requests of one task to one engine."""

    def __init__(self, engine: Any, task: "dict[str, Any]", *, vocab: int) -> None:
        self._engine = engine
        self._seed = task["seed"]
        self._given = task.get("prompts")  # token ids by place, where they are real
        # Special tokens sit at either end of most vocabularies.
        self._ids = (1_000, vocab * 6 // 10) if vocab >= 5_000 else (1, vocab)
        self._sharing = SharingIds(task["stretches"], task["ends"], self._ids)
        self._tokens = TokenTimes(engine.output_processor)
        self.fastest = 0.0  # the most tokens per second of all that was sent

    async def warm_up(self, requests: "list[Request]") -> None:
        """Send requests whose times do not count; see that their tokens can be seen."""
        sent = await self.send(requests, "w")
        for request, answer in zip(requests, sent.answers):
            if sum(answer.counts) != request.output_tokens:
                raise RuntimeError(
                    "chunkscope cannot see the tokens of this vLLM version"
                )

    async def send(
        self,
        requests: "list[Request]",
        name: str,
        concurrency: "int | None" = None,
        tell: "Callable[[], None]" = nobody_is_told,
    ) -> Round:
        """Send all at their times, with at most `concurrency` of them under way.

        Each `name` has prompts of its own, unless they are given. `tell` is called with
        every answer.
        """
        prompts = []
        for number, request in enumerate(requests):
            prompts.append(self._prompt(name, request, number))
        return await self._send(requests, prompts, name, concurrency, tell)

    async def outputs(
        self,
        requests: "list[Request]",
        tell: "Callable[[], None]" = nobody_is_told,
        *,
        again: bool,
    ) -> "list[list[int]]":
        """The tokens that answer the requests.

        `again` batches them otherwise: the last first, half of them under way.
        """
        order = list(requests)
        concurrency = None
        if again:
            order.reverse()
            concurrency = (len(order) + 1) // 2
        prompts = [self._prompt(FIRST_REPEAT, request, 0) for request in order]
        sent = await self._send(order, prompts, "o", concurrency, tell)
        tokens = [answer.tokens for answer in sent.answers]
        if again:
            tokens.reverse()
        return tokens

    def _prompt(self, name: str, request: Request, number: int) -> "list[int]":
        seed = f"{self._seed}/{name}"
        length = request.prompt_tokens
        ids: list[int]
        if request.place is None:
            ids = random_ids(f"{seed}/alone/{number}", length, self._ids)
        elif self._given is not None:
            ids = self._given[request.place]
        else:
            ids = self._sharing.prompt(seed, request.place, length)
        return ids

    async def _send(
        self,
        requests: "list[Request]",
        prompts: "list[list[int]]",
        name: str,
        concurrency: "int | None",
        tell: "Callable[[], None]",
    ) -> Round:
        """Requests that come at once all wait in the engine when the clock starts.

        A client that keeps some under way sends the next when one of them ends.
        """
        at_once = concurrency is None and not any(r.arrival_s for r in requests)
        held = at_once and await self._hold()
        under_way = asyncio.Semaphore(concurrency or len(requests))
        begin = time.perf_counter()

        async def send_one(number: int) -> Answer:
            request = requests[number]
            wait_s = begin + request.arrival_s - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            async with under_way:
                answer = await self._answer(
                    f"{name}.{number}", request, prompts[number]
                )
            tell()
            return answer

        tasks = [asyncio.create_task(send_one(n)) for n in range(len(requests))]
        start = await self._let_go(tasks) if held else begin
        answers = list(await asyncio.gather(*tasks))
        tokens = sum(r.prompt_tokens + r.output_tokens for r in requests)
        rate = tokens / (time.perf_counter() - start)
        self.fastest = max(self.fastest, rate)
        return Round(start, held, answers)

    async def _answer(self, name: str, request: Request, ids: "list[int]") -> Answer:
        """Send one request; its tokens' times are noted as they come."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=request.output_tokens,
            ignore_eos=True,
            detokenize=False,
            prompt_logprobs=1 if request.is_scored else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        sent = time.perf_counter()
        cached = None
        tokens: list[int] = []
        prompt = {"prompt_token_ids": ids}
        async for output in self._engine.generate(prompt, params, name):
            tokens += output.outputs[0].token_ids
            cached = getattr(output, "num_cached_tokens", None)
        times, counts = self._tokens.take(name)
        return Answer(sent, times, counts, cached, tokens)

    async def _hold(self) -> bool:
        """Let the engine take requests and begin none; False if it cannot."""
        pause = getattr(self._engine, "pause_generation", None)
        if pause is None or "mode" not in inspect.signature(pause).parameters:
            return False
        if not hasattr(self._engine.engine_core, "pause_scheduler_async"):
            return False
        await pause(mode="keep", clear_cache=False)
        return True

    async def _let_go(self, tasks: "list[asyncio.Task[Answer]]") -> float:
        """Start the engine when all requests wait in it; the time of the start.

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
