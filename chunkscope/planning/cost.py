"""What the run will cost: tokens, hours and their range, before anything is spent."""

from chunkscope.planning.plan import Cost
from chunkscope.planning.search import Trials
from chunkscope.vllm.settings import Settings

HOUR_S = 3_600


def cost(trials: Trials, settings: Settings, price_per_hour: float | None) -> Cost | None:
    """Of all prompts with this setting; None where it cannot run.

    What is assumed is varied on a part of the requests: how much longer or shorter that takes.
    """
    p, run = trials.problem, trials.run(settings)
    if run is None or p.requests is None:
        return None
    # Of more prompts than are ever simulated, the rest take as long as these.
    times = p.requests.served(p.context) / run.requests
    part = trials.part
    usual = part.seconds(settings)
    tried = [(how.title, part.varied(how)) for how in p.requests.variations]
    varied = [(title, other) for title, other in tried if other is not part]  # the same again
    ratios = [1.0]
    for _, other in varied:
        ratios += [other.seconds(settings, host) / usual for host in other.hosts]
    hours = run.figures.makespan_s * times / HOUR_S
    return Cost(
        input_tokens=round(run.input_tokens * times),
        output_tokens=round(run.output_tokens * times),
        hours=hours,
        least_hours=hours * min(ratios),
        most_hours=hours * max(ratios),
        varied=tuple(title for title, _ in varied),
        gpus=p.parallel.gpus,
        price_per_hour=price_per_hour,
    )
