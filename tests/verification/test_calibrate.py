"""The steps that become a calibration: thinned, and with what neighbours share."""

from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.models import find_model
from chunkscope.simulation.workload import with_shared_prefix
from chunkscope.verification.calibrate import (
    COLUMNS,
    bursts_for,
    calibration_of,
    calibration_path,
    timed_steps,
)
from chunkscope.verification.engine_run import EngineRecord
from chunkscope.vllm.enums import Task
from tests.build import WORKLOAD, failed, run

STEPS = {name: [1, 2, 3, 4] for name in COLUMNS} | {
    "decode_context_tokens": [1_000, 2_000, 3_000, 4_000],
    "duration_s": [0.01, 0.123456789, None, 0.0],
}


def recorded(device: str = "cuda", **engine: bool) -> EngineRecord:
    return EngineRecord(
        versions={"vllm": "0.24.0", "torch": "2.11"},
        workers=[{"device": device, "gpu": "NVIDIA H200", "total_bytes": 2**37}],
        engine={"async_scheduling": True, **engine},
        steps=[STEPS],
        bursts=[STEPS],
    )


@pytest.mark.parametrize(("count", "left"), [(1_500, 3_000), (1_501, 1_501), (5_000, 2_500)])
def test_very_many_steps_are_thinned(count, left):
    many = {name: list(range(1, count + 1)) for name in COLUMNS}
    rows = [row[0] for row in timed_steps([many, many])]
    assert (len(rows), rows[0]) == (left, 1)
    assert rows[-1] > count - 10


def test_bursts_fit_into_any_context():
    assert bursts_for(2) == [(n, 1, 1) for n in (1_024, 512, 256, 64, 8, 1)]
    assert bursts_for(100)[1:3] == [(512, 32, 16), (256, 64, 16)]
    assert bursts_for(100)[3:] == [(64, 83, 16), (8, 83, 16), (1, 83, 16)]
    assert bursts_for(131_072)[3:] == [(64, 512, 16), (8, 4_096, 16), (1, 32_768, 16)]


@pytest.mark.parametrize(
    ("task", "caching", "context"),
    [
        (Task.GENERATE, {}, 995),
        (Task.GENERATE, {"enable_prefix_caching": False}, 1_000),
        (Task.LOGLIKELIHOOD, {}, 1_000),
    ],
)
def test_context_that_neighbours_share_counts_as_much_as_it_takes(task, caching, context):
    requests, stretches = with_shared_prefix(WORKLOAD.requests, 64)
    sent = replace(WORKLOAD, requests=requests, stretches=stretches, task=task)
    good = (run("plan", 1.0), recorded(**caching))
    made = calibration_of([good, (failed("off"), recorded())], find_model("llama-3.1-8b"), sent)
    assert made.steps.setting == ("plan", "plan", "bursts", "bursts")
    assert made.steps.decode_context_tokens == (context, 2 * context, 1_000, 2_000)
    assert made.steps.duration_s == (0.01, 0.1234568) * 2
    assert (made.gpu, made.tp, made.vllm) == ("NVIDIA H200", 1, "0.24.0")
    assert (made.eager, made.async_scheduling) == (False, True)
    name = "calibration-nvidia-h200-llama-3.1-8b.json"
    assert calibration_path(Path("x"), made) == Path("x") / name
    assert calibration_of([(failed("off"), recorded())], made.model, sent) is None
