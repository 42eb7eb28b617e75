"""How long the run takes, what that rests on, and how sure it is."""

from dataclasses import replace

from chunkscope.lengths.profile import DatasetProfile
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
    """Those with the most tokens, in the data's order."""
    most = sorted(p.datasets, key=lambda dataset: -dataset.lengths.total)[:MOST_DATASETS]
    costs = [cost_of_some(p, (d,), settings) for d in p.datasets if d in most]
    return tuple(cost for cost in costs if cost is not None)


def cost_of_some(
    p: Problem, datasets: tuple[DatasetProfile, ...], settings: Settings
) -> DatasetCost | None:
    """Some of the datasets, sent by themselves; None where they cannot run."""
    if datasets != p.datasets:
        names = {dataset.name for dataset in datasets}
        asked = {name: most for name, most in p.request.max_outputs.items() if name in names}
        p = replace(p, datasets=datasets, request=replace(p.request, max_outputs=asked))
    run = p.simulator().attempt(settings)
    if run is None:
        return None
    times = _scale(p, run)
    return DatasetCost(
        name=datasets[0].name,
        requests=round(run.requests * times),
        input_tokens=round(run.input_tokens * times),
        output_tokens=round(run.output_tokens * times),
        hours=_hours(p, run),
    )
