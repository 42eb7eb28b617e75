"""KV groups and pages: what vLLM makes of small models with the ratios of real ones."""

import json

import pytest

from chunkscope.hardware.kv_groups import kv_layout
from chunkscope.models import shape_from_config
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


def page_of(layout):
    """A block is a page in each layer of the largest group."""
    return layout.block_bytes // max(group.layers for group in layout.groups)


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
                question = {
                    "folder": str(folder / name),
                    "engine": engine,
                    "bytes": AMOUNTS,
                }
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
    sized = [
        group[:2] if group[0] is KvKind.STATE else group for group in (*groups, *ours)
    ]
    assert sorted(sized[: len(groups)]) == sorted(sized[len(groups) :])
    assert page_of(layout) == seen["page"]
    blocks = [layout.blocks(amount) for amount in AMOUNTS]
    assert blocks == seen["blocks"]
    tokens = [layout.tokens(n, context=8_192, step=budget) for n in blocks]
    assert tokens == seen["tokens"]


# Layers of each group, its tokens in a block, bytes of a page; tokens of 10,000 blocks,
# blocks with 50,000 tokens, and those of a request of 3,000. All are compared with
# vLLM's above.
LAYOUTS = {
    "gemma-2": ("F3/16 W3/16", 8_192, 102_272, 4_889, 376),
    "gemma-3": ("F2/16" + 6 * " W2/16", 8_192, 90_820, 5_506, 482),
    "gemma-4": ("F2/16" + 5 * " W2/32", 16_384, 121_004, 4_133, 313),
    "gemma-4, fewer heads": ("F2/32" + 5 * " W2/16", 16_384, 140_998, 3_547, 339),
    "gpt-oss": ("F2/16 W2/16", 8_192, 148_137, 3_376, 213),
    "mistral": ("W4/16", 8_192, 844_536, 593, 81),
    "nearly as many of both": ("F3/16 W4/16", 8_192, 148_137, 3_376, 213),
    "deepseek-v2": ("F3/16", 18_432, 160_000, 3_125, 188),
    "deepseek-v3": ("F3/16", 18_432, 160_000, 3_125, 188),
    "qwen3-next": ("F2/144" + 3 * " S2/144", 73_728, 1_300_317, 385, 27),
    "nemotron-h": ("F2/528" + 3 * " S2/528", 270_336, 3_723_636, 135, 12),
    "falcon": ("F4/16", 4_096, 160_000, 3_125, 188),
    "lfm-2": ("F2/16" + 3 * " S2/16", 8_192, 158_146, 3_162, 194),
    "granite-4": ("F2/144" + 3 * " S2/144", 73_728, 1_300_317, 385, 27),
    "dbrx": ("F4/16", 8_192, 160_000, 3_125, 188),
    "opt": ("F4/16", 16_384, 160_000, 3_125, 188),
}
LETTERS = {KvKind.FULL: "F", KvKind.SLIDING: "W", KvKind.STATE: "S"}


@pytest.mark.parametrize("name", CONFIGS)
def test_groups_and_pages_of_each_kind(name):
    layout = kv_layout(
        shape_from_config(CONFIGS[name], name=name, source="test"), caches_states=True
    )
    groups = " ".join(
        f"{LETTERS[g.kind]}{g.layers}/{g.block_tokens}" for g in layout.groups
    )
    tokens = layout.tokens(10_000, context=8_192, step=512)
    blocks = layout.blocks_with(50_000, context=8_192, step=512)
    found = (groups, page_of(layout), tokens, blocks, layout.blocks_of(3_000, 256))
    assert found == LAYOUTS[name]
