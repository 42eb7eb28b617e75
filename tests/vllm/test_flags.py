"""Releases, what they take by themselves, and what they refuse."""

from dataclasses import fields, replace

import pytest

from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.step_time import Runner
from chunkscope.models import find_model
from chunkscope.report.notes import sentence
from chunkscope.vllm import flags as vllm_flags
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import ServeFlag, dotted, release
from chunkscope.vllm.rules import NEWEST, OLDEST, Rules, rules_at
from chunkscope.vllm.settings import NAMES, Settings

# -- versions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v0.12.1", (0, 12, 1)),
        ("0.28.0+cpu", (0, 28, 0)),
        ("0.24", (0, 24, 0)),
        ("1.0", (1, 0, 0)),
    ],
)
def test_a_version_is_read_as_people_write_it(text, version):
    assert release(text).version == version


@pytest.mark.parametrize("text", ["", "new", "0", 0.28])
def test_what_is_no_version_is_a_usage_error(text):
    with pytest.raises(UsageError, match="is not a vLLM version"):
        release(text)


@pytest.mark.parametrize("text", ["0.9.2", "0.10.2", "0.11.0", "0.11.2"])
def test_an_older_version_is_refused_with_the_oldest_that_is_supported(text):
    with pytest.raises(UsageError, match=rf"{text} is older than 0\.12\.0") as error:
        release(text)

    assert error.value.hint == "give --vllm-version between 0.12.0 and 0.32.0"


@pytest.mark.parametrize(
    ("installed", "version", "note"),
    [
        ("0.99", (0, 99, 0), "vllm_newer"),
        ("0.32.5", (0, 32, 5), None),
        (None, NEWEST, "vllm_not_installed"),
        ("0.1.dev12+gabc", NEWEST, "vllm_development"),
    ],
)
def test_the_default_is_the_installed_version(monkeypatch, installed, version, note):
    monkeypatch.setattr(vllm_flags, "installed_version", lambda: installed)

    found = release()

    assert found.version == version
    assert (found.note and found.note.code) == note


def test_rules_without_a_version_are_those_of_the_version_that_is_assumed(monkeypatch):
    monkeypatch.setattr(vllm_flags, "installed_version", lambda: None)

    assert Rules() == release().rules


@pytest.mark.parametrize(
    ("gpu", "version", "entry", "budget", "seqs"),
    [
        ("h200", "0.24", Entry.SERVE, 8_192, 1_024),
        ("h200", "0.24", Entry.LLM, 16_384, 1_024),
        ("h200", "0.24", Entry.OTHER, 2_048, 128),
        ("h100", "0.12", Entry.SERVE, 8_192, 1_024),
        ("a100", "0.24", Entry.SERVE, 2_048, 256),
        ("a100", "0.24", Entry.LLM, 8_192, 256),
        ("l4", "0.32", Entry.SERVE, 2_048, 256),
        ("b200", "0.27", Entry.SERVE, 8_192, 1_024),
        ("b200", "0.28", Entry.SERVE, 16_384, 1_024),
    ],
)
def test_vllms_own_choice_follows_gpu_version_and_entry(
    gpu, version, entry, budget, seqs
):
    settings = release(version).batch_defaults(find_gpu(gpu), entry)

    assert settings == Settings(max_num_batched_tokens=budget, max_num_seqs=seqs)


@pytest.mark.parametrize(
    ("version", "architecture", "dense", "runner"),
    [
        ("0.21", "LlamaForCausalLM", True, Runner.V1),
        ("0.24", "LlamaForCausalLM", True, Runner.V2),
        ("0.24", "Qwen2ForCausalLM", True, Runner.V1),
        ("0.28", "Qwen2ForCausalLM", True, Runner.V2),
        ("0.28", "MixtralForCausalLM", False, Runner.V1),
        ("0.29", "MixtralForCausalLM", False, Runner.V2),
    ],
)
def test_the_model_runner_follows_version_and_model(
    version, architecture, dense, runner
):
    assert release(version).runner(architecture, dense=dense) is runner


# From which versions on each rule has another value; the schedulers and parsers of all
# of them were asked (`pytest -m real`, `.ci/all`).
SINCE = {
    "reserves_full_prompt": ["0.19.0"],
    "blank_blocks_first": ["0.24.0"],
    "lone_request_is_capped": ["0.31.0"],
    "async_scheduling": ["0.14.0"],
    "window_caps_admission": ["0.19.0", "0.20.0"],
    "keeps_window_of_running_step": ["0.26.0"],
    "gpu_memory_utilization": ["0.20.0"],
    "checks_threshold": ["0.27.0"],
    "hybrid_refuses_off": ["0.26.0"],
    "hybrid_caches_prefixes": ["0.26.0"],
    "expert_tokens": ["0.14.0", "0.19.0"],
    "v2_runner": ["0.22.0", "0.28.0", "0.29.0"],
    "v1_counts_graphs": ["0.20.0"],
    "v2_counts_graphs": ["0.32.0"],
    "leaves_volta_out": ["0.20.0"],
    "large_graphs_on_blackwell": ["0.28.0"],
}


@pytest.mark.parametrize("rule", fields(Rules), ids=lambda rule: rule.name)
def test_each_rule_changed_in_these_versions(rule):
    changes = []
    for minor in range(OLDEST[1] + 1, NEWEST[1] + 1):
        before, version = (0, minor - 1, 0), (0, minor, 0)
        if getattr(rules_at(before), rule.name) != getattr(
            rules_at(version), rule.name
        ):
            changes.append(dotted(version))

    assert changes == SINCE[rule.name]


# -- what the engine ends up with ------------------------------------------------------


def engine(version="0.32", model="qwen3-8b"):
    return Engine(
        release=release(version), gpu=find_gpu("h200"), shape=find_model(model)
    )


CHANGES = [
    pytest.param({}, id="vLLM's own"),
    pytest.param({"max_num_batched_tokens": 256}, id="fewer requests than usual"),
    pytest.param(
        {"max_model_len": 4_096, "enable_chunked_prefill": False}, id="not chunked"
    ),
    pytest.param({"tensor_parallel_size": 2, "max_num_seqs": 64}, id="two GPUs"),
]


# Where nobody sets them they follow the number of requests.
FOLLOWING = {"max_num_active_seqs", "max_cudagraph_capture_size"}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_completed_setting_has_a_value_where_nothing_follows_the_requests(changed):
    complete = engine().complete(Settings(**changed))

    assert complete.given().keys() == set(NAMES) - FOLLOWING


def test_running_as_many_requests_as_there_are_places_is_no_limit():
    limited = Settings(max_num_seqs=64, max_num_active_seqs=64)

    assert engine().complete(limited) == engine().complete(Settings(max_num_seqs=64))


@pytest.mark.parametrize("changed", CHANGES)
def test_completing_twice_changes_nothing(changed):
    complete = engine().complete(Settings(**changed))

    assert engine().complete(complete) == complete


@pytest.mark.parametrize("changed", CHANGES)
def test_the_fewest_arguments_lead_to_the_same_engine(changed):
    """Defaults are left out, also those that follow from another argument."""
    complete = engine().complete(Settings(**changed))

    shortest = engine().shortest(complete)

    assert shortest == Settings(**changed)
    assert engine().complete(shortest) == complete


def test_only_what_follows_from_a_gpu_or_a_model_stays_unknown_without_them():
    complete = Engine(release=release("0.32")).complete()

    sizes = {"max_model_len", "max_num_batched_tokens", "max_num_seqs"}
    assert complete.given().keys() == set(NAMES) - sizes - FOLLOWING


@pytest.mark.parametrize(
    ("gpu", "version", "tokens"),
    [
        ("b200", "0.27", 512),
        ("b200", "0.28", 1_024),
        ("gb200", "0.32", 1_024),
        ("rtx-5090", "0.32", 512),
        ("h200", "0.32", 512),
    ],
)
def test_a_blackwell_captures_larger_steps_since_vllm_0_28(gpu, version, tokens):
    """As vLLM 0.28 says of devices with the compute capability 10."""
    found = Engine(
        release=release(version), gpu=find_gpu(gpu), shape=find_model("qwen3-8b")
    )
    larger = replace(found.complete(), max_cudagraph_capture_size=tokens)

    assert found.step_model().graphed_tokens == tokens
    assert found.memory() == found.memory(larger)


# -- refusals --------------------------------------------------------------------------

OFF = {"enable_chunked_prefill": False, "max_num_batched_tokens": 32_768}
USUAL = Settings(
    max_model_len=32_768,
    max_num_batched_tokens=8_192,
    max_num_seqs=128,
    long_prefill_token_threshold=0,
    enable_chunked_prefill=True,
    gpu_memory_utilization=0.9,
)


def refused(changed, version):
    found = Engine(release=release(version))
    return found.refusals(Settings(**changed).over(USUAL))


@pytest.mark.parametrize(
    ("changed", "version", "fault"),
    [
        ({"enable_chunked_prefill": False}, "0.24", "unchunked_budget"),
        ({"max_num_batched_tokens": 64}, "0.24", "budget_below_seqs"),
        ({"long_prefill_token_threshold": 40_000}, "0.28", "threshold"),
        ({"long_prefill_token_threshold": -5}, "0.24", "threshold"),
        ({"gpu_memory_utilization": 1.1}, "0.24", "utilization"),
        ({"max_num_seqs": 0}, "0.24", "below_one"),
        ({"max_num_active_seqs": 256}, "0.31", "active_over_seqs"),
        ({"max_num_active_seqs": 64}, "0.30", "unknown"),
        ({"long_prefill_token_threshold_adaptive": True}, "0.30", "unknown"),
        ({**OFF, "long_prefill_token_threshold": 2_048}, "0.24", "off_with_threshold"),
    ],
)
def test_what_vllm_refuses_is_refused_here(changed, version, fault):
    refusals = refused(changed, version)

    assert f"refused_{fault}" in {refusal.code for refusal in refusals}
    assert all(sentence(refusal) for refusal in refusals)


@pytest.mark.parametrize(
    ("changed", "version"),
    [
        ({}, "0.24"),
        ({"long_prefill_token_threshold": 40_000}, "0.24"),
        ({"long_prefill_token_threshold": 32_768}, "0.28"),
        (OFF, "0.12"),
        ({"max_num_batched_tokens": 128}, "0.32"),
        ({"max_num_active_seqs": 64}, "0.31"),
        ({"long_prefill_token_threshold_adaptive": True}, "0.31"),
        pytest.param({"max_num_active_seqs": 128}, "0.30", id="as without the flag"),
        pytest.param(
            {"long_prefill_token_threshold_adaptive": False}, "0.30", id="as before"
        ),
    ],
)
def test_what_vllm_takes_is_not_refused(changed, version):
    assert refused(changed, version) == ()


def test_a_context_over_the_models_own_is_refused():
    found = Engine(release=release("0.24"), shape=find_model("gemma-2-9b"))

    (refusal,) = found.refusals(USUAL)

    assert refusal.argument == "max_model_len"
    assert refusal.code == "refused_context_over_limit"
    assert refusal.values["limit"] == 8_192


# -- values ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("takes", "text", "value"),
    [
        ("int", "64", 64),
        ("float", "0.9", 0.9),
        ("json", '{"a": [1]}', {"a": [1]}),
        ("size", "4K", 4_096),
        ("size", "25.6k", 25_600),
        ("length", "auto", None),
        ("text", "fp8", "fp8"),
        ("int?", "None", None),
    ],
)
def test_a_value_is_read_as_vllms_parser_reads_it(takes, text, value):
    assert ServeFlag(name="x", takes=takes, harmless=False).read(text) == value


@pytest.mark.parametrize(
    ("takes", "text"),
    [("int", "many"), ("float", "nan"), ("size", "1.5K"), ("int", "9" * 30)],
)
def test_a_value_that_vllm_refuses_is_a_value_error(takes, text):
    with pytest.raises(ValueError, match="not a value that vLLM accepts"):
        ServeFlag(name="x", takes=takes, harmless=False).read(text)
