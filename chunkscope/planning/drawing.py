"""The requests of a plan: drawn from its data, as assumed or otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chunkscope.lengths.profile import DatasetProfile, together
from chunkscope.planning.request import PlanRequest, client_of
from chunkscope.simulation.draw import (
    draw_workload,
    one_after_the_other,
    served_prompts,
    served_sessions,
    usual_order,
)
from chunkscope.simulation.outputs import DatasetOutput
from chunkscope.simulation.workload import Phase, Workload
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import SendOrder

# A profile may hold millions of prompts; so many show what a setting does.
MOST_REQUESTS = 20_000
# At a rate, so many times as many as may run at once: with fewer nobody would wait.
TURNS = 4
FEWEST_AT_A_RATE = 2_048
MOST_AT_A_RATE = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What is assumed, as it may turn out."""

    draw_number: int = 0
    prompt_times: float = 1.0  # as long
    assumed_times: float = 1.0  # as long, answers that nobody knows
    host_times: float = 1.0  # as much time on the CPU


AS_ASSUMED = Variation()

# By code. Hosts differ: on two H200 machines the same steps took up to 1.4 times as
# long, and a client in another process hides some of it.
VARIATIONS = {
    "faster_cpu": Variation(host_times=0.5),
    "slower_cpu": Variation(host_times=1.5),
    "second_draw": Variation(draw_number=1),
    "longer_prompts": Variation(prompt_times=1.1),
    "shorter_prompts": Variation(prompt_times=0.9),
    "shorter_outputs": Variation(assumed_times=0.5),
    "longer_outputs": Variation(assumed_times=2.0),
}


def draw(  # noqa: PLR0913  (all by name)
    request: PlanRequest,
    engine: Engine,
    datasets: Sequence[DatasetProfile],
    room: int,
    *,
    advised_samples: int | None = None,
    count: int | None = None,
    variation: Variation = AS_ASSUMED,
    together: bool = False,
) -> Workload:
    """What is sent: all prompts that fit `room` tokens with their answer, of very many
    a sample; `count` for fewer.

    Datasets follow each other as a harness runs its tasks, each with its own client,
    unless they are sent `together`. A client of which nothing is known keeps the
    `advised_samples` under way.
    """
    if together or not one_by_one(request, datasets):
        client = client_of(request, datasets).or_advised(advised_samples, datasets)
        workload = drawn(request, engine, datasets, room, count, variation)
        return replace(
            workload, concurrency=client.requests, samples_at_once=client.samples
        )
    outputs = request.outputs_of(datasets)
    served = served_sessions(datasets, outputs, room)
    sessions = request.requests
    if sessions is None:
        sessions = most_sessions(request, engine, datasets, outputs, room)
    if count is not None:
        sessions = min(count, sessions)
    workloads = []
    phases = []
    for dataset, output in zip(datasets, outputs, strict=True):
        of_dataset = served_sessions([dataset], [output], room)
        if not of_dataset:
            continue
        part = max(1, round(sessions * of_dataset / served))
        own = replace(request.only(dataset.name), requests=part)
        workload = drawn(own, engine, [dataset], room, None, variation)
        client = client_of(request, [dataset]).or_advised(advised_samples, [dataset])
        phase = Phase(
            name=dataset.name,
            sessions=len(workload.sessions),
            samples_at_once=client.samples,
            concurrency=client.requests,
        )
        workloads.append(workload)
        phases.append(phase)
    workload = one_after_the_other(workloads, phases)
    return replace(workload, left_out=refused_prompts(datasets, outputs, room))


def one_by_one(request: PlanRequest, datasets: Sequence[DatasetProfile]) -> bool:
    """Are datasets sent one after the other?"""
    if len(datasets) < 2 or request.together or request.is_open:
        return False
    if request.order is not None or request.shared_prefix is not None:
        return False
    return usual_order(datasets) is not SendOrder.LONGEST


def refused_prompts(
    datasets: Sequence[DatasetProfile], outputs: Sequence[DatasetOutput], room: int
) -> int:
    """Prompts that leave no room for their answer."""
    rows = sum(dataset.rows for dataset in datasets)
    return rows - served_prompts(datasets, outputs, room)


def drawn(  # noqa: PLR0913  (all by name)
    request: PlanRequest,
    engine: Engine,
    datasets: Sequence[DatasetProfile],
    room: int,
    count: int | None,
    variation: Variation,
) -> Workload:
    """One workload of all datasets, for a client that sends all at once."""
    outputs = request.outputs_of(datasets)
    sessions = request.requests
    if sessions is None:
        sessions = most_sessions(request, engine, datasets, outputs, room)
    if count is not None:
        sessions = min(count, sessions)
    workload = draw_workload(
        datasets,
        outputs,
        room=room,
        count=max(1, sessions),
        samples=request.samples,
        seed=request.seed + variation.draw_number,
        arrivals=request.arrivals,
        shared_prefix=request.shared_prefix,
        order=request.order,
        prompt_times=variation.prompt_times,
        assumed_times=variation.assumed_times,
    )
    return replace(workload, sticky=request.sticky)


def most_sessions(
    request: PlanRequest,
    engine: Engine,
    datasets: Sequence[DatasetProfile],
    outputs: Sequence[DatasetOutput],
    room: int,
) -> int:
    """All, up to a limit; at a rate enough to see whether a queue grows."""
    if request.rate is None:
        sessions = served_sessions(datasets, outputs, room)
        turns = max(1, served_prompts(datasets, outputs, room)) / max(1, sessions)
        return min(round(MOST_REQUESTS / turns), sessions * request.samples)
    settings = engine.complete(request.settings)
    running = settings.most_running
    memory = engine.memory(settings)
    if memory is not None:
        prompt_tokens = round(together(datasets).mean or 0)
        answer_tokens = max(output.tokens for output in outputs)
        mean = prompt_tokens + answer_tokens
        running = min(running, engine.requests_of(mean, memory, settings))
    enough = TURNS * running * settings.parallel.data
    return min(MOST_AT_A_RATE, max(FEWEST_AT_A_RATE, enough))
