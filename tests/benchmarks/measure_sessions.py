"""Measures sessions of turns in a closed loop, on the GPU of this machine.

    python tests/benchmarks/measure_sessions.py OUTPUT --model FOLDER \\
        --sessions sessions.jsonl --load 16:32:130 --load 64:128:150 --load 160:160:200

Each `--load` is AT_ONCE:SESSIONS:SECONDS: so many samples at once, of the first
sessions of the file, cut off after so many seconds. FOLDER holds a config.json: the
weights are random. One engine is started for each `--kv-blocks` (without one, for what
the memory leaves), runs all the loads with an empty prefix cache each, and is started
as `verify` starts it, with verify's own sender. Nothing but vLLM has to be installed.

A line of sessions.jsonl: {"id": 0, "system_tokens": 2000, "turns": [{"new_tokens": 812,
"output_tokens": 140, "think_s": 0.8}, ...]}; `think_s` is the time from a turn's answer
until the next turn is sent. OUTPUT/runs.jsonl gets a line per load: what was run, and
`rows` with a row per request that ended, in the order in which they did:

    session, turn, prompt tokens, cached tokens, answer tokens,
    start (seconds of the run), first token, end (seconds from the start), longest gap

OUTPUT/steps.jsonl.gz gets what the engine's steps held and how long they took.
"""

import argparse
import asyncio
import gzip
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[2] / "chunkscope"
PROGRAMS = (PACKAGE / "verification" / "inside", PACKAGE / "vllm" / "inside")
WARM_UP_SESSIONS = 64
WARM_UP_OUTPUT = 16  # tokens


@dataclass(frozen=True)
class Load:
    """What is sent: `at_once` of the first `sessions` of the file."""

    at_once: int
    sessions: int
    seconds: float

    @property
    def name(self) -> str:
        return f"c{self.at_once}-n{self.sessions}-{self.seconds:g}s"


def read_load(text: str) -> Load:
    at_once, sessions, seconds = text.split(":")
    return Load(int(at_once), int(sessions), float(seconds))


def read_session(line: str, place: int) -> Any:
    """A session of the file: each turn keeps all that was said before it."""
    from chunkscope_sessions import SentSession, SentTurn

    row = json.loads(line)
    turns = []
    said = 0
    think_s = 0.0
    new = row["system_tokens"]
    for turn in row["turns"]:
        new += turn["new_tokens"]
        turns.append(
            SentTurn(
                prompt_tokens=said + new,
                kept_tokens=said,
                output_tokens=turn["output_tokens"],
                think_s=think_s,
            )
        )
        think_s = turn["think_s"]
        said += new + turn["output_tokens"]
        new = 0
    return SentSession(turns, place=place)


def warm_up(sessions: list[Any]) -> list[Any]:
    """The longest prompt, and the first prompts of some sessions: nothing is shared."""
    from chunkscope_sessions import SentSession, SentTurn

    longest = 0
    for session in sessions:
        longest = max(longest, session.turns[-1].prompt_tokens)
    lengths = [longest]
    for session in sessions[:WARM_UP_SESSIONS]:
        lengths.append(session.turns[0].prompt_tokens)
    return [SentSession([SentTurn(length, WARM_UP_OUTPUT)]) for length in lengths]


def row_of(answer: Any) -> list[Any]:
    return [
        answer.session,
        answer.turn,
        answer.prompt_tokens,
        answer.cached,
        answer.tokens,
        round(answer.sent, 4),
        round(answer.ttft_s, 5),
        round(answer.e2e_s, 5),
        round(max(answer.gaps_s, default=0.0), 5),
    ]


def end_of(row: list[Any]) -> float:
    start, length = row[5], row[7]
    return float(start + length)


class Measurement:
    """One engine, and the files to which each load is written when it was run."""

    def __init__(
        self, output: Path, arguments: dict[str, Any], lines: list[str]
    ) -> None:
        self._output = output
        self._arguments = arguments
        self._sessions = []
        for place, line in enumerate(lines):
            self._sessions.append(read_session(line, place))
        self._system_tokens = json.loads(lines[0])["system_tokens"]

    async def run(self, entry: str, loads: list[Load]) -> None:
        from chunkscope_engine import Engine

        engine = Engine(self._arguments, entry)
        began = time.perf_counter()
        engine.start()
        try:
            workers = await engine.ask("chunkscope_begin")
            start_s = time.perf_counter() - began
            say(f"the engine has started in {start_s:.0f} s: {engine.facts()}")
            sender = engine.sender(self._task())
            await sender.warm_up(warm_up(self._sessions))
            for number, load in enumerate(loads):
                about = {"start_s": start_s, "worker": workers[0]}
                await self._measure(engine, sender, load, str(number), about)
        finally:
            engine.llm.shutdown()

    def _task(self) -> dict[str, Any]:
        """What all prompts share: the system's tokens."""
        stretches = []
        end = -1
        if self._system_tokens:
            stretches.append((-1, self._system_tokens))
            end = 0
        return {"seed": 0, "stretches": stretches, "ends": [end] * len(self._sessions)}

    async def _measure(
        self, engine: Any, sender: Any, load: Load, name: str, about: dict[str, Any]
    ) -> None:
        from chunkscope_sessions import Client

        sessions = self._sessions[: load.sessions]
        emptied = await engine.forget()
        began = time.perf_counter()
        client = Client(samples_at_once=load.at_once, limit_s=load.seconds)
        sent = await sender.send(sessions, name, client)
        wall_s = time.perf_counter() - began
        rows = sorted([row_of(answer) for answer in sent.answers], key=end_of)
        steps = await engine.steps()
        turns = sum(len(session.turns) for session in sessions)
        run = {
            "name": load.name,
            "n": load.sessions,
            "concurrency": load.at_once,
            "limit": load.seconds,
        }
        result = {
            "run": run,
            "engine": engine.facts(),
            "args": self._arguments,
            **about,
            "wall_s": wall_s,
            "note": "" if len(rows) == turns else "cut off",
            "emptied": emptied,
            "preemptions": steps["preemptions"],
            "rows": rows,
        }
        say(f"{load.name}: {summary(rows, wall_s)}")
        with (self._output / "runs.jsonl").open("a") as file:
            print(json.dumps(result), file=file)
        with gzip.open(self._output / "steps.jsonl.gz", "at") as file:
            told = {"run": run, "engine": engine.facts(), "steps": steps}
            print(json.dumps(told), file=file)


def summary(rows: list[list[Any]], wall_s: float) -> str:
    prompt_tokens = sum(row[2] for row in rows)
    cached = sum(row[3] for row in rows)
    first = sorted(row[6] for row in rows)
    return (
        f"{len(rows)} requests, {len(rows) / wall_s:.2f}/s, "
        f"{cached / prompt_tokens:.1%} from the cache, first token "
        f"p50 {first[len(first) // 2]:.3f} s, p95 {first[len(first) * 95 // 100]:.3f} s"
    )


def say(text: str) -> None:
    print(text, flush=True)


def read_argument(text: str) -> tuple[str, Any]:
    """`max_model_len=32768`: the value as JSON where it is JSON."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--sessions", type=Path, required=True)
    parser.add_argument("--load", type=read_load, action="append", required=True)
    parser.add_argument("--kv-blocks", type=int, action="append")
    parser.add_argument("--entry", choices=("serve", "llm", "other"), default="serve")
    parser.add_argument("--engine-arg", type=read_argument, action="append", default=[])
    options = parser.parse_args()
    sys.path[:0] = map(str, PROGRAMS)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # of the engine's processes
    options.output.mkdir(parents=True, exist_ok=True)
    lines = options.sessions.read_text().splitlines()
    for kv_blocks in options.kv_blocks or [None]:
        arguments = {
            "model": str(options.model),
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "generation_config": "vllm",
            **dict(options.engine_arg),
        }
        if kv_blocks is not None:
            arguments["num_gpu_blocks_override"] = kv_blocks
        measurement = Measurement(options.output, arguments, lines)
        asyncio.run(measurement.run(options.entry, options.load))


if __name__ == "__main__":
    main()
