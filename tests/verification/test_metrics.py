"""What is read out of vLLM's /metrics."""

import pytest

from chunkscope.verification.endpoint import metrics
from chunkscope.verification.endpoint.metrics import parse


@pytest.mark.parametrize(
    ("text", "total"),
    [
        pytest.param(
            'vllm:num_preemptions_total{engine="0"} 1\n'
            'vllm:num_preemptions_total{engine="1"} 2',
            3,
            id="all engines",
        ),
        pytest.param("vllm:num_preemptions 4 1700000000", 4, id="bare, with a time"),
        pytest.param("vllm:num_preemptions_created 5", None, id="when it was made"),
        pytest.param("vllm:num_preemptions_total +Inf", None, id="infinite"),
        pytest.param("# vllm:num_preemptions_total 4", None, id="a comment"),
    ],
)
def test_counters_add_up_over_engines(text, total):
    assert parse(text).total(metrics.PREEMPTIONS) == total


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        pytest.param("9", "12", 3, id="it went on"),
        pytest.param("9", "1", None, id="the server was started anew"),
        pytest.param(None, "1", 1, id="it appeared with its first event"),
        pytest.param("9", None, None, id="it is gone"),
    ],
)
def test_a_repeat_is_the_difference_of_two_readings(before, after, count):
    first = parse(f"vllm:num_preemptions {before}" if before else "")
    second = parse(f"vllm:num_preemptions {after}" if after else "")
    assert metrics.counted(first, second, metrics.PREEMPTIONS) == count


LOOKUPS = "vllm:prefix_cache_queries_total {}\nvllm:prefix_cache_hits_total {}"
SOURCES = (
    LOOKUPS + "\nvllm:prompt_tokens_total {}\n"
    'vllm:prompt_tokens_by_source_total{{source="local_compute"}} 5\n'
    'vllm:prompt_tokens_by_source_total{{source="local_cache_hit"}} {}'
)


@pytest.mark.parametrize(
    ("text", "before", "after", "rate"),
    [
        pytest.param(LOOKUPS, (100, 50), (300, 100), 0.25, id="up to 0.15"),
        pytest.param(
            SOURCES, (0, 0, 0, 0), (900, 0, 100, 30), 0.3, id="waiting is not counted"
        ),
        pytest.param(LOOKUPS, (100, 50), (100, 50), None, id="nothing was looked up"),
    ],
)
def test_the_hit_rate_follows_the_names_of_the_release(text, before, after, rate):
    first = parse(text.format(*before))
    second = parse(text.format(*after))
    assert metrics.prefix_hit_rate(first, second) == rate


def cache_of(engine: int, more: str = "") -> str:
    return (
        f'vllm:cache_config_info{{engine="{engine}",block_size="16",'
        'num_gpu_blocks="10",enable_prefix_caching="True",'
        f'gpu_memory_utilization="0.9",swap_space="None"{more}}} 1.0'
    )


def test_the_kv_cache_is_that_of_all_engines():
    sizes = ',kv_cache_size_tokens="150",kv_cache_max_concurrency="1.5"'
    reading = parse(f"{cache_of(0, sizes)}\n{cache_of(1, sizes)}")
    cache = metrics.kv_cache(reading, 100)
    assert (cache.tokens, cache.concurrency, cache.is_upper_bound) == (300, 3.0, False)
    assert cache.engine == {
        "block_size": 16,
        "num_gpu_blocks": 10,
        "enable_prefix_caching": True,
        "gpu_memory_utilization": 0.9,
        "engines": 2,
    }


def test_before_0_24_its_tokens_are_worked_out_of_blocks():
    cache = metrics.kv_cache(parse(cache_of(0)), 100)
    assert (cache.tokens, cache.concurrency, cache.is_upper_bound) == (160, 1.6, True)


def test_a_server_that_tells_nothing_has_no_kv_cache():
    cache = metrics.kv_cache(parse("vllm:num_preemptions 4"), 100)
    assert (cache.engine, cache.tokens, cache.is_upper_bound) == ({}, None, False)
