"""The search: what it advises is near the best of all that could be tried."""

from dataclasses import replace
from itertools import product

import pytest

from chunkscope.hardware.gpus import find_gpu
from chunkscope.models import find_model
from chunkscope.planning.case import Case
from chunkscope.planning.fit import STEP_TOKENS, fit
from chunkscope.planning.grid import with_graphs_for_all
from chunkscope.planning.request import PlanRequest
from chunkscope.planning.search import Search, advise
from chunkscope.planning.simulator import Simulator
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.planning.test_golden_plans import CASES, MACHINES, many_short, mixed

NEAR_BEST = 1.02
REQUESTS_AT_ONCE = (64, 256, 512, 1_024, 2_048)
THRESHOLDS = (0, 512, 2_048)
SEARCHED = (
    "1B on an H200, short",
    "8B on an H100, mixed, limits",
    "experts on an H200, mixed, limits",
)


def case_of(name: str) -> Case:
    """A golden plan's."""
    machine, options = CASES[name]
    profile = many_short() if "short" in name else mixed()
    model, gpu = MACHINES[machine]
    request = PlanRequest.of(**options)
    engine = Engine(release=release("0.24"), shape=find_model(model), gpu=find_gpu(gpu))
    return fit(Case.of(profile, request, engine))


def every_setting(simulator: Simulator, default: Settings) -> set[Settings]:
    """The whole grid: requests at once, step tokens, thresholds and captured sizes."""
    grid = set()
    for requests, tokens, threshold in product(
        REQUESTS_AT_ONCE, STEP_TOKENS, THRESHOLDS
    ):
        settings = replace(
            default.at_budget(tokens),
            max_num_seqs=min(requests, tokens),
            long_prefill_token_threshold=threshold,
        )
        grid.add(settings)
        grid.update(with_graphs_for_all(simulator, settings))
    return grid


def best_in_all_variations(search: Search) -> Settings:
    """The cheapest of the whole grid that breaks no limit, whatever is varied."""
    grid = every_setting(search.part, search.case.default)
    for settings in sorted(grid, key=search.part.cost):
        if search.broken_variation(settings) is None:
            return settings
    raise AssertionError("every setting breaks a limit in some variation")


@pytest.mark.parametrize("name", SEARCHED)
def test_what_is_found_is_within_2_percent_of_the_best_of_the_whole_grid(name):
    search = Search(case_of(name))
    found = advise(search)
    best = best_in_all_variations(search)

    assert search.part.keeps_limits(best)
    assert search.part.cost(found.best) <= NEAR_BEST * search.part.cost(best)
