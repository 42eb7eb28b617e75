import contextlib
import copy
import hashlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chunkscope.artefacts import codec
from chunkscope.errors import InputError
from chunkscope.models import shape_from_config
from chunkscope.planning.plan import Plan
from chunkscope.planning.recommend import profile_digest
from chunkscope.vllm.enums import Entry, Objective, Task
from tests.build import FITTING, LONG, MIXED, SHORT, plan, profile
from tests.hardware.test_kv_groups import CONFIGS

BORROWING = {**CONFIGS["gemma-4"], "num_kv_shared_layers": 4, "attention_k_eq_v": True}
PLANS = {
    "off": {"lengths": SHORT},
    "conservative": {"lengths": MIXED},
    "aggressive": {"lengths": LONG},
    "nothing known": {"lengths": MIXED, "model": None, "gpu": None},
    "likelihood": {"lengths": LONG, "model": "qwen2.5-7b", "task": Task.LOGLIKELIHOOD},
    "latency": {"lengths": MIXED, "objective": Objective.LATENCY, "max_itl_ms": 60},
    "an unusual model": {
        "lengths": SHORT,
        "model": shape_from_config(
            {**BORROWING, "num_global_key_value_heads": 1}, name="small", source="test"
        ),
    },
}


@pytest.fixture(params=PLANS.values(), ids=PLANS)
def made(request):
    return plan(**request.param)


def test_a_plan_read_back_is_the_plan_that_was_written(made, tmp_path):
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made


def test_the_file_opens_with_what_people_look_for():
    document = plan(FITTING).to_json()
    assert document["schema"] == "chunkscope/plan/2"
    assert document["mode"] == "conservative"
    assert document["threshold"] == 2_048
    assert document["args"] == {"max_model_len": 4_352, "long_prefill_token_threshold": 2_048}
    assert document["refused_prompts"] == {
        "count": 0, "of": 802, "share": 0.0, "room_tokens": 4_096,
    }  # fmt: skip
    assert document["reasons"][0]["subject"] == "mode"


def test_every_memory_figure_carries_its_label():
    memory = plan(MIXED, task=Task.LOGLIKELIHOOD).to_json()["memory"]
    assert set(memory) == {
        "weights_gib", "activation_gib", "sampler_gib", "logprobs_gib", "cuda_graphs_gib",
        "overhead_gib", "kv_cache_gib", "kv_cache_tokens",
    }  # fmt: skip
    labels = {name: figure["label"] for name, figure in memory.items()}
    assert labels["weights_gib"] == labels["kv_cache_tokens"] == "predicted"
    assert labels["overhead_gib"] == labels["cuda_graphs_gib"] == "assumed"


def test_what_does_not_apply_is_null():
    assert plan(MIXED).to_json()["memory"]["logprobs_gib"] is None
    assert plan(MIXED, gpu=None).to_json()["memory"] is None


def test_the_profile_is_named_by_the_digest_of_its_file(tmp_path):
    data = profile(data=MIXED)
    data.save(tmp_path / "profile.json")
    written = (tmp_path / "profile.json").read_bytes()
    assert profile_digest(data) == hashlib.sha256(written).hexdigest()
    assert plan(MIXED).inputs.profile_digest == profile_digest(profile(data=MIXED))


def test_other_entry_points_get_the_same_settings_spelled_out():
    made = plan(FITTING)
    assert "max_num_batched_tokens" not in made.settings_for(Entry.SERVE).given()
    assert made.llm_kwargs()["max_num_batched_tokens"] == 8_192  # LLM() would take 16384
    assert "max_num_seqs" not in made.llm_kwargs()
    assert made.settings_for(Entry.OTHER).given()["max_num_seqs"] == 1_024


def test_the_command_line_and_the_keywords_come_from_the_plan():
    made = plan(SHORT)
    assert made.cli_args() == [
        "--max-model-len", "768", "--max-num-batched-tokens", "8192", "--no-enable-chunked-prefill",
    ]  # fmt: skip
    assert made.llm_kwargs() == {
        "max_model_len": 768,
        "max_num_batched_tokens": 8_192,
        "enable_chunked_prefill": False,
    }


def test_no_plan_yet_names_the_command_that_makes_it(tmp_path):
    with pytest.raises(InputError) as error:
        Plan.load(tmp_path / "plan.json")
    assert "chunkscope recommend" in error.value.hint


def test_a_plan_of_a_newer_schema_is_refused(tmp_path):
    document = {**plan(MIXED).to_json(), "schema": "chunkscope/plan/3"}
    codec.write_atomically(tmp_path / "plan.json", codec.dump(document))
    with pytest.raises(InputError, match="chunkscope/plan/2"):
        Plan.load(tmp_path / "plan.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("plan"),
        lambda d: d.update(extra=1),
        lambda d: d["plan"].pop("arguments"),
        lambda d: d["plan"].update(extra=1),
        lambda d: d["plan"].update(mode="sometimes"),
        lambda d: d["plan"]["decision"].update(prompts="many"),
        lambda d: d.update(mode="off"),
        lambda d: d["args"].update(max_num_seqs=1),
        lambda d: d["memory"].update(kv_cache_tokens=None),
        lambda d: d["refused_prompts"].update(count=5),
        lambda d: d.update(schema="chunkscope/profile/2"),
    ],
)
def test_a_damaged_plan_is_an_input_error(damage):
    document = json.loads(codec.dump(plan(MIXED).to_json()))
    damage(document)
    with pytest.raises(InputError, match="damaged"):
        Plan.from_json(document)


WHOLE = json.loads(codec.dump(plan(MIXED).to_json()))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_any_change_to_a_plan_is_noticed_or_harmless(data):
    document = copy.deepcopy(WHOLE)
    target, key = document, data.draw(st.sampled_from(sorted(document)))
    while isinstance(target[key], dict) and target[key] and data.draw(st.booleans()):
        target = target[key]
        key = data.draw(st.sampled_from(sorted(target)))
    target[key] = data.draw(st.none() | st.integers() | st.text(max_size=3) | st.just([]))
    with contextlib.suppress(InputError):
        assert isinstance(Plan.from_json(document), Plan)
