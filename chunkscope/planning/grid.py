"""The settings that are tried: one grid of four sizes.

Requests at once, tokens of a step, tokens of one prompt in a step, and the size up to
which vLLM captures CUDA graphs.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from chunkscope.planning.fit import FEWEST_REQUESTS, STEP_TOKENS
from chunkscope.planning.simulator import Simulator
from chunkscope.vllm.flags import flags_of
from chunkscope.vllm.settings import Settings

LEAST_STEP = 64  # tokens; with less, steps are so many that nothing is gained
STEP_TIMES = (0.25, 0.5, 1, 2, 4, 8)  # of vLLM's own step, without limits
REQUEST_SHARES = (1, 4, 16)  # of vLLM's own number of requests, with limits
THRESHOLDS = (512, 2_048)
GRAPH_STEP = 16  # tokens between the larger CUDA graphs that vLLM captures


def best_of_grid(simulator: Simulator, start: Settings) -> Settings:
    """The best point of the grid, or `start` where none is clearly better.

    First a coarse grid, then what is next to the best, until nothing is better; then
    fewer tokens of one prompt in a step.
    """
    best = simulator.best(coarse_grid(simulator, start), start)
    while True:
        better = simulator.best(neighbours(simulator, best), best)
        if better == best:
            break
        best = better
    return simulator.best(with_thresholds(simulator, best), best)


def coarse_grid(simulator: Simulator, start: Settings) -> Iterator[Settings]:
    """Step sizes; with limits each with fewer requests at once, and thresholds.

    Fewer requests are tried only where they are not so few already.
    """
    steps = {
        max(STEP_TOKENS[0], int(times * start.step_tokens)) for times in STEP_TIMES
    }
    shares: tuple[int, ...] = (1,)
    if simulator.request.slo:
        steps = {*STEP_TOKENS[::2], start.step_tokens}
        shares = REQUEST_SHARES
    run = simulator.attempt(start)
    for share in shares:
        requests = max(FEWEST_REQUESTS, start.step_requests // share)
        if share > 1 and run is not None and requests >= run.most_running:
            continue
        fewer = replace(start, max_num_seqs=requests)
        for step_tokens in sorted(steps):
            yield fewer.at_budget(step_tokens)
    if simulator.request.slo:
        yield from with_thresholds(simulator, start)


def neighbours(simulator: Simulator, settings: Settings) -> Iterator[Settings]:
    """Half and twice of each size, where another number of requests then runs."""
    run = simulator.attempt(settings)
    running = run.most_running if run else settings.step_requests
    requests = settings.step_requests
    for count in (requests // 2, requests * 2):
        if min(requests, count + 1) <= running:
            other = replace(settings, max_num_seqs=max(FEWEST_REQUESTS, count))
            yield other
            yield from with_graphs_for_all(simulator, other)
    yield from with_graphs_for_all(simulator, settings)
    for step_tokens in (settings.step_tokens // 2, settings.step_tokens * 2):
        yield settings.at_budget(max(LEAST_STEP, step_tokens))
    if simulator.request.slo:
        yield from with_thresholds(simulator, settings)
        # A threshold shortens gaps: more requests at once may keep a limit again.
        more = replace(settings, max_num_seqs=requests * 2)
        yield from with_thresholds(simulator, more)


def with_graphs_for_all(simulator: Simulator, settings: Settings) -> Iterator[Settings]:
    """With CUDA graphs for all requests that may run, where vLLM's own are smaller."""
    if not has_flag(simulator, "max_cudagraph_capture_size"):
        return
    running = min(settings.step_requests, len(simulator.workload.sessions))
    tokens = ceil(running / GRAPH_STEP) * GRAPH_STEP
    graphed = simulator.step_times(settings).graphed_tokens
    if graphed < running and tokens <= settings.step_tokens:
        yield replace(settings, max_cudagraph_capture_size=tokens)


def with_thresholds(simulator: Simulator, settings: Settings) -> Iterator[Settings]:
    """With fewer tokens of one prompt in a step, fixed or adaptive."""
    adapts = has_flag(simulator, "long_prefill_token_threshold_adaptive")
    longest = min(settings.step_tokens, simulator.longest)
    for threshold in THRESHOLDS:
        if threshold >= longest:
            continue
        fixed = replace(settings, long_prefill_token_threshold=threshold)
        yield fixed
        if adapts:
            yield replace(fixed, long_prefill_token_threshold_adaptive=True)


def has_flag(simulator: Simulator, name: str) -> bool:
    """Does this version of vLLM know the argument?"""
    return name in flags_of(simulator.engine.release.version)
