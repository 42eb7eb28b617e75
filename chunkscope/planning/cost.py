"""How long the run takes, what that rests on, and how sure it is."""

from dataclasses import replace

from chunkscope.planning.compare import NO_CPU_TIME
from chunkscope.planning.plan import Cost, DatasetCost
from chunkscope.planning.problem import Problem
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.workload import served_prompts
from chunkscope.vllm.settings import Settings

HOUR_S = 3_600
MOST_DATASETS = 12  # that are simulated one by one
# The farthest that a run on an H200 was from its prediction (reports/h200): MMLU by likelihoods
# took 15.7 s instead of 13.7 s, generation was off by 5.4 % at the most.
SEEN_SCORED, SEEN_GENERATED = 15.7 / 13.7, 1.054
SEEN_ON_GPUS = "seen_on_gpus"


def cost_of(p: Problem, settings: Settings) -> Cost | None:
    """Of all prompts with this setting; None where it cannot run.

    What is assumed is varied on a part of the requests: how much longer or shorter that takes.
    """
    run = p.simulator().attempt(settings)
    if run is None:
        return None
    times, hours = _scale(p, run), _hours(p, run)
    runs = [one.attempt(settings) for one in (p.part, *p.varied.values())]
    # With a host that takes no time, all take what the GPU computes.
    seconds = [s for varied in runs if varied for s in (varied.figures.makespan_s, varied.gpu_s)]
    ratios = [one / seconds[0] for one in seconds]
    scored = any(output.is_scored for output in p.outputs)
    return Cost(
        requests=round(run.requests * times),
        input_tokens=round(run.input_tokens * times),
        output_tokens=round(run.output_tokens * times),
        hours=hours,
        least_hours=hours * min(ratios) / SEEN_GENERATED,
        most_hours=hours * max(ratios) * (SEEN_SCORED if scored else SEEN_GENERATED),
        varied=(NO_CPU_TIME, *p.varied, SEEN_ON_GPUS),
        gpus=p.base.parallel.gpus,
        price_per_hour=p.request.price_per_hour,
        datasets=_datasets(p, settings) if len(p.datasets) > 1 else (),
    )


def _scale(p: Problem, run: SimulatedRun) -> float:
    """Of more prompts than are ever simulated, the rest take as long as these."""
    return served_prompts(p.datasets, p.outputs, p.context) / run.requests


def _hours(p: Problem, run: SimulatedRun) -> float:
    return run.figures.makespan_s * _scale(p, run) / HOUR_S


def _datasets(p: Problem, settings: Settings) -> tuple[DatasetCost, ...]:
    """Each alone: those with the most tokens, in the data's order."""
    most = sorted(p.datasets, key=lambda dataset: -dataset.lengths.total)[:MOST_DATASETS]
    costs = []
    for dataset in p.datasets:
        asked = {n: most for n, most in p.request.max_outputs.items() if n == dataset.name}
        alone = replace(p, datasets=(dataset,), request=replace(p.request, max_outputs=asked))
        run = alone.simulator().attempt(settings) if dataset in most else None
        if run is not None:
            times = _scale(alone, run)
            costs.append(
                DatasetCost(
                    name=dataset.name,
                    requests=round(run.requests * times),
                    input_tokens=round(run.input_tokens * times),
                    output_tokens=round(run.output_tokens * times),
                    hours=_hours(alone, run),
                )
            )
    return tuple(costs)
