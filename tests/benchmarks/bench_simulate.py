"""How long `simulate` takes: 14,000 requests of an MMLU-like profile, one setting and a sweep.

Example: python tests/benchmarks/bench_simulate.py
"""

import random
import time
from collections.abc import Callable

from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.step_time import step_model
from chunkscope.models import find_model
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.workload import Request, with_shared_prefix
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import KvPool, Settings

REQUESTS = 14_000
ROUNDS = 3
POOL = KvPool(tokens=917_952)
BUDGETS = (256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
THRESHOLDS = (128, 512, 2_048)


def workload(output: Callable[[random.Random], int], shared_prefix: int = 0) -> Scenario:
    """Lengths as in MMLU: half under 90 tokens, a few of a thousand."""
    chance = random.Random(0)
    requests = tuple(
        Request(
            prompt_tokens=shared_prefix + min(1_200, round(chance.lognormvariate(4.5, 0.6)) + 10),
            output_tokens=output(chance),
        )
        for _ in range(REQUESTS)
    )
    step = step_model(find_model("llama-3.1-8b"), find_gpu("h200"))
    assert step is not None
    requests, stretches = with_shared_prefix(requests, shared_prefix)
    return Scenario(requests=requests, rules=Rules(), step=step, stretches=stretches)


WORKLOADS = {
    "one token each": workload(lambda _: 1),
    "256 tokens each": workload(lambda _: 256),
    "1 to 4,000 tokens": workload(
        lambda chance: min(4_000, round(chance.lognormvariate(5, 1)) + 1)
    ),
    "five shots shared, 1 token": workload(lambda _: 1, shared_prefix=600),
}


def main() -> None:
    for name, scenario in WORKLOADS.items():
        taken = [
            _seconds(lambda c=scenario: run_setting(c, _setting(8_192, 0), POOL))
            for _ in range(ROUNDS)
        ]
        print(f"{REQUESTS:,} requests, {name}: {min(taken):.2f} s (target < 1 s)")
    chosen = [
        *(_setting(budget, 0) for budget in BUDGETS),
        *(_setting(8_192, threshold) for threshold in THRESHOLDS),
    ]
    swept = WORKLOADS["256 tokens each"]
    took = _seconds(lambda: [run_setting(swept, args, POOL) for args in chosen])
    print(f"a sweep of {len(chosen)} settings: {took:.2f} s (target < 10 s)")


def _setting(budget: int, threshold: int) -> Settings:
    return Settings(
        max_num_batched_tokens=budget,
        max_num_seqs=min(1_024, budget),
        long_prefill_token_threshold=threshold,
        enable_chunked_prefill=True,
        enable_prefix_caching=True,
    )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
