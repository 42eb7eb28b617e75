"""What `memory` says: does a model fit, with room for how many requests?"""

import pytest

from chunkscope.report.blocks import Table
from chunkscope.report.charts import StackedBars
from chunkscope.report.footprint import footprint_blocks, headline, settings_sentence
from chunkscope.vllm.footprint import memory


def fitting(**asked):
    return memory("qwen3-8b", "h100", vllm_version="0.24", **asked)


def test_a_model_that_fits_says_how_many_of_its_longest_requests():
    found = fitting()
    tokens = found.memory.kv_cache_tokens

    assert headline(found) == (
        f"Qwen3-8B on one H100 80GB fits: {tokens:,} tokens of KV cache, enough for "
        f"{tokens // 40_960} requests of the full 40,960 tokens."
    )


def test_no_more_requests_are_counted_than_may_run():
    assert "enough for 2 requests" in headline(fitting(max_num_seqs=2))


def test_one_of_each_is_no_plural():
    sizes = {"max_model_len": 1, "max_num_batched_tokens": 1, "max_num_seqs": 1}

    found = fitting(task="loglikelihood", **sizes)

    assert headline(found).endswith("enough for 1 request of the full 1 token.")
    assert "1 token per step, at most 1 request at once" in settings_sentence(found)


def test_a_model_that_does_not_fit_says_what_is_missing_and_what_would_help():
    text = headline(memory("llama-3.1-70b", "h100"))

    assert text.startswith("Llama-3.1-70B on one H100 80GB does not run: the model")
    assert "--tp 2 would fit" in text


@pytest.mark.parametrize(
    ("model", "gpu", "rows"),
    [
        pytest.param("qwen3-8b", "h100", 1, id="fits"),
        pytest.param("llama-3.3-70b", "l4", 0, id="does not fit"),
    ],
)
def test_requests_are_counted_of_a_model_that_fits(model, gpu, rows):
    blocks = footprint_blocks(memory(model, gpu))

    tables = [block for block in blocks if isinstance(block, Table)]
    assert len(tables[1].rows) == rows


def test_the_memory_is_drawn_up_to_what_the_gpu_has():
    found = fitting()

    bars = next(b for b in footprint_blocks(found) if isinstance(b, StackedBars))

    assert bars.limit == found.memory.total_gib
