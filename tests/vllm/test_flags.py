from dataclasses import fields

import pytest

from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.memory import Runner
from chunkscope.models import find_model
from chunkscope.report.words import sentence
from chunkscope.vllm import flags as vllm_flags
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import dotted, release
from chunkscope.vllm.rules import NEWEST, OLDEST, Rules
from chunkscope.vllm.settings import Settings


@pytest.mark.parametrize(
    ("text", "version"),
    [("v0.11.2", (0, 11, 2)), ("0.28.0+cpu", (0, 28, 0)), ("1.0", (1, 0, 0))],
)
def test_a_version_is_read_as_people_write_it(text, version):
    assert release(text).version == version
    for wrong in ("", "new", "0", "0.9.2", "0.10", "0.10.1", 0.28):
        with pytest.raises(UsageError):
            release(wrong)


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


@pytest.mark.parametrize(
    ("gpu", "version", "entry", "budget", "seqs"),
    [
        ("h200", "0.24", Entry.SERVE, 8192, 1024),
        ("h200", "0.24", Entry.LLM, 16384, 1024),
        ("h200", "0.24", Entry.OTHER, 2048, 128),
        ("h100", "0.10.2", Entry.SERVE, 8192, 1024),
        ("a100", "0.24", Entry.SERVE, 2048, 256),
        ("a100", "0.24", Entry.LLM, 8192, 256),
        ("l4", "0.32", Entry.SERVE, 2048, 256),
        ("b200", "0.27", Entry.SERVE, 8192, 1024),
        ("b200", "0.28", Entry.SERVE, 16384, 1024),
    ],
)
def test_vllms_own_choice_follows_gpu_version_and_entry(
    gpu, version, entry, budget, seqs
):
    expected = Settings(max_num_batched_tokens=budget, max_num_seqs=seqs)
    assert release(version).batch_defaults(find_gpu(gpu), entry) == expected


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


def test_the_fewest_arguments_lead_to_the_same_engine():
    """Defaults are left out, also those that follow from another argument."""
    there = Deployment(
        release=release("0.32"), gpu=find_gpu("h200"), shape=find_model("qwen3-8b")
    )
    for changed in (
        {},
        {"max_num_batched_tokens": 256},
        {"max_model_len": 4_096, "enable_chunked_prefill": False},
        {"tensor_parallel_size": 2, "max_num_seqs": 64},
    ):
        full = there.effective(Settings(**changed))
        assert there.shortest(full) == Settings(**changed)
        assert there.effective(there.shortest(full)) == full


OFF = {"enable_chunked_prefill": False, "max_num_batched_tokens": 32_768}


def settings(**changed):
    usual = {
        "max_model_len": 32_768,
        "max_num_batched_tokens": 8_192,
        "max_num_seqs": 128,
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": True,
        "gpu_memory_utilization": 0.9,
    }
    return Settings(**{**usual, **changed})


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
        (OFF, "0.11.0", "off_ignored"),
        ({}, "0.24", None),
        ({"long_prefill_token_threshold": 40_000}, "0.24", None),
        ({"long_prefill_token_threshold": 32_768}, "0.28", None),
        (OFF, "0.11.1", None),
        ({"max_num_batched_tokens": 128}, "0.32", None),
        (
            {"max_num_active_seqs": 64, "long_prefill_token_threshold_adaptive": True},
            "0.31",
            None,
        ),
        # Both are what is done anyway: without the flag, too.
        (
            {
                "max_num_active_seqs": 128,
                "long_prefill_token_threshold_adaptive": False,
            },
            "0.30",
            None,
        ),
    ],
)
def test_what_vllm_refuses_is_refused_here_and_nothing_else(changed, version, fault):
    refusals = Deployment(release=release(version)).refusals(settings(**changed))
    assert bool(refusals) is bool(fault)
    assert fault is None or f"refused_{fault}" in {refusal.code for refusal in refusals}
    assert all(map(sentence, refusals))


def test_a_context_over_the_models_own_is_refused():
    there = Deployment(release=release("0.24"), shape=find_model("gemma-2-9b"))
    (refusal,) = there.refusals(settings())
    assert (refusal.argument, refusal.code) == (
        "max_model_len",
        "refused_context_over_limit",
    )
    assert refusal.values["limit"] == 8_192


# From which versions on each rule has another value; the schedulers and parsers of all of them were
# asked (`pytest -m real`, `.ci/all`).
SINCE = {
    "unchunked_stops_the_queue": "0.12.0", "unchunked_drops_the_threshold": "0.11.1 0.12.0",
    "reserves_full_prompt": "0.19.0", "blank_blocks_first": "0.24.0",
    "lone_request_is_capped": "0.31.0", "async_scheduling": "0.14.0",
    "window_caps_admission": "0.19.0 0.20.0", "keeps_window_of_running_step": "0.26.0",
    "off_is_ignored": "0.11.1", "gpu_memory_utilization": "0.20.0", "checks_threshold": "0.27.0",
    "hybrid_refuses_off": "0.26.0", "hybrid_caches_prefixes": "0.26.0", "own_kv_cache": "0.15.0",
    "expert_tokens": "0.14.0 0.19.0", "v2_runner": "0.22.0 0.28.0 0.29.0",
    "v1_counts_graphs": "0.20.0", "v2_counts_graphs": "0.32.0", "stays_unstretched": "0.11.1",
    "chunks_are_windows": "0.14.0", "tries_kernels": "0.11.1", "leaves_volta_out": "0.20.0",
}  # fmt: skip


def test_each_rule_changed_in_these_versions():
    tables = {rule.name: rule.metadata["table"] for rule in fields(Rules)}
    assert {table[0][0] for table in tables.values()} == {OLDEST}
    since = {
        name: " ".join(dotted(v) for v, _ in rows[1:]) for name, rows in tables.items()
    }
    assert since == SINCE
    sizes = (release("0.10.2").rules.expert_tokens, release("0.14").rules.expert_tokens)
    assert (*sizes, release("0.19").rules.expert_tokens) == (32_768, 16_384, None)
