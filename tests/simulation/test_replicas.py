"""Data parallel: replicas with a scheduler, a KV cache and a prefix cache of their own."""

import random
from dataclasses import replace

import pytest

from chunkscope.hardware.step_time import StepModel
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.workload import Request, with_shared_prefix
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import EngineArgs

STEP = StepModel(
    fixed_s=1.0, per_token_s=0.01, per_prefill_pair_s=0.0, per_decode_context_s=1e-4, origin="test"
)
ARGS = EngineArgs(max_num_batched_tokens=256, max_num_seqs=8, kv_cache_tokens=16_000)
TWO = replace(ARGS, data_parallel_size=2)


def asked(*requests: Request, **more) -> Scenario:
    return Scenario(**{"requests": requests, "rules": Rules(), "step": STEP, **more})


def some(count: int, seed: int = 0, pause: float = 0.0) -> tuple[Request, ...]:
    chance, now, made = random.Random(seed), 0.0, []
    for _ in range(count):
        tokens = {"prompt_tokens": chance.randint(1, 900), "output_tokens": chance.randint(1, 60)}
        made.append(Request(**tokens, arrival_s=now))
        now += chance.expovariate(1 / pause) if pause else 0.0
    return tuple(made)


def test_what_is_sent_at_once_goes_to_each_in_turn():
    requests = some(30)
    both = run_setting(asked(*requests), TWO)
    halves = [run_setting(asked(*requests[n::2]), ARGS) for n in (0, 1)]
    assert both.figures.makespan_s == max(half.figures.makespan_s for half in halves)
    assert both.figures.steps == sum(half.figures.steps for half in halves)
    assert both.most_running == sum(half.most_running or 0 for half in halves)
    assert both.requests == 30


def test_each_reads_what_all_prompts_share_for_itself():
    requests, stretches = with_shared_prefix(
        [Request(prompt_tokens=200, output_tokens=2, arrival_s=100.0 * n) for n in range(10)], 160
    )
    one = run_setting(asked(*requests, stretches=stretches), ARGS)
    two = run_setting(asked(*requests, stretches=stretches), TWO)
    assert one.cached_tokens == 9 * 160
    assert two.cached_tokens == 8 * 160


@pytest.mark.parametrize("pause", [0.0, 0.5, 8.0])
@pytest.mark.parametrize("lag", [False, True])
def test_the_fast_scheduler_gives_the_same_times(pause, lag):
    """Replicas are stopped wherever a request comes: that must not show."""
    args = replace(TWO, async_scheduling=lag, kv_cache_tokens=3_000)
    c = asked(*some(40, pause=pause))
    fast, plain = run_setting(c, args), run_setting(c, args, fast=False)
    assert fast.figures.makespan_s == pytest.approx(plain.figures.makespan_s)
    assert fast.figures.ttft_s.p95 == pytest.approx(plain.figures.ttft_s.p95)
    assert fast.figures.preemptions == plain.figures.preemptions


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_a_closed_loop_keeps_so_many_under_way_on_all_of_them(concurrency):
    run = run_setting(asked(*some(30), concurrency=concurrency), TWO)
    assert run.most_running is not None
    assert run.most_running <= concurrency + 1, "one in each, though not at the same time"
    if concurrency == 1:
        alone = run_setting(asked(*some(30), concurrency=1), ARGS)
        assert run.figures.makespan_s == pytest.approx(alone.figures.makespan_s)
        assert run.figures.ttft_s == alone.figures.ttft_s


def test_twice_the_replicas_take_about_half_the_time():
    one, four = (
        run_setting(asked(*some(200)), replace(ARGS, data_parallel_size=n)).figures.makespan_s
        for n in (1, 4)
    )
    assert 3 < one / four < 5
