"""What is read out of a vLLM server's /metrics."""

import pytest

from chunkscope.verification.endpoint import metrics
from chunkscope.verification.endpoint.metrics import parse


def test_lines_are_read_with_their_labels():
    text = 'a:b_total{x="1",y="{brace}"} 2.5 1700000000\nplain 3\n# TYPE plain gauge\n'
    first, second = parse(text).samples
    assert first.labels == {"x": "1", "y": "{brace}"}
    assert (first.name, first.value, second.name, second.value) == ("a:b_total", 2.5, "plain", 3.0)


def test_counters_add_up_over_engines_under_either_name():
    text = 'vllm:num_preemptions_total{engine="0"} 1\nvllm:num_preemptions_total{engine="1"} 2'
    assert parse(text).total(metrics.PREEMPTIONS) == 3
    assert parse("vllm:num_preemptions 4").total(metrics.PREEMPTIONS) == 4
    assert parse("vllm:num_preemptions_created 5").total(metrics.PREEMPTIONS) is None


def test_a_counter_that_went_back_tells_nothing():
    before, after = parse("vllm:num_preemptions 9"), parse("vllm:num_preemptions 1")
    assert metrics.preemptions(before, after) is None
    assert metrics.preemptions(parse(""), after) == 1
    assert metrics.preemptions(before, parse("")) is None


OLD = "vllm:gpu_prefix_cache_queries_total {}\nvllm:gpu_prefix_cache_hits_total {}"
NOW = "vllm:prefix_cache_queries_total {}\nvllm:prefix_cache_hits_total {}"
SOURCES = (
    NOW + "\nvllm:prompt_tokens_total {}\n"
    'vllm:prompt_tokens_by_source_total{{source="local_cache_hit"}} {}'
)


@pytest.mark.parametrize(
    ("text", "before", "after", "rate"),
    [
        pytest.param(OLD, (0, 0), (100, 40), 0.4, id="up to 0.11"),
        pytest.param(NOW, (100, 50), (300, 100), 0.25, id="up to 0.15"),
        pytest.param(SOURCES, (0, 0, 0, 0), (900, 0, 100, 30), 0.3, id="waiting is not counted"),
        pytest.param(NOW, (100, 50), (100, 50), None, id="nothing was looked up"),
    ],
)
def test_the_hit_rate_follows_the_names_of_the_release(text, before, after, rate):
    found = metrics.prefix_hit_rate(parse(text.format(*before)), parse(text.format(*after)))
    assert found == (rate if rate is None else pytest.approx(rate))


def test_the_kv_cache_of_all_engines():
    line = (
        'vllm:cache_config_info{{engine="{}",block_size="16",num_gpu_blocks="10",'
        'enable_prefix_caching="True",gpu_memory_utilization="0.9",kv_cache_size_tokens="150",'
        'kv_cache_max_concurrency="1.5"}} 1.0'
    )
    cache = metrics.kv_cache(parse(f"{line.format(0)}\n{line.format(1)}"), 100)
    assert (cache.tokens, cache.concurrency, cache.is_upper_bound) == (300, 3.0, False)
    assert cache.engine == {
        "num_gpu_blocks": 10,
        "block_size": 16,
        "enable_prefix_caching": True,
        "gpu_memory_utilization": 0.9,
        "engines": 2,
    }


def test_before_0_24_the_kv_cache_is_worked_out_of_its_blocks():
    text = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="10"} 1.0'
    cache = metrics.kv_cache(parse(text), 100)
    assert (cache.tokens, cache.concurrency, cache.is_upper_bound) == (160, 1.6, True)
    assert metrics.kv_cache(parse(text), None).concurrency is None
