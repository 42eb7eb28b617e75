"""Send requests to a vLLM engine, and note when each of their tokens comes back."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

from chunkscope_prompts import SharingIds, random_ids


class Sender:
    """Requests are (prompt tokens, output tokens, when to send it, its place in the workload).

    Those without a place share nothing with others.
    """

    def __init__(self, engine: Any, task: "dict[str, Any]", *, vocab: int) -> None:
        self._engine, self._task, self._scored = engine, task, frozenset(task["scored"])
        # Special tokens sit at either end of most vocabularies.
        self._range = (1_000, vocab * 6 // 10) if vocab >= 5_000 else (1, vocab)
        self._sharing = SharingIds(task["stretches"], task["ends"], self._range)
        self._tokens = Tokens(engine.output_processor)
        self.held = False  # whether all requests of the last time waited before the clock started
        self.tokens_per_s = 0.0  # the most that it came to

    async def warm_up(self, requests: "list[Any]") -> None:
        """The longest prompt, and the workload in short: it takes the steps that come then."""
        answers = await self.send(requests, "w")
        wanted = [request[1] for request in requests]
        if [sum(answer["counts"]) for answer in answers] != wanted:
            raise RuntimeError("chunkscope cannot see the tokens of this vLLM version")

    async def send(
        self,
        requests: "list[Any]",
        name: str,
        tell: "Callable[[], None]" = lambda: None,
        most: "int | None" = None,
    ) -> "list[dict[str, Any]]":
        """The answers in the order of the requests, in seconds since all of this began.

        `name` is another one each time, and so are the prompts, unless they were given; `most` may
        be under way.
        """
        every = len(self._scored) == len(self._task["requests"])
        sent = []
        for number, (length, output, when, place) in enumerate(requests):
            ids = self._prompt(name, place, length, number)
            is_scored = every if place is None else place in self._scored
            sent.append((ids, output, when, is_scored))
        answers = await self._send(sent, name, tell, most)
        for answer in answers:
            del answer["tokens"]
        return answers

    async def outputs(
        self, tell: "Callable[[], None]", *, max_model_len: int, again: bool
    ) -> "list[Any]":
        """The tokens answered to the sample; `again`: in other batches, the last prompt first."""
        sample, turned = self._task["outputs"], slice(None, None, -1 if again else 1)
        sent = []
        for place in sample["places"]:
            length = self._task["requests"][place][0]
            output = max(1, min(sample["tokens"], max_model_len - length))
            sent.append((self._prompt("0", place, length), output, 0.0, False))
        most = (len(sent) + 1) // 2 if again else None
        answers = await self._send(sent[turned], "o", tell, most)
        return [answer["tokens"] for answer in answers][turned]

    def _prompt(
        self, name: str, place: "int | None", length: int, number: int = 0
    ) -> Any:
        """Given ids, or random ones that share as the data does."""
        seed, given = f"{self._task['seed']}/{name}", self._task.get("prompts")
        if place is None:
            return random_ids(f"{seed}/alone/{number}", length, self._range)
        return given[place] if given else self._sharing.prompt(seed, place, length)

    async def _send(
        self,
        requests: "list[Any]",
        name: str,
        tell: "Callable[[], None]",
        most: "int | None",
    ) -> "list[dict[str, Any]]":
        """Requests are (ids, output tokens, when, whether the prompt's likelihood is asked for).

        Those that are to be sent at once all wait in the engine when the clock starts. A client
        that keeps some under way sends the next when one of them ends.
        """
        places = asyncio.Semaphore(most or len(requests))
        at_once = not most and not any(when for _, _, when, _ in requests)
        self.held = at_once and await self._hold()
        begin = time.perf_counter()

        async def one(
            number: int, ids: "list[int]", output: int, when: float, is_scored: bool
        ) -> "dict[str, Any]":
            if (wait := begin + when - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            async with places:
                answer = await self._answer(f"{name}.{number}", ids, output, is_scored)
            tell()
            return answer

        tasks = [
            asyncio.create_task(one(n, *request)) for n, request in enumerate(requests)
        ]
        start = await self._let_go(tasks) if self.held else begin
        answers = await asyncio.gather(*tasks)
        tokens, took = (
            sum(len(r[0]) + r[1] for r in requests),
            time.perf_counter() - start,
        )
        self.tokens_per_s = max(self.tokens_per_s, tokens / took)
        for answer in answers:
            answer["sent"] = 0.0 if self.held else answer["sent"] - start
            answer["times"] = [when - start for when in answer["times"]]
        return list(answers)

    async def _answer(
        self, request_id: str, ids: "list[int]", output: int, is_scored: bool
    ) -> "dict[str, Any]":
        """One request: when it was sent, when its tokens came, and which they are."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sent, cached, tokens = time.perf_counter(), None, []
        params = SamplingParams(
            temperature=0.0,
            max_tokens=output,
            ignore_eos=True,
            detokenize=False,
            prompt_logprobs=1 if is_scored else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        async for answer in self._engine.generate(
            {"prompt_token_ids": ids}, params, request_id
        ):
            tokens += answer.outputs[0].token_ids
            cached = getattr(answer, "num_cached_tokens", None)
        times, counts = self._tokens.take(request_id)
        return {
            "sent": sent,
            "times": times,
            "counts": counts,
            "cached": cached,
            "tokens": tokens,
        }

    async def _hold(self) -> bool:
        """Let the engine take requests and begin none; False in versions that cannot."""
        pause = getattr(self._engine, "pause_generation", None)
        in_engine = hasattr(self._engine.engine_core, "pause_scheduler_async")
        if (
            pause is None
            or not in_engine
            or "mode" not in inspect.signature(pause).parameters
        ):
            return False
        await pause(mode="keep", clear_cache=False)
        return True

    async def _let_go(self, tasks: "list[asyncio.Task[Any]]") -> float:
        waiting = self._engine.output_processor.get_num_unfinished_requests
        while waiting() < len(tasks) and not any(task.done() for task in tasks):
            await asyncio.sleep(0.001)
        await self._engine.is_paused()  # it answers after all that was sent before
        begin = time.perf_counter()
        await self._engine.resume_generation()
        return begin


class Tokens:
    """When the tokens of each request came. To stream them would slow down what is measured."""

    def __init__(self, processor: Any) -> None:
        self._of: dict[str, tuple[list[float], list[int]]] = {}
        process = processor.process_outputs

        def process_outputs(outputs: "list[Any]", *args: Any, **kwargs: Any) -> Any:
            now = time.perf_counter()
            for output in outputs:
                if count := len(output.new_token_ids):
                    # vLLM adds letters to the names of requests, after a dash.
                    name = output.request_id.partition("-")[0]
                    times, counts = self._of.setdefault(name, ([], []))
                    times.append(now)
                    counts.append(count)
            return process(outputs, *args, **kwargs)

        processor.process_outputs = process_outputs

    def take(self, name: str) -> "tuple[list[float], list[int]]":
        return self._of.pop(name, ([], []))
