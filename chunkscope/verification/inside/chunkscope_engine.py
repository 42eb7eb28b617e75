"""Start one vLLM engine, send it the workload, and tell what happened as lines of JSON.

    CHUNKSCOPE_EVENTS_FD=3 python chunkscope_engine.py <task.json 3>answers

The engine is vLLM's own asynchronous one, as `vllm serve` runs it, without HTTP in
between. What vLLM prints goes to the log.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from chunkscope_config import facts
from chunkscope_sender import Request, Sender

PROBE = "chunkscope_probe.Probe"
USAGE = {"serve": "OPENAI_API_SERVER", "llm": "LLM_CLASS", "other": "ENGINE_CONTEXT"}
LONGEST_BURST_S = 10.0  # at the fastest rate that was seen: larger bursts are left out
LOOK_S = 2.0  # how often it is asked whether the engine still lives
EMPTYING_TRIES = 50  # of a tenth of a second each

Tell = Callable[..., None]


def main() -> None:
    fd = int(os.environ["CHUNKSCOPE_EVENTS_FD"])
    os.set_inheritable(fd, False)
    events = os.fdopen(fd, "w", encoding="utf-8")

    def tell(event: str, **values: Any) -> None:
        print(json.dumps({"event": event, **values}), file=events, flush=True)

    task = json.load(sys.stdin)
    tell("phase", phase="loading")
    try:
        asyncio.run(Measurement(task, tell).go())
    except BaseException as error:
        # Whatever it is, it must be told before the process ends.
        tell("failed", kind=type(error).__name__, message=str(error)[:2_000])
        raise
    tell("done")


class Measurement:
    """One engine, from its start to the last repeat."""

    def __init__(self, task: "dict[str, Any]", tell: Tell) -> None:
        self._task = task
        self._tell = tell
        self._engine: Any = None

    async def go(self) -> None:
        started = time.perf_counter()
        config = self._start()
        measuring = asyncio.create_task(self._measure(config, started))
        try:
            # vLLM never answers what it was asked when its engine is killed.
            while not measuring.done():
                await asyncio.wait([measuring], timeout=LOOK_S)
                if self._engine.errored and not measuring.done():
                    raise self._engine.dead_error
            await measuring
        finally:
            self._engine.shutdown()

    def _start(self) -> Any:
        """Start the engine; vLLM's configuration of it."""
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        args = AsyncEngineArgs(**self._task["engine"], worker_extension_cls=PROBE)
        usage = UsageContext[USAGE[self._task["entry"]]]
        config = args.create_engine_config(usage)
        self._tell("accepted", engine=self._facts(config))
        self._engine = AsyncLLM.from_vllm_config(config, usage_context=usage)
        return config

    def _facts(self, config: Any) -> "dict[str, Any]":
        return {**facts(config), "entry": self._task["entry"]}

    async def _measure(self, config: Any, started: float) -> None:
        workers = await self._ask("chunkscope_begin")
        start_s = time.perf_counter() - started
        running = self._facts(config)
        self._tell("ready", start_s=start_s, engine=running, workers=workers)
        vocab = config.model_config.get_vocab_size()
        sender = Sender(self._engine, self._task, vocab=vocab)
        self._tell("phase", phase="warming up")
        await sender.warm_up(_requests(self._task["warm_up"]))
        for repeat in range(self._task["repeats"]):
            await self._repeat(sender, repeat)
        await self._check_outputs(sender, running["max_model_len"])
        self._tell("measured")
        await self._send_bursts(sender, running)

    async def _repeat(self, sender: Sender, repeat: int) -> None:
        """Send the workload once, to an empty prefix cache."""
        emptied = await self._forget()
        self._tell("phase", phase="measuring", repeat=repeat)
        requests = _requests(self._task["requests"])
        counter = Counter(self._tell, len(requests))
        concurrency = self._task["concurrency"]
        sent = await sender.send(requests, str(repeat), concurrency, counter.count)
        self._tell(
            "repeat",
            answers=sent.told(),
            steps=await self._steps(),
            memory=await self._ask("chunkscope_memory"),
            held=sent.held,
            emptied=emptied,
        )

    async def _check_outputs(self, sender: Sender, max_model_len: int) -> None:
        """Send the sample twice, batched otherwise: that alone changes some answers."""
        sample = _requests(self._task["output_sample"])
        if not sample:
            return
        _shorten(sample, max_model_len)
        for again in (False, True):
            await self._forget()
            self._tell("phase", phase="checking outputs")
            counter = Counter(self._tell, len(sample))
            answers = await sender.outputs(sample, counter.count, again=again)
            self._tell("outputs", answers=answers)

    async def _send_bursts(self, sender: Sender, running: "dict[str, Any]") -> None:
        """Bursts of one kind each: a workload need not show what every step costs."""
        for number, burst in enumerate(self._task["bursts"]):
            await self._forget()
            self._tell("phase", phase="calibrating")
            request = Request(**burst["request"])
            tokens = request.prompt_tokens + request.output_tokens
            count = _fitting(burst["count"], tokens, running)
            if count * tokens > LONGEST_BURST_S * sender.fastest:
                continue
            await sender.send([request] * count, f"b{number}")
            self._tell("burst", steps=await self._steps())

    async def _steps(self) -> "dict[str, Any]":
        """What the steps since the last time held, as the first worker saw them."""
        workers = await self._ask("chunkscope_steps")
        return workers[0]

    async def _forget(self) -> bool:
        """Empty the prefix cache and drop the steps; False if it stays full."""
        await self._steps()
        for _ in range(EMPTYING_TRIES):
            if await self._engine.reset_prefix_cache() is not False:
                return True
            await asyncio.sleep(0.1)  # the last request still holds its blocks
        return False

    async def _ask(self, method: str) -> "list[dict[str, Any]]":
        """What every worker answers."""
        answers = await self._engine.collective_rpc(method)
        return [json.loads(text) for text in answers]


class Counter:
    """Tells how many of the requests are answered."""

    def __init__(self, tell: Tell, of: int) -> None:
        self._tell = tell
        self._of = of
        self._done = 0

    def count(self) -> None:
        self._done += 1
        self._tell("progress", done=self._done, of=self._of)


def _requests(rows: "list[dict[str, Any]]") -> "list[Request]":
    return [Request(**row) for row in rows]


def _shorten(requests: "list[Request]", max_model_len: int) -> None:
    """Make answers end where the context does."""
    for request in requests:
        room = max(1, max_model_len - request.prompt_tokens)
        request.output_tokens = min(request.output_tokens, room)


def _fitting(count: int, tokens: int, running: "dict[str, Any]") -> int:
    """As many of so many requests as run at the same time."""
    block_size = int(running["block_size"])
    kv_tokens = int(running["num_gpu_blocks"] or 0) * block_size
    room = kv_tokens // (tokens + block_size)
    return max(1, min(count, int(running["max_num_seqs"]), room))


if __name__ == "__main__":  # vLLM's own processes import this file again
    main()
