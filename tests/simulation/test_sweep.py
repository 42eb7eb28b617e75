"""Many settings: in their order, whoever is done first; which of them nobody beats."""

import dataclasses

import pytest

from chunkscope.artefacts.percentiles import Percentiles
from chunkscope.hardware.step_time import StepModel
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.simulate import simulate
from chunkscope.simulation.sweep import BUDGETS, knee, pareto, points
from chunkscope.vllm.settings import EngineArgs

STEP = StepModel(
    fixed_s=5e-3, per_token_s=2e-5, per_prefill_pair_s=1e-9, per_decode_context_s=4e-8, origin="t"
)
BASE = EngineArgs(max_num_batched_tokens=4_096, max_num_seqs=512, kv_cache_tokens=400_000)


def point(makespan_s: float, gap_s: float) -> SimulatedRun:
    run = simulate([(10, 2)], BASE, STEP).run
    gaps = Percentiles(p50=gap_s, p95=gap_s, p99=gap_s, max=gap_s)
    return dataclasses.replace(
        run, figures=dataclasses.replace(run.figures, makespan_s=makespan_s, itl_s=gaps)
    )


def test_a_sweep_goes_from_256_to_65536_and_tries_thresholds():
    chosen = list(points(BASE))
    assert [c.max_num_batched_tokens for c in chosen[: len(BUDGETS)]] == list(BUDGETS)
    assert [c.long_prefill_token_threshold for c in chosen[len(BUDGETS) :]] == [512, 2_048]
    assert chosen[0].max_num_seqs == 256, "no more requests than tokens"
    assert all(c.enable_chunked_prefill for c in chosen)


def test_the_front_is_what_no_other_setting_beats_in_both():
    runs = [point(10, 1.0), point(11, 0.2), point(20, 0.1), point(12, 0.5), point(10, 2.0)]
    front = pareto(runs)
    assert front == (0, 1, 2)
    assert knee(runs, front) == 1


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param([point(10, 1.0)], id="one setting"),
        pytest.param([point(10, 1.0), point(20, 0.5)], id="two ends"),
        pytest.param([point(10, 1.0), point(15, 0.75), point(20, 0.5)], id="a straight line"),
    ],
)
def test_without_a_bend_there_is_no_knee(runs):
    assert knee(runs, pareto(runs)) is None
