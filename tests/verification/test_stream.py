"""What a server sends: events with tokens in them, and what is read out of vLLM's /metrics."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.simulation.slo import read_slo
from chunkscope.verification.endpoint import metrics
from chunkscope.verification.endpoint.metrics import parse
from chunkscope.verification.endpoint.stream import Received, spread
from chunkscope.verification.latencies import (
    Answer,
    distribution_of,
    figures_of,
    median_of,
)
from tests.build import WORKLOAD
from tests.verification import odd_server


def event(text="", finish=None, output=None) -> bytes:
    usage = (
        {"usage": {"prompt_tokens": 4, "completion_tokens": output}} if output else {}
    )
    return odd_server.event(text, finish=finish, **usage).rstrip()


def answer_of(*events: tuple[float, bytes], end: float = 9.0):
    received = Received()
    for now, content in events:
        received.take(content, now)
    return received.answer(0.5, end)


@given(st.lists(st.integers(1, 40)), st.sampled_from(["\n", "\r\n"]))
def test_events_are_the_same_however_they_are_cut(cuts, newline):
    lines = [
        ": hi",
        "event: x",
        event("a").decode(),
        "",
        event("b", "stop").decode(),
        "",
    ]
    data, received = newline.join(lines).encode(), Received()

    async def parts():
        rest = data
        for cut in [*cuts, len(data)]:
            yield rest[:cut]
            rest = rest[cut:]

    asyncio.run(received.follow(parts(), lambda: 1.0))
    assert (received.counts, received.ended) == ([2], True)


END = b"data: [DONE]"
USAGE = (
    b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": 7}}).encode()
)


@pytest.mark.parametrize(
    ("events", "times", "counts"),
    [
        pytest.param(
            [(1.0, event(output=1)), (2.0, event(output=4)), (3.0, event("", "length", 5))],
            (1.0, 2.0, 3.0), (1, 3, 1), id="counted along",
        ),
        pytest.param(
            [(1.0, event("a")), (2.0, event("b")), (2.0, event("c")), (2.0, event("", "stop"))],
            (1.0, 2.0), (1, 2), id="read together, so they came together",
        ),
        pytest.param(
            [(1.0, event("a")), (2.0, event("b")), (3.0, event("c", "stop")), (4.0, USAGE)],
            (1.0, 2.0, 3.0), (3, 2, 2), id="pieces are stretched to the server's count",
        ),
        pytest.param([(1.0, event("", "stop")), (1.2, END)], (9.0,), (0,), id="nothing"),
    ],
)  # fmt: skip
def test_as_many_tokens_as_the_server_says_at_the_times_they_were_seen(
    events, times, counts
):
    answer = answer_of(*events)
    assert (answer.times, answer.counts) == (times, counts)


@given(st.lists(st.integers(0, 5), min_size=1), st.integers(0, 60))
def test_a_spread_is_of_the_whole(counts, total):
    shares = spread(counts, total)
    assert (sum(shares), len(shares)) == (total, len(counts))
    assert min(shares) >= 0


def test_counters_add_up_over_engines_under_either_name_and_tell_nothing_when_they_went_back():
    text = 'vllm:num_preemptions_total{engine="0"} 1\nvllm:num_preemptions_total{engine="1"} 2'
    assert parse(text).total(metrics.PREEMPTIONS) == 3
    assert parse("vllm:num_preemptions 4 1700000000").total(metrics.PREEMPTIONS) == 4
    assert parse("vllm:num_preemptions_created 5").total(metrics.PREEMPTIONS) is None
    before, after = parse("vllm:num_preemptions 9"), parse("vllm:num_preemptions 1")
    pairs = [(before, after), (parse(""), after), (before, parse(""))]
    assert [metrics.counted(*pair, metrics.PREEMPTIONS) for pair in pairs] == [
        None,
        1,
        None,
    ]


NOW = "vllm:prefix_cache_queries_total {}\nvllm:prefix_cache_hits_total {}"
SOURCES = (
    NOW + "\nvllm:prompt_tokens_total {}\n"
    'vllm:prompt_tokens_by_source_total{{source="local_cache_hit"}} {}'
)


@pytest.mark.parametrize(
    ("text", "before", "after", "rate"),
    [
        pytest.param(NOW, (100, 50), (300, 100), 0.25, id="up to 0.15"),
        pytest.param(
            SOURCES, (0, 0, 0, 0), (900, 0, 100, 30), 0.3, id="waiting is not counted"
        ),
        pytest.param(NOW, (100, 50), (100, 50), None, id="nothing was looked up"),
    ],
)
def test_the_hit_rate_follows_the_names_of_the_release(text, before, after, rate):
    first, second = (parse(text.format(*counts)) for counts in (before, after))
    assert metrics.prefix_hit_rate(first, second) == rate


def test_the_kv_cache_of_all_engines():
    line = (
        'vllm:cache_config_info{{engine="{}",block_size="16",num_gpu_blocks="10",'
        'enable_prefix_caching="True",gpu_memory_utilization="0.9",kv_cache_size_tokens="150",'
        'kv_cache_max_concurrency="1.5"}} 1.0'
    )
    cache = metrics.kv_cache(parse(f"{line.format(0)}\n{line.format(1)}"), 100)
    assert (cache.tokens, cache.concurrency, cache.is_upper_bound) == (300, 3.0, False)
    facts = {"block_size": 16, "num_gpu_blocks": 10, "engines": 2}
    assert cache.engine == {
        **facts, "enable_prefix_caching": True, "gpu_memory_utilization": 0.9
    }  # fmt: skip


SHORT = Answer(sent=0.0, times=(1.0, 1.5, 2.5), counts=(1, 1, 2), cached=0)
LONG = Answer(sent=0.5, times=(3.0, 4.0), counts=(1, 1), cached=510)


@pytest.fixture
def made():
    steps = {
        "duration_s": [0.5, 0.5, 0.5, None],
        "prefill_tokens": [2_048, 2_048, 1_004, 0],
        "decode_requests": [0, 1, 1, 2],
        "chunks": {"r0.0": 1, "r0.1": 3},
        "preemptions": 2,
    }
    return figures_of([SHORT, LONG], WORKLOAD, steps)


def test_times_are_counted_from_the_moment_of_sending(made) -> None:
    assert (made.short.ttft_s.max, made.long.ttft_s.max, made.long.e2e_s.max) == (
        1.0,
        2.5,
        3.5,
    )
    assert made.makespan_s == 4.0  # from the first sent to the last token
    assert (made.input_tokens_per_s, made.output_tokens_per_s) == (5_100 / 4, 6 / 4)
    assert SHORT.gaps_s == [0.5, 0.5, 0.5]  # tokens that come together share the wait
    assert made.itl_s.max == 1.0


def test_steps_say_how_prompts_were_cut_and_what_was_cached(made) -> None:
    assert (made.steps, made.tokens_per_step) == (4, 1_276)
    assert (made.chunked_prompts, made.chunks_max, made.preemptions) == (1, 3, 2)
    assert made.prefix_hit_rate == pytest.approx(0.1)
    unknown = figures_of([Answer(sent=0.0, times=(1.0,), counts=(1,)), LONG], WORKLOAD)
    assert unknown.steps is unknown.chunked_prompts is unknown.prefix_hit_rate is None


def test_repeats_give_the_median_figure_by_figure(made) -> None:
    slower = figures_of(
        [Answer(sent=0.0, times=(9.0,), counts=(1,)), LONG], WORKLOAD, steps=None
    )
    merged = median_of([made, slower, made])
    assert merged.makespan_s == 4.0
    assert merged.steps == 4
    assert merged.short.ttft_s.max == 1.0


def test_the_distribution_has_every_percentile_of_all_answers() -> None:
    found = distribution_of([SHORT, LONG])
    assert len(found.ttft_s) == len(found.itl_s) == 101
    assert (found.ttft_s[0], found.ttft_s[50], found.ttft_s[100]) == (1.0, 1.75, 2.5)
    assert found.itl_s[100] == 1.0
    assert distribution_of([]) is None


def test_goodput_and_the_use_of_the_tightest_limit_are_those_of_the_answers() -> None:
    found = figures_of(
        [SHORT, LONG], WORKLOAD, slo=read_slo("ttft_p95=1s,itl_p99=0.6s")
    )
    assert found.goodput_per_s == 1 / 4  # the long one's first token took 2.5 s
    assert found.slo_use == max(found.ttft_s.p95 / 1, found.itl_s.p99 / 0.6)
    unlimited = figures_of([SHORT, LONG], WORKLOAD)
    assert unlimited.goodput_per_s is unlimited.slo_use is None
