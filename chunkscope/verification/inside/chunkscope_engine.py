"""Start one vLLM engine, send it the workload, and tell what happened as lines of JSON.

    CHUNKSCOPE_EVENTS_FD=3 python chunkscope_engine.py <task.json 3>answers

The engine is vLLM's own asynchronous one, as `vllm serve` runs it, without HTTP in between. What
vLLM prints goes to the log.
"""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from chunkscope_config import facts
from chunkscope_sender import Sender

PROBE = "chunkscope_probe.Probe"
USAGE = {"serve": "OPENAI_API_SERVER", "llm": "LLM_CLASS", "other": "ENGINE_CONTEXT"}
LONGEST_BURST_S = 10.0
LOOK_S = 2.0


def main() -> None:
    fd = int(os.environ["CHUNKSCOPE_EVENTS_FD"])
    os.set_inheritable(fd, False)
    events = os.fdopen(fd, "w", encoding="utf-8")

    def tell(event: str, **facts: Any) -> None:
        print(json.dumps({"event": event, **facts}), file=events, flush=True)

    task = json.load(sys.stdin)
    tell("phase", phase="loading")
    try:
        asyncio.run(Measurement(task, tell).go())
    except (
        BaseException
    ) as error:  # whatever it is, it must be told before the process ends
        tell("failed", kind=type(error).__name__, message=str(error)[:2_000])
        raise
    tell("done")


class Measurement:
    """One engine, from its start to the last repeat."""

    def __init__(self, task: "dict[str, Any]", tell: "Callable[..., None]") -> None:
        self._task, self._tell = task, tell
        self._entry = {"entry": task["entry"]}
        self._engine: Any = None

    async def go(self) -> None:
        started = time.perf_counter()
        measuring = asyncio.create_task(self._measure(self._start(), started))
        try:
            # vLLM never answers what it was asked when its engine is killed.
            while not (await asyncio.wait([measuring], timeout=LOOK_S))[0]:
                if self._engine.errored:
                    raise self._engine.dead_error
            await measuring
        finally:
            self._engine.shutdown()

    def _start(self) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        args = AsyncEngineArgs(**self._task["engine"], worker_extension_cls=PROBE)
        usage = UsageContext[USAGE[self._task["entry"]]]
        config = args.create_engine_config(usage)
        self._tell("accepted", engine=facts(config) | self._entry)
        self._engine = AsyncLLM.from_vllm_config(config, usage_context=usage)
        return config

    async def _measure(self, config: Any, started: float) -> None:
        begun = await self._ask("chunkscope_begin")
        start_s = time.perf_counter() - started
        self._tell(
            "ready", start_s=start_s, engine=facts(config) | self._entry, workers=begun
        )
        sender = Sender(
            self._engine, self._task, vocab=config.model_config.get_vocab_size()
        )
        self._tell("phase", phase="warming up")
        await sender.warm_up(self._task["warm_up"])
        emptied = await self._forget()
        requests, most = self._task["requests"], self._task["concurrency"]
        for repeat in range(self._task["repeats"]):
            self._tell("phase", phase="measuring", repeat=repeat)
            answers = await sender.send(
                requests, str(repeat), self._counting(len(requests)), most
            )
            steps = await self._steps()
            memory = await self._ask("chunkscope_memory")
            results = {
                "answers": answers,
                "steps": steps,
                "memory": memory,
                "held": sender.held,
            }
            self._tell("repeat", repeat=repeat, emptied=emptied, **results)
            emptied = await self._forget()
        await self._check_outputs(sender, config.model_config.max_model_len)
        self._tell("measured")
        await self._sweep(sender, facts(config))

    async def _check_outputs(self, sender: Sender, max_model_len: int) -> None:
        """The same prompts twice, batched otherwise: what differs then is no matter of settings."""
        of = len(self._task["outputs"]["places"])
        for again in (False, True) if of else ():
            self._tell("phase", phase="checking outputs")
            tell = self._counting(of)
            answers = await sender.outputs(
                tell, max_model_len=max_model_len, again=again
            )
            self._tell("outputs", answers=answers)
            await self._forget()

    async def _sweep(self, sender: Sender, running: "dict[str, Any]") -> None:
        """Bursts of one kind each: a workload need not show what every step costs."""
        for number, (count, prompt, output) in enumerate(self._task["bursts"]):
            self._tell("phase", phase="calibrating")
            count = _fitting(count, prompt + output, running)
            if count * (prompt + output) > LONGEST_BURST_S * sender.tokens_per_s:
                continue
            await sender.send([(prompt, output, 0.0, None)] * count, f"b{number}")
            self._tell("burst", steps=await self._steps())
            await self._forget()

    def _counting(self, of: int) -> "Callable[[], None]":
        """To be called with every answer."""
        done = itertools.count(1)
        return lambda: self._tell("progress", done=next(done), of=of)

    async def _steps(self) -> Any:
        return (await self._ask("chunkscope_steps"))[0]

    async def _forget(self) -> bool:
        """Each repeat begins with an empty prefix cache; False where it could not be emptied."""
        await self._ask("chunkscope_steps")
        for _ in range(50):
            if await self._engine.reset_prefix_cache() is not False:
                return True
            await asyncio.sleep(0.1)  # the last request still holds its blocks
        return False

    async def _ask(self, method: str) -> "list[Any]":
        """What every worker answers."""
        return [json.loads(text) for text in await self._engine.collective_rpc(method)]


def _fitting(count: int, tokens: int, running: "dict[str, Any]") -> int:
    """As many of so many requests as run at the same time."""
    blocks, size = int(running["num_gpu_blocks"] or 0), int(running["block_size"])
    room = blocks * size // (tokens + size)
    return max(1, min(count, int(running["max_num_seqs"]), room))


if __name__ == "__main__":  # vLLM's own processes import this file again
    main()
