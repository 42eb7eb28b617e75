"""The requests of a plan: drawn from its data, as assumed or otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chunkscope.lengths.profile import DatasetProfile, together
from chunkscope.planning.request import PlanRequest, client_of
from chunkscope.simulation.draw import draw_workload, served_prompts
from chunkscope.simulation.outputs import DatasetOutput
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.engine import Engine

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
    count: int | None = None,
    variation: Variation = AS_ASSUMED,
) -> Workload:
    """The requests that are sent: all prompts that fit `room` tokens with their answer.

    Of very many a sample; `count` for fewer.
    """
    outputs = request.outputs_of(datasets)
    requests = request.requests
    if requests is None:
        requests = most_requests(request, engine, datasets, outputs, room)
    if count is not None:
        requests = min(count, requests)
    workload = draw_workload(
        datasets,
        outputs,
        room=room,
        count=max(1, requests),
        seed=request.seed + variation.draw_number,
        arrivals=request.arrivals,
        shared_prefix=request.shared_prefix,
        order=request.order,
        prompt_times=variation.prompt_times,
        assumed_times=variation.assumed_times,
    )
    client = client_of(request, datasets)
    return replace(
        workload, concurrency=client.requests, samples_at_once=client.samples
    )


def most_requests(
    request: PlanRequest,
    engine: Engine,
    datasets: Sequence[DatasetProfile],
    outputs: Sequence[DatasetOutput],
    room: int,
) -> int:
    """All, up to a limit; at a rate enough to see whether a queue grows."""
    if request.rate is None:
        return min(MOST_REQUESTS, served_prompts(datasets, outputs, room))
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
