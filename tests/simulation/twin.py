"""Driving the scheduler without time: what each step holds, as vLLM's own is asked."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from chunkscope.hardware.step_time import AttentionWindow
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.client import Client, Part
from chunkscope.simulation.requests import Step
from chunkscope.simulation.run import session_states
from chunkscope.simulation.scheduler import Scheduler
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.enums import Task
from chunkscope.vllm.rules import Rules
from tests.simulation.common import parts_of, talk

Seen = dict[str, Any]
MOST_STEPS = 20_000  # of one workload


def trace(  # noqa: PLR0913  (all by name)
    requests: list[dict[str, Any]],
    engine: dict[str, Any],
    *,
    rules: Rules,
    stretches: Sequence[dict[str, int]] = (),
    concurrency: int | None = None,
    with_free: bool = False,
) -> list[Seen]:
    """Each step: the tokens of each request by its place, who was preempted, the free
    blocks."""
    settings, pool, rules = parts_of({"num_blocks": 10_000, **engine}, rules)
    states = session_states(sent(requests, stretches), pool.block_size)
    scheduler = Scheduler(
        settings,
        pool,
        rules,
        window=AttentionWindow(),
    )
    part = Part(sessions=states, samples_at_once=concurrency, concurrency=None)
    client = Client([part], start_s=0.0)
    steps: list[Seen] = []
    launched: deque[Step] = deque()
    for turn in range(MOST_STEPS):
        scheduler.waiting.extend(client.due(turn))
        if not (scheduler.running or scheduler.waiting or client):
            break
        step = scheduler.schedule()
        if step:
            preempted = sorted(request.id for request in step.preempted)
            steps.append({"tokens": tokens_of(step), "preempted": preempted})
            if with_free:
                steps[-1]["free"] = scheduler.kv_cache.num_free
        launched.append(step)
        lag = 1 if rules.async_scheduling else 0
        while len(launched) > lag:
            done = launched.popleft()
            scheduler.update_from_output(done)
            for request in done.ended:
                client.ended(request, turn)
    return steps


def tokens_of(step: Step) -> dict[int, int]:
    tokens = {request.id: 1 for request in step.decoding}
    for request, count in step.num_scheduled_tokens.items():
        tokens[request.id] = count
    return tokens


def sent(
    requests: list[dict[str, Any]], stretches: Sequence[dict[str, int]]
) -> Workload:
    """Times are counted in steps."""
    sessions, scored, place = [], [], 0
    for asked in requests:
        later = asked.get("turns", [])
        turns = [(asked["prompt"], asked["output"], 0)]
        for turn in later:
            turns.append((turn["new"], turn["output"], turn["think"]))
        for _ in turns:
            if asked.get("prompt_logprobs"):
                scored.append(place)
            place += 1
        session = replace(
            talk(*turns),
            arrival_s=asked.get("comes_at", 0),
            stretch=asked.get("stretch", -1),
        )
        sessions.append(session)
    return Workload(
        sessions=tuple(sessions),
        stretches=tuple(Stretch(**stretch) for stretch in stretches),
        seed=0,
        arrivals="given",
        task=Task.GENERATE,
        scored=scored,
    )
