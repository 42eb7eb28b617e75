"""What is checked before an engine is started, and what a resumed run keeps."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.models import find_model
from chunkscope.prefixes.sharing import Stretch
from chunkscope.verification import machine
from chunkscope.verification.model_folder import model_for_engine
from chunkscope.verification.prompts import RealPrompts
from chunkscope.verification.rows import resumed
from chunkscope.verification.settings import ComparedSetting
from chunkscope.verification.verify import VerifyOptions, _check_vocabulary, workload_for
from chunkscope.vllm.check import config_of
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.build import MIXED, WORKLOAD, failed, plan, profile, run, verification

SHAPE = find_model("llama-3.1-8b")
ARGS = {"max_num_batched_tokens": 2_048}
HERE = release("0.24.0")
SETTINGS = [ComparedSetting(name=name, settings=Settings.of(ARGS)) for name in ("plan", "off")]


def prompts(*ids):
    return RealPrompts(texts=("",), ids=(ids,), source="data")


@pytest.mark.parametrize("found", [None, prompts(0, SHAPE.vocab - 1), prompts()])
def test_ids_within_the_vocabulary_are_fine(found) -> None:
    _check_vocabulary(found, SHAPE)


def test_a_tokenizer_of_another_model_is_noticed_before_the_engine_dies_of_it() -> None:
    with pytest.raises(InputError, match="belongs to another model"):
        _check_vocabulary(prompts(SHAPE.vocab), SHAPE)


def test_the_workload_leaves_room_for_the_plans_max_model_len() -> None:
    made = plan(MIXED)
    workload, _ = workload_for(made, profile(data=MIXED), VerifyOptions(requests=500))
    room = made.argument("max_model_len").value
    assert max(r.prompt_tokens + r.output_tokens for r in workload.requests) <= room


def test_as_many_are_under_way_as_asked_or_as_the_plan_was_made_for() -> None:
    found, aim = profile(data=MIXED), {"concurrency": 9}
    for options, made, expected in (
        ({}, plan(MIXED), None),
        ({}, plan(MIXED, **aim), 9),
        ({"concurrency": 3}, plan(MIXED, **aim), 3),
    ):
        workload, _ = workload_for(made, found, VerifyOptions(**options))
        assert workload.concurrency == expected
        assert ("concurrency" in workload.to_json()) is (expected is not None)


def test_real_prompts_and_a_shared_prefix_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--shared-prefix and --data exclude each other"):
        VerifyOptions(data=["rows.jsonl"], shared_prefix=0)


def test_prompts_over_the_plans_threshold_count_as_long() -> None:
    made = plan(MIXED)
    workload, _ = workload_for(made, profile(data=MIXED), VerifyOptions())
    assert workload.long_over == made.threshold == 2_048


def test_a_folder_without_weights_needs_the_dummy_format(tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("qwen2.5-1.5b")))
    with pytest.raises(MissingError, match="holds no weights"):
        model_for_engine(str(tmp_path), "auto")
    assert model_for_engine(str(tmp_path), "dummy")[0] == str(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert model_for_engine(str(tmp_path), "auto")[0] == str(tmp_path)


def test_a_built_in_model_has_the_same_folder_every_time() -> None:
    """vLLM looks up what it compiled before by the model's path."""
    first, second = (model_for_engine("qwen2.5-1.5b", "dummy")[0] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", ["Qwen2.5-1.5B", "qwen/qwen2.5-1.5B", "Qwen/Qwen2.5-1.5B"])
def test_a_built_in_model_is_found_whatever_its_capitals(name) -> None:
    """Only the table can answer here: the tests do not reach the hub."""
    folder, shape = model_for_engine(name, "dummy")
    assert json.loads((Path(folder) / "config.json").read_text()) == config_of(name)
    assert shape.hub_id == "Qwen/Qwen2.5-1.5B"


def test_a_resumed_run_keeps_the_rows_that_are_final() -> None:
    old = verification(run("plan", 1.0), failed("off"), failed("gone"))
    kept = resumed(replace(old, runs=()), old, SETTINGS, HERE)
    assert [r.setting for r in kept.runs] == ["plan", "off"]


def test_a_row_that_is_kept_has_the_names_of_today() -> None:
    old = verification(run("plan", 1.0))
    named = [replace(SETTINGS[0], same_as=("length-policy",))]
    (kept,) = resumed(replace(old, runs=()), old, named, HERE).runs
    assert kept.same_as == ("length-policy",)


def test_a_row_with_other_arguments_is_measured_again() -> None:
    old = verification(run("plan", 1.0))
    changed = [ComparedSetting(name="plan", settings=Settings(max_num_batched_tokens=4_096))]
    assert resumed(replace(old, runs=()), old, changed, HERE).runs == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"repeats": 9}, "number of repeats"),
        ({"source": "real prompts"}, "workload"),
        ({"workload": replace(WORKLOAD, stretches=(Stretch(parent=-1, tokens=32),))}, "workload"),
        ({"options": {"enforce_eager": True}}, "engine options"),
    ],
)
def test_another_verification_cannot_beresumed(change, said) -> None:
    old = verification(run("plan", 1.0))
    with pytest.raises(InputError, match=f"cannot resume: the {said} differs"):
        resumed(replace(old, runs=(), **change), old, SETTINGS, HERE)


# -- one artefact, one machine -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "vllm", "said"),
    [
        (["NVIDIA H200"], "0.28.0", "measured with vLLM 0.24.0, this is vLLM 0.28.0"),
        (["NVIDIA L4", "NVIDIA L4"], "0.24.0", "NVIDIA H200, this machine has NVIDIA L4"),
    ],
)
def test_rows_of_another_machine_are_not_resumed(monkeypatch, named, vllm, said) -> None:
    monkeypatch.setattr(machine, "local_gpu_names", lambda: named)
    old = verification(run("plan", 1.0))
    with pytest.raises(InputError, match=said) as refused:
        resumed(replace(old, runs=()), old, SETTINGS, release(vllm))
    assert "--output" in refused.value.hint


@pytest.mark.parametrize(
    ("named", "vllm"),
    [
        pytest.param([], "0.24.0", id="nvidia-smi does not say"),
        pytest.param(["NVIDIA L4", "NVIDIA H200"], "0.24.0+cu129", id="one of several GPUs"),
    ],
)
def test_rows_of_this_machine_are(monkeypatch, named, vllm) -> None:
    monkeypatch.setattr(machine, "local_gpu_names", lambda: named)
    old = verification(run("plan", 1.0))
    kept = resumed(replace(old, runs=()), old, SETTINGS, release(vllm))
    assert kept.runs == old.runs
    assert kept.machine == old.machine


def test_without_a_row_to_keep_the_machine_is_asked_anew() -> None:
    gone = verification(run("gone", 1.0))
    unknown = verification(failed("plan"), machine=None)
    for old in (gone, unknown):
        fresh = replace(old, runs=(), machine=None)
        assert resumed(fresh, old, SETTINGS, release("0.28.0")) == fresh


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpu": "NVIDIA L4"}, "measured with NVIDIA H200, this is NVIDIA L4"),
        ({"vllm": "0.24.1"}, "measured with vLLM 0.24.0, this is vLLM 0.24.1"),
        ({"device": "cpu", "gpu": None}, "a cuda build of vLLM, this is a cpu build"),
    ],
)
def test_another_machine_is_refused_once_the_engine_tells(change, said) -> None:
    kept = verification().machine
    machine.refuse_another_machine(kept, replace(kept, gpus=2, driver="570.1"))
    with pytest.raises(InputError, match=said):
        machine.refuse_another_machine(kept, replace(kept, **change))
