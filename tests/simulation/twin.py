"""Driving the scheduler's twin without time: what each step holds, as vLLM's own is asked."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from chunkscope.hardware.step_time import AttentionWindow
from chunkscope.prefixes.sharing import Path, Stretch, block_paths
from chunkscope.simulation.clock import Arrivals
from chunkscope.simulation.fast_scheduler import FastScheduler
from chunkscope.simulation.kv_cache import clipped
from chunkscope.simulation.policies import Policy
from chunkscope.simulation.requests import RequestState, Step
from chunkscope.simulation.scheduler import Scheduler
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.rules import Rules
from tests.simulation.common import parts_of

Seen = dict[str, Any]
MOST_STEPS = 20_000


def trace(
    requests: list[dict[str, Any]],
    engine: dict[str, Any],
    *,
    rules: Rules | None = None,
    stretches: Sequence[dict[str, int]] = (),
    concurrency: int | None = None,
    fast: bool = True,
    with_free: bool = False,
) -> list[Seen]:
    """Each step: the tokens of each request by its place, who was preempted, the free blocks."""
    name = ChunkPolicy.VLLM
    if engine.get("policy") == "priority":
        name = ChunkPolicy.INTERACTIVE_FIRST
    settings, pool, rules = parts_of({"num_blocks": 10_000, **engine}, rules)
    kind, policy = FastScheduler if fast else Scheduler, Policy(name, settings, rules)
    scheduler = kind(policy, pool, AttentionWindow())
    paths = block_paths([Stretch(**stretch) for stretch in stretches], pool.block_size)
    states = [
        _state(place, asked, paths, pool.block_size)
        for place, asked in enumerate(requests)
    ]
    coming = Arrivals(states, concurrency or len(states))
    steps: list[Seen] = []
    flying: deque[Step] = deque()
    for turn in range(MOST_STEPS):
        for request in coming.due(turn):
            scheduler.waiting.add(request)
        if not (scheduler.running or scheduler.waiting or coming):
            break
        decoding = (
            tuple(scheduler.decoding) if isinstance(scheduler, FastScheduler) else ()
        )
        step = scheduler.schedule()
        if step:
            preempted = sorted(request.id for request in step.preempted)
            steps.append(
                {"tokens": _tokens(scheduler, step, decoding), "preempted": preempted}
            )
            steps[-1] |= {"free": scheduler.kv_cache.num_free} if with_free else {}
        flying.append(step)
        while len(flying) > int(rules.async_scheduling):
            done = flying.popleft()
            scheduler.update_from_output(done)
            coming.ended(len(done.ended), turn)
    return steps


def _tokens(
    scheduler: Scheduler, step: Step, decoding: tuple[RequestState, ...]
) -> dict[int, int]:
    """The fast scheduler names no request that just goes on decoding."""
    asked = step.num_scheduled_tokens
    unasked = [
        request
        for request in decoding
        if request not in asked
        and isinstance(scheduler, FastScheduler)
        and (request in scheduler.decoding or request in step.ended)
    ]
    return {
        request.id: tokens
        for request, tokens in [*((r, 1) for r in unasked), *asked.items()]
    }


def _state(
    place: int, asked: dict[str, Any], paths: list[Path], size: int
) -> RequestState:
    stretch = asked.get("stretch", -1)
    return RequestState(
        place,
        asked["prompt"],
        asked["output"],
        asked.get("comes_at", 0),
        path=clipped(paths[stretch], asked["prompt"] // size) if stretch >= 0 else (),
        skips_cache=asked.get("prompt_logprobs", False),
        priority=asked.get("priority", 0),
    )
