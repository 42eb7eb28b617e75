"""Steps that were measured, as the calibration keeps them."""

from dataclasses import asdict
from pathlib import Path

import pytest

from chunkscope.hardware.calibration import COLUMNS
from chunkscope.models import find_model
from chunkscope.verification.calibrate import (
    bursts_for,
    calibration_of,
    calibration_path,
    timed_steps,
)
from chunkscope.verification.engine_run import EngineRecord
from chunkscope.verification.latencies import EngineSteps
from chunkscope.verification.result import Machine
from chunkscope.vllm.enums import Task
from tests.build import WORKLOAD, failed, run, workload

LLAMA = find_model("llama-3.1-8b")


def steps_of(durations: list[float | None], context: list[int]) -> EngineSteps:
    """Steps that are all alike but for these."""
    ones = [1] * len(durations)
    return EngineSteps(
        prefill_tokens=ones,
        prefill_pairs=ones,
        prefill_requests=ones,
        decode_requests=ones,
        decode_context_tokens=context,
        duration_s=durations,
        chunks={},
        preemptions=0,
    )


# The engine waited after the third, and the fourth was measured wrong.
STEPS = steps_of([0.01, 0.123456789, None, 0.0], [1_000, 2_000, 3_000, 4_000])


def recorded(**engine: bool) -> EngineRecord:
    return EngineRecord(
        machine=Machine(device="cuda", gpu="NVIDIA H200", vllm="0.24.0"),
        engine={"async_scheduling": True, **engine},
        steps=[STEPS],
        bursts=[STEPS],
    )


@pytest.mark.parametrize(
    ("count", "kept"),
    [
        pytest.param(1_500, 3_000, id="as many as are kept"),
        pytest.param(1_501, 1_501, id="one too many: every second"),
        pytest.param(5_000, 2_500, id="every fourth"),
    ],
)
def test_very_many_steps_are_thinned(count, kept):
    numbers = list(range(1, count + 1))
    many = steps_of([float(number) for number in numbers], numbers)
    rows = timed_steps([many, many])
    numbers = [row["decode_context_tokens"] for row in rows]
    assert (len(numbers), numbers[0]) == (kept, 1)
    assert numbers[-1] > count - 10


@pytest.mark.parametrize(
    ("max_model_len", "sizes"),
    [
        pytest.param(2, [(n, 1, 1) for n in (1_024, 512, 256, 64, 8, 1)], id="tiny"),
        pytest.param(
            100,
            [
                (1_024, 16, 16),
                (512, 32, 16),
                (256, 64, 16),
                (64, 83, 16),
                (8, 83, 16),
                (1, 83, 16),
            ],
            id="short",
        ),
        pytest.param(
            131_072,
            [
                (1_024, 16, 16),
                (512, 32, 16),
                (256, 64, 16),
                (64, 512, 16),
                (8, 4_096, 16),
                (1, 32_768, 16),
            ],
            id="long",
        ),
    ],
)
def test_bursts_fit_into_any_context(max_model_len, sizes):
    bursts = []
    for burst in bursts_for(max_model_len):
        turn = burst.turn
        bursts.append((burst.count, turn.prompt_tokens, turn.output_tokens))
    assert bursts == sizes


def test_bursts_ask_for_likelihoods_where_the_workload_does():
    bursts = bursts_for(100, is_scored=True)
    assert all(burst.turn.is_scored for burst in bursts)


@pytest.mark.parametrize(
    ("task", "caching", "context"),
    [
        pytest.param(Task.GENERATE, {}, 995, id="neighbours share it"),
        pytest.param(
            Task.GENERATE, {"enable_prefix_caching": False}, 1_000, id="no caching"
        ),
        pytest.param(Task.LOGLIKELIHOOD, {}, 1_000, id="likelihoods read no cache"),
    ],
)
def test_context_that_neighbours_share_counts_as_much_as_it_takes(
    task, caching, context
):
    sent = workload(100, 5_000, apart_s=0.5, shared=64, task=task)
    good = (run("plan", 1.0), recorded(**caching))
    calibration = calibration_of([good, (failed("off"), recorded())], LLAMA, sent)
    columns = calibration.steps
    assert columns.setting == ("plan", "plan", "bursts", "bursts")
    assert columns.decode_context_tokens == (context, 2 * context, 1_000, 2_000)
    assert columns.duration_s == (0.01, 0.1234568, 0.01, 0.1234568)
    assert set(asdict(columns)) == {"setting", *COLUMNS}


def test_a_calibration_says_what_it_is_of():
    good = (run("plan", 1.0), recorded())
    calibration = calibration_of([good], LLAMA, WORKLOAD)
    assert (calibration.gpu, calibration.device) == ("NVIDIA H200", "cuda")
    assert (calibration.model, calibration.tp) == (LLAMA, 1)
    assert calibration.vllm == "0.24.0"
    assert (calibration.eager, calibration.async_scheduling) == (False, True)
    name = "calibration-nvidia-h200-llama-3.1-8b.json"
    assert calibration_path(Path("x"), calibration) == Path("x") / name


def test_runs_that_failed_calibrate_nothing():
    bad = (failed("off"), recorded())
    assert calibration_of([bad], LLAMA, WORKLOAD) is None
