"""Many requests at once on an H200 (reports/h200/many-at-once), against predictions."""

import json
from statistics import median
from typing import Any

import pytest

from chunkscope.hardware.gpus import find_gpu
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.benchmarks.kinds import shape_of
from tests.benchmarks.measure_many import ANSWER, PROMPT
from tests.h200 import FOLDER

POINTS = FOLDER / "many-at-once"
MODELS = ("llama-3.2-1b", "llama-3.1-8b", "qwen3-30b-a3b")
CASES = ("qwen3-0.6b", "llama-3.2-3b", "olmoe-1b-7b")


def rows(name: str, model: str, kind: str | None = None) -> list[dict[str, Any]]:
    lines = (POINTS / f"{name}.jsonl").read_text().splitlines()
    points = [json.loads(line) for line in lines]
    return [
        point
        for point in points
        if point["model"] == model and kind in (None, point.get("kind"))
    ]


def step_s(model: str, at_once: int) -> float:
    """Predicted: a step in which so many requests decode, replayed as a CUDA graph."""
    machine = Engine(
        release=release("0.24"), shape=shape_of(model), gpu=find_gpu("h200")
    )
    step = machine.step_model(Settings())
    assert step is not None
    context = at_once * (PROMPT + ANSWER // 2)
    gpu_s = step.gpu_s(at_once, 0, context, at_once)
    prepare, _, hand_out = step.host_parts(at_once, at_once, 0)
    return max(gpu_s, prepare + hand_out)


@pytest.mark.parametrize("model", MODELS)
def test_a_step_of_many_requests_takes_what_an_h200_took(model: str) -> None:
    """In the middle within 12 %: a busy host doubles single points."""
    off = []
    for point in rows("fit", model, "decode"):
        if point["graphs"] == point["captured"] and point["at_once"] <= 1_024:
            off.append(step_s(model, point["at_once"]) / point["p50_s"] - 1)
    assert len(off) == 8
    assert abs(median(off)) <= 0.12


def effect(row: dict[str, Any], requests: int) -> tuple[int, bool, int]:
    """What of a setting can be seen: settings that do the same are one."""
    running = min(row["seqs"], requests)
    return running, running <= row["graphs"], row["tokens"]


@pytest.mark.parametrize("model", CASES)
def test_what_was_advised_is_within_5_percent_of_the_best_of_a_sweep(
    model: str,
) -> None:
    """Predicted before it was measured, twice each: the sooner of two rounds counts."""
    predicted = rows("predicted", model)
    requests = 974 if "mbpp" in predicted[0]["name"] else 1_319
    (advised,) = (row for row in predicted if row["advised"])
    least: dict[tuple[int, bool, int], float] = {}
    for row in rows("measured", model, "run"):
        key = effect(row, requests)
        least[key] = min(least.get(key, row["makespan_s"]), row["makespan_s"])
    assert len(least) >= 6
    best = min(least.values())
    assert least[effect(advised, requests)] <= 1.05 * best
