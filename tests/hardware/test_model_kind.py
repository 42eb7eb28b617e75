import pytest
from chunkscope.hardware.model_kind import MEASURED, kind_of, unlike_measured

from chunkscope.models import find_model
from chunkscope.vllm.enums import KvCacheType
from chunkscope.vllm.footprint import memory


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("llama-3.1-8b", "a dense model"),
        ("qwen3-30b-a3b", "a mixture of experts"),
        ("deepseek-v3", "a mixture of experts, latent attention, 8-bit weights"),
        ("gemma-3-27b", "sliding windows"),
        ("gpt-oss-20b", "a mixture of experts, sliding windows, 4-bit weights"),
    ],
)
def test_a_kind_names_what_is_not_dense(model, kind):
    assert kind_of(find_model(model)) == kind


def test_only_a_kind_that_was_not_measured_is_said_to_be_unlike():
    for name in ("llama-3.1-8b", "qwen3-30b-a3b", "gemma-2-9b"):
        assert unlike_measured(find_model(name)) is None
    said = unlike_measured(find_model("deepseek-v3"))
    assert said.startswith("no model like this one (a mixture of experts, latent attention, 8-bit")
    assert "latent attention" in said.partition("nearest kind")[2]
    assert said.count(". ") == 0


def test_every_measured_kind_has_a_range():
    assert all(kind.least <= kind.most and kind.models for kind in MEASURED)


def test_eight_bits_hold_twice_as_many_tokens():
    plain, eight = (
        memory("gemma-2-9b", "h200", vllm_version="0.24", kv_cache_dtype=kind)
        for kind in (KvCacheType.AUTO, KvCacheType.FP8)
    )
    assert eight.memory.kv_cache_tokens == pytest.approx(2 * plain.memory.kv_cache_tokens, rel=1e-4)
    assert eight.requests_of(8_000) == pytest.approx(2 * plain.requests_of(8_000), abs=1)
