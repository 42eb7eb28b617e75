"""What is checked before an engine is started, what a resumed run keeps, and the artefact."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.models import find_model, known_model
from chunkscope.prefixes.sharing import Stretch
from chunkscope.verification.prompts import RealPrompt
from chunkscope.verification.result import Predicted, PromptSource, Verification
from chunkscope.verification.settings import SettingRow
from chunkscope.verification.verify import (
    VerifyOptions,
    check_vocabulary,
    model_for_engine,
    resumed,
    verify_endpoint,
    workload_for,
)
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings
from tests.build import MIXED, WORKLOAD, failed, plan, profile, run, verification

SHAPE = find_model("llama-3.1-8b")
SET = Settings(max_num_batched_tokens=2_048)
ROWS = [SettingRow(name=name, settings=SET) for name in ("plan", "off")]


# -- the workload and the model ------------------------------------------------------------------


def test_a_tokenizer_of_another_model_is_noticed_before_the_engine_dies_of_it() -> None:
    def prompts(*ids):
        return [RealPrompt("", ids, is_complete=False)]

    check_vocabulary(prompts(0, SHAPE.vocab - 1), SHAPE)
    with pytest.raises(InputError, match=f"{SHAPE.vocab:,}"):
        check_vocabulary(prompts(SHAPE.vocab), SHAPE)


def test_the_workload_fits_the_plans_context_and_keeps_as_many_under_way_as_it_was_made_for() -> (
    None
):
    planned = plan(MIXED, concurrency=9)
    workload, _, _ = workload_for(planned, profile(data=MIXED), VerifyOptions(requests=500))
    room = planned.effective.max_model_len
    assert max(r.prompt_tokens + r.output_tokens for r in workload.requests) <= room
    assert (workload.long_over, workload.concurrency) == (planned.decision.threshold, 9)
    workload, _, _ = workload_for(planned, profile(data=MIXED), VerifyOptions(concurrency=3))
    assert workload.concurrency == 3


@pytest.mark.parametrize(
    "options",
    [
        *({"data": ["rows.jsonl"], "shared_prefix": 0}, {"repeats": 0}, {"timeout_s": 0}),
        {"check_outputs": True},  # of a server, which has one setting
    ],
)
def test_options_that_make_no_sense_are_refused(options) -> None:
    with pytest.raises(UsageError):
        verify_endpoint("http://host", plan(MIXED), profile(data=MIXED), VerifyOptions(**options))


def test_a_folder_without_weights_needs_the_dummy_format(tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(known_model("qwen2.5-1.5b").config))
    with pytest.raises(MissingError, match=str(tmp_path)):
        model_for_engine(str(tmp_path), "auto")
    assert model_for_engine(str(tmp_path), "dummy")[0] == str(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert model_for_engine(str(tmp_path), "auto")[0] == str(tmp_path)


def test_a_built_in_model_has_the_same_folder_every_time() -> None:
    """vLLM looks up what it compiled before by the model's path."""
    (folder, shape), (again, _) = (model_for_engine("Qwen/Qwen2.5-1.5B", "dummy") for _ in "ab")
    assert folder == again
    assert (
        json.loads((Path(folder) / "config.json").read_text()) == known_model("qwen2.5-1.5b").config
    )
    assert shape.hub_id == "Qwen/Qwen2.5-1.5B"


# -- resumed -------------------------------------------------------------------------------------


def resume(old: Verification, rows=ROWS, **fresh) -> Verification:
    return resumed(replace(old, runs=(), **fresh), old, rows)


def test_a_resumed_run_keeps_the_rows_that_are_final_under_the_names_of_today() -> None:
    old = verification(run("plan", 1.0), failed("off", Status.DIED), failed("gone"))
    named = [replace(ROWS[0], same_as=("length-rule",)), ROWS[1]]
    (kept,) = resume(old, named).runs
    assert (kept.setting, kept.same_as) == ("plan", ("length-rule",))
    assert [r.setting for r in resume(verification(failed("off"))).runs] == ["off"]
    assert resume(old, named).machine == old.machine


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"repeats": 9}, "number of repeats"),
        ({"source": PromptSource(datasets=("gsm8k",))}, "workload"),
        ({"workload": replace(WORKLOAD, stretches=(Stretch(parent=-1, tokens=32),))}, "workload"),
        ({"options": {"enforce_eager": True}}, "engine options"),
    ],
)
def test_another_verification_cannot_be_resumed(change, what) -> None:
    with pytest.raises(InputError, match=what):
        resume(verification(run("plan", 1.0)), **change)


def test_a_row_with_other_settings_is_measured_again_where_the_machine_is_now() -> None:
    changed = [SettingRow(name="plan", settings=Settings(max_num_batched_tokens=4_096))]
    again = resume(verification(run("plan", 1.0)), changed, machine=None)
    assert (again.runs, again.machine) == ((), None)


# -- the artefact --------------------------------------------------------------------------------


def test_what_is_written_is_read_back_equal(tmp_path) -> None:
    predicted = Predicted(weights_gib=1, activation_gib=0.5, kv_cache_tokens=900)
    first = run("plan", 10.0, 9.0, same_as=("default",), predicted=predicted)
    measured = verification(first, failed("off"), options={"enforce_eager": True})
    measured.save(tmp_path / "verify.json")
    assert Verification.load(tmp_path / "verify.json") == measured
    assert measured.run("default") is first
    assert measured.run("nothing") is None
    again = measured.with_run(run("off", 5.0))
    assert [(r.setting, r.ok) for r in again.runs] == [("plan", True), ("off", True)]
