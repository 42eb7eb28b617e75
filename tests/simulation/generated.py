"""Workloads by seed: for the scheduler's twin beside vLLM's own, and its fast path beside it."""

import random
from itertools import pairwise
from typing import Any

Workload = dict[str, Any]


def workload(seed: int, *, lag: bool = False) -> Workload:
    """One of many: each trait is drawn by itself, so that they meet in all combinations."""
    chance = random.Random(seed)
    size = chance.choice([4, 16, 16, 16, 32])
    longest = chance.choice([40, 200, 700, 2_000])
    requests = [_request(chance, longest) for _ in range(chance.randint(1, 24))]
    pause = chance.choice([0, 0, 3, 20])  # steps between two requests, at most
    for before, request in pairwise(requests):
        request["comes_at"] = before["comes_at"] + chance.randint(0, pause)
    context = max(r["prompt"] + r["output"] for r in requests) + chance.choice(
        [0, 1, 50]
    )
    one = -(-context // size) + 1
    off = chance.random() < 0.2
    budget = chance.choice([16, 64, 100, 256, 1_000, 4_096])
    budget = max(budget, context) if off else budget
    threshold = chance.choice([0, 0, 0, 8, 32, 100, 500])
    seqs = min(budget, chance.choice([1, 2, 3, 8, 64]))
    capped = chance.random() < 0.25
    stretches = _stretches(chance, longest)
    for request in requests:
        request["stretch"] = (
            chance.choice([-1, *range(len(stretches))]) if stretches else -1
        )
    return {
        "engine": {
            "max_num_batched_tokens": budget,
            "max_num_seqs": seqs,
            "max_model_len": context,
            "long_prefill_token_threshold": min(threshold, context),
            "enable_chunked_prefill": not off,
            "enable_prefix_caching": chance.random() < 0.6,
            "async_scheduling": lag,
            # Of these an older version knows nothing.
            "long_prefill_token_threshold_adaptive": threshold > 0
            and chance.random() < 0.5,
            "max_num_active_seqs": min(seqs, chance.choice([1, 2, 5]))
            if capped
            else None,
            "policy": chance.choice(["fcfs", "fcfs", "priority"]),
            "block_size": size,
            # Tight, a little roomier, or no object.
            "num_blocks": chance.choice(
                [one, one + 1, one + one // 2, 3 * one, 100 * one]
            ),
        },
        "requests": requests,
        "stretches": stretches,
    }


def with_windows(seed: int) -> Workload:
    """The same for a model of which some layers keep a window: full groups, others, its size."""
    made, chance = workload(seed, lag=seed % 2 == 1), random.Random(seed)
    engine = made["engine"]
    size, context = engine["block_size"], engine["max_model_len"]
    full, sliding = chance.choice([(1, 1), (1, 3), (2, 1), (0, 1)])
    window = chance.choice([1, size, 2 * size, 5 * size, 130])
    # Older versions let nobody in who would not fit with all that leaves the window.
    least = (full + sliding) * -(-context // size) + 1
    blocks = chance.choice(
        [least, least + 1, least + least // 2, 3 * least, 100 * least]
    )
    changed = {"num_blocks": blocks, "kv_groups": (full, sliding, window)}
    # What vLLM finds of a prefix in groups, the twin does not know.
    return {**made, "engine": {**engine, **changed, "enable_prefix_caching": False}}


def closed_loop(seed: int) -> Workload:
    """The same, sent by a client that keeps only a few under way."""
    made = workload(seed, lag=seed % 2 == 1)
    return {**made, "concurrency": random.Random(seed).choice([1, 2, 3, 8])}


def _stretches(chance: random.Random, longest: int) -> list[dict[str, int]]:
    """Nothing, one beginning, or a tree of them; some reach farther than prompts do."""
    count = chance.choice([0, 0, 1, 1, 3, 8])
    return [
        {
            "parent": chance.randint(-1, place - 1),
            "tokens": chance.randint(1, longest // 2),
        }
        for place in range(count)
    ]


def _request(chance: random.Random, longest: int) -> dict[str, Any]:
    short = chance.random() < 0.5
    return {
        "prompt": chance.randint(1, max(1, longest // 8 if short else longest)),
        "output": chance.choice([1, 2, 5, 30, 80]),
        "prompt_logprobs": chance.random() < 0.1,
        "priority": chance.choice([0, 0, 1, 2]),
        "comes_at": 0,
    }


def crowd(seed: int) -> Workload:
    """Short prompts that decode for long among long ones: with room for a few at a time."""
    chance = random.Random(seed)
    short = [(chance.randint(1, 60), chance.choice([5, 30, 80])) for _ in range(12)]
    long = [(chance.randint(300, 2_000), chance.choice([1, 5])) for _ in range(6)]
    requests = [
        {"prompt": prompt, "output": output, "comes_at": 0}
        for prompt, output in short + long
    ]
    chance.shuffle(requests)
    engine = {
        "max_num_batched_tokens": chance.choice([100, 256, 512]),
        "max_num_seqs": chance.choice([4, 8, 12]),
        "async_scheduling": chance.random() < 0.5,
        "block_size": 16,
        "num_blocks": 10_000,
    }
    return {"engine": engine, "requests": requests, "stretches": []}
