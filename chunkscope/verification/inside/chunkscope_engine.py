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
from chunkscope_sender import Sender
from chunkscope_sessions import Client, SentSession, SentTurn

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


class Engine:
    """vLLM's asynchronous engine, with our probe in its workers."""

    def __init__(self, arguments: "dict[str, Any]", entry: str) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext

        args = AsyncEngineArgs(**arguments, worker_extension_cls=PROBE)
        self._entry = entry
        self._usage = UsageContext[USAGE[entry]]
        self._config = args.create_engine_config(self._usage)
        self.llm: Any = None

    def start(self) -> None:
        from vllm.v1.engine.async_llm import AsyncLLM

        self.llm = AsyncLLM.from_vllm_config(self._config, usage_context=self._usage)

    def facts(self) -> "dict[str, Any]":
        return {**facts(self._config), "entry": self._entry}

    def sender(self, task: "dict[str, Any]") -> Sender:
        vocab = self._config.model_config.get_vocab_size()
        return Sender(self.llm, task, vocab=vocab)

    async def ask(self, method: str) -> "list[dict[str, Any]]":
        """What every worker answers."""
        answers = await self.llm.collective_rpc(method)
        return [json.loads(text) for text in answers]

    async def steps(self) -> "dict[str, Any]":
        """What the steps since the last time held, as the first worker saw them."""
        workers = await self.ask("chunkscope_steps")
        return workers[0]

    async def forget(self) -> bool:
        """Empty the prefix cache and drop the steps; False if it stays full."""
        await self.steps()
        for _ in range(EMPTYING_TRIES):
            if await self.llm.reset_prefix_cache() is not False:
                return True
            await asyncio.sleep(0.1)  # the last request still holds its blocks
        return False


class Measurement:
    """One engine, from its start to the last repeat."""

    def __init__(self, task: "dict[str, Any]", tell: Tell) -> None:
        self._task = task
        self._tell = tell

    async def go(self) -> None:
        started = time.perf_counter()
        engine = Engine(self._task["engine"], self._task["entry"])
        self._tell("accepted", engine=engine.facts())
        engine.start()
        measuring = asyncio.create_task(self._measure(engine, started))
        try:
            await lives_until(measuring, engine.llm)
        finally:
            engine.llm.shutdown()

    async def _measure(self, engine: Engine, started: float) -> None:
        workers = await engine.ask("chunkscope_begin")
        start_s = time.perf_counter() - started
        running = engine.facts()
        self._tell("ready", start_s=start_s, engine=running, workers=workers)
        sender = engine.sender(self._task)
        self._tell("phase", phase="warming up")
        await sender.warm_up(read_sessions(self._task["warm_up"]))
        for repeat in range(self._task["repeats"]):
            await self._repeat(engine, sender, repeat)
        await self._check_outputs(engine, sender)
        self._tell("measured")
        await self._send_bursts(engine, sender)

    async def _repeat(self, engine: Engine, sender: Sender, repeat: int) -> None:
        """Send the workload once, to an empty prefix cache."""
        emptied = await engine.forget()
        self._tell("phase", phase="measuring", repeat=repeat)
        sessions = read_sessions(self._task["sessions"])
        turns = sum(len(session.turns) for session in sessions)
        counter = Counter(self._tell, turns)
        client = Client(**self._task["client"], tell=counter.count)
        sent = await sender.send(sessions, str(repeat), client)
        self._tell(
            "repeat",
            answers=sent.told(),
            steps=await engine.steps(),
            memory=await engine.ask("chunkscope_memory"),
            held=sent.held,
            emptied=emptied,
        )

    async def _check_outputs(self, engine: Engine, sender: Sender) -> None:
        """Send the sample twice, batched otherwise: that alone changes some answers."""
        sample = read_sessions(self._task["output_sample"])
        if not sample:
            return
        shorten(sample, engine.facts()["max_model_len"])
        for again in (False, True):
            await engine.forget()
            self._tell("phase", phase="checking outputs")
            counter = Counter(self._tell, len(sample))
            answers = await sender.outputs(sample, counter.count, again=again)
            self._tell("outputs", answers=answers)

    async def _send_bursts(self, engine: Engine, sender: Sender) -> None:
        """Bursts of one kind each: a workload need not show what every step costs."""
        for number, burst in enumerate(self._task["bursts"]):
            await engine.forget()
            self._tell("phase", phase="calibrating")
            turn = SentTurn(**burst["turn"])
            count = fitting(burst["count"], turn.tokens, engine.facts())
            if count * turn.tokens > LONGEST_BURST_S * sender.fastest:
                continue
            await sender.send([SentSession([turn])] * count, f"b{number}", Client())
            self._tell("burst", steps=await engine.steps())


async def lives_until(measuring: "asyncio.Task[None]", llm: Any) -> None:
    """Wait for the end of the measurement, or raise why the engine died.

    vLLM never answers what it was asked when its engine is killed.
    """
    while not measuring.done():
        await asyncio.wait([measuring], timeout=LOOK_S)
        if llm.errored and not measuring.done():
            raise llm.dead_error
    await measuring


class Counter:
    """Tells how many of the requests are answered."""

    def __init__(self, tell: Tell, of: int) -> None:
        self._tell = tell
        self._of = of
        self._done = 0

    def count(self) -> None:
        self._done += 1
        self._tell("progress", done=self._done, of=self._of)


def read_sessions(rows: "list[dict[str, Any]]") -> "list[SentSession]":
    sessions = []
    for row in rows:
        turns = [SentTurn(**turn) for turn in row["turns"]]
        sessions.append(SentSession(turns, row["arrival_s"], row["place"]))
    return sessions


def shorten(sessions: "list[SentSession]", max_model_len: int) -> None:
    """Make answers end where the context does."""
    for session in sessions:
        for turn in session.turns:
            room = max(1, max_model_len - turn.prompt_tokens)
            turn.output_tokens = min(turn.output_tokens, room)


def fitting(count: int, tokens: int, running: "dict[str, Any]") -> int:
    """As many of so many requests as run at the same time."""
    block_size = int(running["block_size"])
    kv_tokens = int(running["num_gpu_blocks"] or 0) * block_size
    room = kv_tokens // (tokens + block_size)
    return max(1, min(count, int(running["max_num_seqs"]), room))


if __name__ == "__main__":  # vLLM's own processes import this file again
    main()
