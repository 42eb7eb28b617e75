"""Datasets that begin alike are simulated as one file with all their prompts would be."""

import json
from pathlib import Path

import pytest

import chunkscope
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.prefixes.sharing_together import joined
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.workload import Drawing, draw_workload
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import EngineArgs
from tests.simulation.test_fast_scheduler import STEP

SYSTEM = "You are a careful assistant who thinks before an answer is given. " * 12
SHOTS = {name: f"Examples of {name}: " + f"{name} is this, {name} is that. " * 20 for name in "abc"}


def analyzed(folder: Path, files: dict[str, list[str]]) -> tuple[DatasetProfile, ...]:
    paths = []
    for name, prompts in files.items():
        paths.append(folder / f"{name}.jsonl")
        paths[-1].write_text("\n".join(json.dumps({"prompt": prompt}) for prompt in prompts))
    return chunkscope.analyze(paths).datasets


def cached(datasets: tuple[DatasetProfile, ...]) -> int:
    sent = draw_workload(datasets, Drawing(count=None, room=10_000, output_if_unknown=3))
    scenario = Scenario(requests=sent.requests, stretches=sent.stretches, rules=Rules(), step=STEP)
    args = EngineArgs(max_num_batched_tokens=512, max_num_seqs=8, kv_cache_tokens=100_000)
    return run_setting(scenario, args).cached_tokens


def few_shot(begin: str, name: str) -> list[str]:
    return [f"{begin}{name}{number}: what is {number * number}?" for number in range(10)]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({n: few_shot(SYSTEM + SHOTS[n], n) for n in "abc"}, id="a system prompt"),
        pytest.param({n: few_shot(SYSTEM, n) for n in "abc"}, id="all of it"),
        pytest.param(
            {
                "a": few_shot(SYSTEM + SHOTS["a"], "a"),
                "b": few_shot(SYSTEM + SHOTS["a"] + SHOTS["b"], "b"),
                "c": few_shot(SYSTEM + SHOTS["c"], "c"),
            },
            id="two share more than three",
        ),
        pytest.param({n: few_shot(SHOTS[n] + SYSTEM, n) for n in "abc"}, id="nothing"),
    ],
)
def test_what_a_dataset_finds_of_those_before_it(tmp_path, files):
    apart = analyzed(tmp_path, files)
    whole = analyzed(
        tmp_path, {"whole": [prompt for prompts in files.values() for prompt in prompts]}
    )
    assert cached(apart) == cached(whole) > 0


def test_stretches_are_split_where_datasets_part(tmp_path):
    datasets = analyzed(tmp_path, {n: few_shot(SYSTEM + SHOTS[n], n) for n in "ab"})
    found = joined(datasets)
    shared, *others = found.stretches
    assert shared.parent == -1
    assert {other.parent for other in others if other.parent <= 0} == {0}
    assert all(place for places in found.places for place in places), "none is the common one"
