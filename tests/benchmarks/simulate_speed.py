"""How long the simulator takes, in seconds of one CPU core.

    python -m tests.benchmarks.simulate_speed

Llama-3.1-8B on one H100. On a busy machine with two cores: 0.7 s for 14,000 requests at
once, 0.4 s for 4,000 at a rate, 2.6 s for 1,000 sessions of 20 turns.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import replace

from chunkscope.hardware.gpus import find_gpu
from chunkscope.models import find_model
from chunkscope.simulation.run import simulate
from chunkscope.simulation.workload import Session, Workload, single
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.simulation.common import talk

ENGINE = Engine(
    release=release("0.30"), shape=find_model("llama-3.1-8b"), gpu=find_gpu("h100")
)


def prompts(count: int, rate_per_s: float | None = None) -> Iterator[Session]:
    chance, now = random.Random(1), 0.0
    for _ in range(count):
        yield single(chance.choice([60, 140, 420, 1_000, 3_000]), 176, now)
        if rate_per_s:
            now += chance.expovariate(rate_per_s)


def talks(count: int, turns: int) -> Iterator[Session]:
    """Agents: long beginnings, then tool results, and answers in between."""
    chance = random.Random(2)
    for number in range(count):
        made = [(3_000, 100, 0.0)]
        for _ in range(turns - 1):
            made.append((chance.randint(50, 600), 100, 2.0))
        yield replace(talk(*made), arrival_s=number * 1.0)


def measure(name: str, sessions: Iterator[Session], settings: Settings) -> None:
    workload = Workload(
        sessions=tuple(sessions), seed=0, arrivals="given", task=Task.GENERATE
    )
    began = time.process_time()
    run = simulate(workload, settings, ENGINE)
    seconds = time.process_time() - began
    print(f"{name}: {seconds:.2f} s, {run.figures.steps:,} steps")


def main() -> None:
    measure("14,000 at once", prompts(14_000), Settings())
    measure("of which 256 run", prompts(14_000), Settings(max_num_seqs=256))
    measure("4,000 at 20/s", prompts(4_000, 20.0), Settings())
    measure("1,000 sessions of 20 turns", talks(1_000, 20), Settings())


if __name__ == "__main__":
    main()
