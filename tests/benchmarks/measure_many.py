"""Measures many requests at once on the GPU of this machine: steps and whole runs.

    python -m tests.benchmarks.measure_many OUTPUT MODEL:CAPTURED ... [--runs PLAN.json]

Each MODEL:CAPTURED is one engine with random weights, CUDA graphs up to CAPTURED
tokens and max_num_seqs of 2,048. How many requests run, and up to which size a step
replays its graph, is then lowered from call to call inside that engine: vLLM reads both
in every step, and a start takes a minute. OUTPUT/many.jsonl gets a line per point:

- kind "decode": so many requests only decode; the time between two of their tokens.
- kind "run": a list of requests sent at once; how long all of them took.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.benchmarks.kinds import config_of, is_even

INSIDE = Path(__file__).parents[2] / "chunkscope" / "verification" / "inside"
MOST = 2_048
BUDGET = 8_192  # vLLM's own for `vllm serve` on an H200
LARGEST_BUDGET = 16_384  # with which the engine starts
PROMPT, ANSWER = 64, 96  # tokens of the requests that only decode
SETTLED = 48  # steps at the end, when all requests decode
AT_ONCE = (64, 128, 256, 384, 512, 528, 768, 1_024, 1_536, 2_048)


class Engine:
    """One engine, asked again and again."""

    def __init__(self, model: str, captured: int, folder: str) -> None:
        from chunkscope_sender import Sender
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        config = config_of(model)
        Path(folder, "config.json").write_text(json.dumps(config))
        arguments = AsyncEngineArgs(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            generation_config="vllm",
            dtype=config.get("torch_dtype", "bfloat16"),
            max_model_len=4_096,
            max_num_seqs=MOST,
            max_num_batched_tokens=LARGEST_BUDGET,
            max_cudagraph_capture_size=captured,
            worker_extension_cls="limits_probe.Limits",
        )
        usage = UsageContext.OPENAI_API_SERVER
        config = arguments.create_engine_config(usage)
        self.llm = AsyncLLM.from_vllm_config(config, usage_context=usage)
        task = {"seed": 0, "stretches": [], "ends": []}
        vocab = config.model_config.get_vocab_size()
        self.sender = Sender(self.llm, task, vocab=vocab)
        self.sent = 0

    async def limit(self, *, running: int, graphs: int, tokens: int) -> None:
        limits = (running, graphs, tokens)
        await self.llm.collective_rpc("lower_limits", args=limits)

    async def send(self, requests: list[tuple[int, int]]) -> list[dict[str, Any]]:
        self.sent += 1
        from chunkscope_sessions import Client, SentSession, SentTurn

        sessions = [SentSession([SentTurn(*request)]) for request in requests]
        sent = await self.sender.send(sessions, f"s{self.sent}", Client())
        await self.llm.reset_prefix_cache()
        return sent.told()

    async def step_s(self, at_once: int) -> dict[str, float]:
        """The time between two tokens when so many requests decode."""
        answers = await self.send([(PROMPT, ANSWER)] * at_once)
        # The request that was let in last: by then all the others decode, too.
        last = max(answers, key=lambda answer: answer["times"][0])
        times = last["times"][-SETTLED - 1 :]
        gaps = [after - before for before, after in pairwise(times)]
        return {"p50_s": statistics.median(gaps), "mean_s": statistics.fmean(gaps)}

    async def run(self, requests: list[tuple[int, int]]) -> dict[str, float]:
        began = time.perf_counter()
        answers = await self.send(requests)
        first = sorted(answer["times"][0] for answer in answers)
        gaps = sorted(
            after - before
            for answer in answers
            for before, after in pairwise(answer["times"])
        )
        return {
            "makespan_s": max(answer["times"][-1] for answer in answers),
            "ttft_p50_s": first[len(first) // 2],
            "ttft_p95_s": first[len(first) * 95 // 100],
            "itl_p50_s": gaps[len(gaps) // 2],
            "itl_p99_s": gaps[len(gaps) * 99 // 100],
            "with_sending_s": time.perf_counter() - began,
        }


async def measure(
    model: str, captured: int, runs: list[dict[str, Any]], output: Path
) -> None:
    """`runs`: lists of requests by name, with the limits to run them under."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(model, captured, folder)
    start_s = time.perf_counter() - began

    def tell(**point: Any) -> None:
        line = json.dumps({"model": model, "captured": captured, **point})
        with (output / "many.jsonl").open("a") as file:
            print(line, file=file)
        print(f"{time.perf_counter() - began:6.1f} {line}", flush=True)

    tell(kind="start", start_s=start_s)
    await engine.send([(PROMPT, 8)] * MOST)
    await engine.send([(512, 8)] * 64)
    if not runs:
        await decode_points(engine, captured, tell)
    for run in runs:
        if run["model"] == model:
            seqs, graphs, tokens = run["seqs"], run["graphs"], run["tokens"]
            await engine.limit(running=seqs, graphs=graphs, tokens=tokens)
            figures = await engine.run([tuple(pair) for pair in run["requests"]])
            limits = {"seqs": seqs, "graphs": graphs, "tokens": tokens}
            tell(kind="run", name=run["name"], **limits, **figures)
    engine.llm.shutdown()


async def decode_points(engine: Engine, captured: int, tell: Callable) -> None:
    for graphs in sorted({512, 1_024, captured}):
        if graphs > captured:
            continue
        await engine.limit(running=MOST, graphs=graphs, tokens=BUDGET)
        for at_once in AT_ONCE:
            if graphs < at_once or graphs == captured:
                seconds = await engine.step_s(at_once)
                tell(kind="decode", graphs=graphs, at_once=at_once, **seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("engines", nargs="+", metavar="MODEL:CAPTURED")
    parser.add_argument("--runs", type=Path)
    options = parser.parse_args()
    for folder in (INSIDE, Path(__file__).parent):
        sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    os.environ["VLLM_DEEP_GEMM_WARMUP"] = "skip"
    runs = json.loads(options.runs.read_bytes()) if options.runs else []
    for words in options.engines:
        model, _, captured = words.partition(":")
        # Each token draws its experts, as a trained model's are chosen: nearly evenly.
        strategy = "uniform_random" if is_even(model) else ""
        os.environ["VLLM_MOE_ROUTING_SIMULATION_STRATEGY"] = strategy
        asyncio.run(measure(model, int(captured), runs, options.output))


if __name__ == "__main__":
    main()
