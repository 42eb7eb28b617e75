"""Workloads by seed, for the scheduler's twin beside vLLM's own."""

import random
from itertools import pairwise
from typing import Any

Workload = dict[str, Any]


def workload(seed: int, *, lag: bool = False) -> Workload:
    """One of many: each trait is drawn by itself, so that they meet in all
    combinations."""
    chance = random.Random(seed)
    size = chance.choice([4, 16, 16, 16, 32])
    longest = chance.choice([40, 200, 700, 2_000])
    requests = [_request(chance, longest) for _ in range(chance.randint(1, 24))]
    pause = chance.choice([0, 0, 3, 20])  # steps between two requests, at most
    for before, request in pairwise(requests):
        request["comes_at"] = before["comes_at"] + chance.randint(0, pause)
    longest_total = max(r["prompt"] + r["output"] for r in requests)
    context = longest_total + chance.choice([0, 1, 50])
    one = -(-context // size) + 1
    off = chance.random() < 0.2
    budget = chance.choice([16, 64, 100, 256, 1_000, 4_096])
    if off:
        budget = max(budget, context)
    threshold = chance.choice([0, 0, 0, 8, 32, 100, 500])
    seqs = min(budget, chance.choice([1, 2, 3, 8, 64]))
    capped = chance.random() < 0.25
    most_active = min(seqs, chance.choice([1, 2, 5])) if capped else None
    stretches = _stretches(chance, longest)
    for request in requests:
        request["stretch"] = chance.randint(-1, len(stretches) - 1)
    return {
        "engine": {
            "max_num_batched_tokens": budget,
            "max_num_seqs": seqs,
            "max_model_len": context,
            "long_prefill_token_threshold": min(threshold, context),
            "enable_chunked_prefill": not off,
            "enable_prefix_caching": chance.random() < 0.6,
            "async_scheduling": lag,
            # Of these two an older version knows nothing.
            "long_prefill_token_threshold_adaptive": threshold > 0
            and chance.random() < 0.5,
            "max_num_active_seqs": most_active,
            "block_size": size,
            # Tight, a little roomier, or no object.
            "num_blocks": chance.choice(
                [one, one + 1, one + one // 2, 3 * one, 100 * one]
            ),
        },
        "requests": requests,
        "stretches": stretches,
    }


def lagging(seed: int) -> Workload:
    """The same with async scheduling."""
    return workload(seed, lag=True)


def with_windows(seed: int) -> Workload:
    """The same for a model of which some layers keep a window: full groups, others, its
    size."""
    made, chance = workload(seed, lag=seed % 2 == 1), random.Random(seed)
    engine = made["engine"]
    size, context = engine["block_size"], engine["max_model_len"]
    full, sliding = chance.choice([(1, 1), (1, 3), (2, 1), (0, 1)])
    window = chance.choice([2, size, 2 * size, 5 * size, 130])
    # Older versions let nobody in who would not fit with all that leaves the window.
    least = (full + sliding) * -(-context // size) + 1
    blocks = chance.choice(
        [least, least + 1, least + least // 2, 3 * least, 100 * least]
    )
    changed = {"num_blocks": blocks, "kv_groups": (full, sliding, window)}
    return {**made, "engine": {**engine, **changed}}


def cached_windows(seed: int) -> Workload:
    """The same with prefix caching, and so that prompts share much: what is found
    depends on what was evicted."""
    made, chance = with_windows(seed), random.Random(seed)
    engine, requests = made["engine"], made["requests"]
    longest = max(request["prompt"] for request in requests)
    stretches = [
        {"parent": -1, "tokens": longest // 2},
        {"parent": 0, "tokens": longest // 4},
        {"parent": 0, "tokens": longest // 3},
    ]
    for request in requests:
        request["stretch"] = chance.choice([-1, 0, 1, 2])
        if chance.random() < 0.7:
            prompt = chance.randint(max(1, longest // 2), longest)
            room = engine["max_model_len"] - request["output"]
            request["prompt"] = min(prompt, room)
    return {
        **made,
        "engine": {**engine, "enable_prefix_caching": True},
        "stretches": stretches,
    }


def closed_loop(seed: int) -> Workload:
    """The same, sent by a client that keeps only a few under way."""
    made = workload(seed, lag=seed % 2 == 1)
    return {**made, "concurrency": random.Random(seed).choice([1, 2, 3, 8])}


def sessions(seed: int) -> Workload:
    """Turns that follow each other: each prompt is all that was said before, and some
    more."""
    chance = random.Random(seed)
    made = cached_windows(seed) if chance.random() < 0.4 else workload(seed)
    engine = {**made["engine"], "enable_prefix_caching": True}
    engine["async_scheduling"] = seed % 2 == 1
    for request in made["requests"]:
        request["turns"] = [
            {
                "new": chance.randint(1, 60),
                "output": chance.choice([1, 2, 5, 30]),
                "think": chance.choice([0, 1, 5, 40]),
            }
            for _ in range(chance.randint(0, 5))
        ]
    longest = max(map(total_tokens, made["requests"]))
    grown = max(engine["max_model_len"], longest)
    rows = -(-grown // engine["block_size"]) + 1
    full, sliding, _ = engine.get("kv_groups", (1, 0, 0))
    least = (full + sliding) * rows + 1
    engine["max_model_len"] = grown
    engine["num_blocks"] = chance.choice([least, 2 * least, 5 * least, 100 * least])
    if not engine["enable_chunked_prefill"]:
        engine["max_num_batched_tokens"] = max(engine["max_num_batched_tokens"], grown)
    return {**made, "engine": engine}


def total_tokens(request: dict[str, Any]) -> int:
    """Of all turns of a request's session."""
    tokens = request["prompt"] + request["output"]
    for turn in request.get("turns", ()):
        tokens += turn["new"] + turn["output"]
    return int(tokens)


def _stretches(chance: random.Random, longest: int) -> list[dict[str, int]]:
    """Nothing, one beginning, or a tree of them; some reach farther than prompts do."""
    stretches = []
    for place in range(chance.choice([0, 0, 1, 1, 3, 8])):
        tokens = chance.randint(1, longest // 2)
        stretches.append({"parent": chance.randint(-1, place - 1), "tokens": tokens})
    return stretches


def _request(chance: random.Random, longest: int) -> dict[str, Any]:
    short = chance.random() < 0.5
    return {
        "prompt": chance.randint(1, max(1, longest // 8 if short else longest)),
        "output": chance.choice([1, 2, 5, 30, 80]),
        "prompt_logprobs": chance.random() < 0.1,
        "comes_at": 0,
    }


# How each kind is drawn, and the seeds that are compared with vLLM's own scheduler.
KINDS = {
    "plain": (workload, range(280)),
    "async": (lagging, range(10_000, 10_080)),
    "closed loop": (closed_loop, range(20_000, 20_060)),
    "windows": (with_windows, range(30_000, 30_080)),
    "cached windows": (cached_windows, range(40_000, 40_150)),
    "sessions": (sessions, range(50_000, 50_120)),
}
