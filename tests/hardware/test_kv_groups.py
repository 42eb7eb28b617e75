"""KV groups and pages: what vLLM itself makes of small models with the ratios of real ones."""

import json

import pytest

from chunkscope.hardware.kv_groups import kv_layout
from chunkscope.models import find_model, shape_from_config
from chunkscope.models.layers import KvKind
from tests.hardware.kv_models import CONFIGS

KINDS = {
    "SlidingWindowSpec": KvKind.SLIDING,
    "FullAttentionSpec": KvKind.FULL,
    "MLAAttentionSpec": KvKind.FULL,
    "MambaSpec": KvKind.STATE,
}
AMOUNTS = (50_000_000, 1_234_567_890)
BUDGETS = (512, 8_192)
CACHING = (False, True)


@pytest.fixture(scope="module")
def made(probe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    asked = []
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        for budget in BUDGETS:
            for caching in CACHING:
                engine = {"max_model_len": 8_192, "max_num_batched_tokens": budget}
                engine |= {"max_num_seqs": 8, "enable_prefix_caching": caching}
                question = {"folder": str(folder / name), "engine": engine, "bytes": AMOUNTS}
                asked.append(((name, budget, caching), question))
    answers = probe("kv_probe", [question for _, question in asked])
    return {key: answer for (key, _), answer in zip(asked, answers, strict=True)}


@pytest.mark.real
@pytest.mark.parametrize("caching", CACHING)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", CONFIGS)
def test_groups_pages_and_capacity_are_vllms(made, name, budget, caching):
    shape = shape_from_config(CONFIGS[name], name=name, source="test")
    layout, seen = kv_layout(shape, caches_states=caching), made[name, budget, caching]
    assert "refused" not in seen, seen
    groups = [(KINDS[kind], layers, size) for kind, layers, size in seen["groups"]]
    ours = [(g.kind, g.layers, g.block_tokens) for g in layout.groups]
    sized = [group[:2] if group[0] is KvKind.STATE else group for group in (*groups, *ours)]
    assert sorted(sized[: len(groups)]) == sorted(sized[len(groups) :])
    assert layout.page_bytes == seen["page"]
    blocks = [layout.blocks(amount) for amount in AMOUNTS]
    assert blocks == seen["blocks"]
    tokens = [layout.tokens(n, context=8_192, step=budget) for n in blocks]
    assert tokens == seen["tokens"]


@pytest.mark.real
@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_those_that_vllm_makes(made, name):
    """Of mamba and of linear attention, too. vLLM pads a vocabulary to a multiple of 64."""
    shape = shape_from_config(CONFIGS[name], name=name, source="test")
    seen = made[name, BUDGETS[0], False]["parameters"]
    assert shape.parameters.total == pytest.approx(seen, rel=0.005)


def test_a_request_holds_a_window_and_what_a_step_computes():
    layout = kv_layout(find_model("gemma-2-9b"))
    full, sliding = layout.groups
    assert (full.blocks_of(8_000), sliding.blocks_of(8_000)) == (500, 257)
    assert sliding.blocks_of(8_000, step=2_048) == 385
    assert sliding.blocks_of(160) == 10
    assert layout.blocks_of(8_000) == 757


def test_a_dense_model_is_one_group():
    layout = kv_layout(find_model("llama-3.1-8b"))
    assert [(g.kind, g.layers) for g in layout.groups] == [(KvKind.FULL, 32)]
    assert layout.tokens(layout.blocks(10**9), context=100, step=512) == 10**9 // 2**21 * 16
