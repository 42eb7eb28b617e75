"""Driving the scheduler's twin without time: what each step holds, as vLLM's own is asked."""

from collections import deque
from typing import Any

from chunkscope.engine.rules import Rules
from chunkscope.engine.settings import EngineArgs
from chunkscope.simulation.policies import VllmPolicy
from chunkscope.simulation.request import RequestState
from chunkscope.simulation.scheduler import Scheduler, Step
from chunkscope.simulation.workload import Request

Seen = dict[str, Any]
MOST_STEPS = 20_000


def trace(
    requests: list[dict[str, Any]],
    engine: dict[str, Any],
    *,
    rules: Rules | None = None,
    shared_prefix: int = 0,
) -> list[Seen]:
    """Each step: the tokens of each request by its place, and who was preempted."""
    engine = dict(engine)
    size, blocks = engine.pop("block_size", 16), engine.pop("num_blocks", 10_000)
    by_priority = engine.pop("policy", "fcfs") == "priority"
    args = EngineArgs(block_size=size, kv_cache_tokens=blocks * size, **engine)
    scheduler = Scheduler(args, rules or Rules(), VllmPolicy(by_priority=by_priority))
    coming = deque(enumerate(requests))
    steps: list[Seen] = []
    flying: deque[Step] = deque()
    for turn in range(MOST_STEPS):
        while coming and coming[0][1].get("comes_at", 0) <= turn:
            scheduler.add(_state(*coming.popleft(), shared_prefix, size))
        if not scheduler and not coming:
            break
        decoding = tuple(scheduler.decoding)
        step = scheduler.schedule()
        # None of them goes on without being asked where all were asked one by one.
        stay = [r for r in decoding if step.going_on and r not in step.preempted]
        going_on = {request.id: 1 for request in stay}
        own = {request.id: tokens for request, tokens in step.tokens.items()}
        if step:
            preempted = sorted(request.id for request in step.preempted)
            steps.append({"tokens": {**going_on, **own}, "preempted": preempted})
        flying.append(step)
        while len(flying) > int(args.async_scheduling):
            scheduler.update(flying.popleft())
    return steps


def _state(place: int, asked: dict[str, Any], shared: int, size: int) -> RequestState:
    return RequestState(
        place,
        Request(prompt_tokens=asked["prompt"], output_tokens=asked["output"]),
        shared_blocks=min(shared, asked["prompt"]) // size,
        skips_cache=asked.get("prompt_logprobs", False),
        priority=asked.get("priority", 0),
    )
