"""The examples of section 3 of the notes on vLLM, each run there on the real schedulers."""

from typing import Any

import pytest

from chunkscope.vllm.flags import release
from chunkscope.vllm.rules import Rules
from tests.simulation.twin import trace

OLD, MIDDLE, GATED, NEW = "0.11.2", "0.16.0", "0.28.0", "0.32.0"
EVERY = ["0.10.2", OLD, MIDDLE, "0.20.0", "0.24.0", GATED, NEW]


def rules(version: str) -> Rules:
    return release(version).rules


def asked(*lengths: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"prompt": prompt, "output": output} for prompt, output in lengths]


def begun_alike(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [request | {"stretch": 0} for request in requests]


def engine(**more: Any) -> dict[str, Any]:
    return {"max_num_batched_tokens": 256, "max_num_seqs": 8, "enable_prefix_caching": False} | more


def totals(steps: list[dict[str, Any]]) -> list[int]:
    return [sum(step["tokens"].values()) for step in steps]


@pytest.mark.parametrize("version", EVERY)
def test_the_budget_is_filled_and_decodes_come_first(version):
    steps = trace(asked((1000, 4), (300, 4), (50, 4)), engine(), rules=rules(version))
    assert totals(steps) == [256, 256, 256, 256, 256, 72, 3, 2, 2]
    assert steps[4]["tokens"] == {0: 1, 1: 255}
    assert steps[5]["tokens"] == {0: 1, 1: 21, 2: 50}


@pytest.mark.parametrize("version", EVERY)
def test_a_threshold_wastes_budget_when_few_are_there(version):
    few = asked((300, 1), (300, 1), (50, 3))
    steps = trace(few, engine(long_prefill_token_threshold=64), rules=rules(version))
    assert totals(steps) == [178, 129, 129, 128, 88]


@pytest.mark.parametrize(
    ("version", "expected"),
    [(OLD, [64, 64, 64, 64, 44]), (GATED, [64] * 4 + [44]), (NEW, [256, 44])],
)
def test_a_lone_prompt_is_capped_until_0_31(version, expected):
    capped = engine(long_prefill_token_threshold=64)
    assert totals(trace(asked((300, 1)), capped, rules=rules(version))) == expected


def test_the_adaptive_threshold_shares_the_budget_out():
    both = engine(long_prefill_token_threshold=16, long_prefill_token_threshold_adaptive=True)
    steps = trace(asked((500, 1), (500, 1)), both, rules=rules(NEW))
    assert steps[0]["tokens"] == {0: 128, 1: 128}


def test_fewer_are_admitted_than_there_are_places():
    steps = trace(asked((10, 3), (10, 3), (10, 1)), engine(max_num_active_seqs=2), rules=rules(NEW))
    assert [sorted(step["tokens"]) for step in steps] == [[0, 1], [0, 1], [0, 1], [2]]


@pytest.mark.parametrize(
    ("version", "first"), [(OLD, {0: 60, 2: 30}), (MIDDLE, {0: 60}), (NEW, {0: 60})]
)
def test_unchunked_a_prompt_over_the_budget_stops_the_queue_since_0_12(version, first):
    off = engine(max_num_batched_tokens=100, enable_chunked_prefill=False)
    steps = trace(asked((60, 1), (80, 1), (30, 1)), off, rules=rules(version))
    assert steps[0]["tokens"] == first
    assert sum(totals(steps)) == 170


@pytest.mark.parametrize(
    ("version", "caching", "expected"),
    [(OLD, True, [64, 36]), (OLD, False, [100]), ("0.10.2", False, [64, 36])]
    + [(version, False, [64, 36]) for version in (MIDDLE, GATED)],
)
def test_unchunked_with_a_threshold_still_chunks(version, caching, expected):
    """But 0.11.1 and 0.11.2 drop the threshold along with chunking, unless prefixes are cached."""
    off = engine(enable_chunked_prefill=False, long_prefill_token_threshold=64)
    off["enable_prefix_caching"] = caching
    assert totals(trace(asked((100, 1)), off, rules=rules(version))) == expected


def test_unchunked_the_prompts_that_0_11_skips_come_back_in_reverse():
    off = engine(max_num_batched_tokens=100, enable_chunked_prefill=False)
    steps = trace(asked((90, 1), (80, 1), (70, 1), (60, 1)), off, rules=rules(OLD))
    assert [list(step["tokens"]) for step in steps] == [[0], [3], [1], [2]]


@pytest.mark.parametrize("version", ["0.20.0", "0.24.0", GATED, NEW])
def test_admitted_prompts_are_not_reserved_for_so_one_is_preempted(version):
    """Two prompts of 400, 40 blocks, threshold 32: both pass the gate, one gives way at step 10."""
    tight = engine(long_prefill_token_threshold=32, num_blocks=40)
    steps = trace(asked((400, 1), (400, 1)), tight, rules=rules(version))
    assert [n for n, step in enumerate(steps) if step["preempted"]] == [9]
    assert steps[9]["preempted"] == [1]


@pytest.mark.parametrize(
    ("version", "preempted"), [(MIDDLE, True), (GATED, False)], ids=["admitted", "made to wait"]
)
def test_a_prompt_that_does_not_fit_whole_waits_since_0_19(version, preempted):
    steps = trace(asked((400, 20), (400, 1)), engine(num_blocks=40), rules=rules(version))
    assert any(step["preempted"] for step in steps) is preempted
    assert (1 in steps[1]["tokens"]) is preempted


@pytest.mark.parametrize("version", EVERY)
def test_a_prefix_is_found_within_the_same_step(version):
    steps = trace(
        begun_alike(asked((160, 1), (160, 1), (128, 1))),
        engine(max_num_batched_tokens=1_000, enable_prefix_caching=True),
        rules=rules(version),
        stretches=[{"parent": -1, "tokens": 128}],
    )
    assert steps[0]["tokens"] == {0: 160, 1: 32, 2: 16}


def test_async_scheduling_holds_a_finished_request_for_one_step_more():
    alone = engine(max_num_seqs=1)
    requests = asked((10, 2), (10, 1))
    assert totals(trace(requests, alone, rules=rules(GATED))) == [10, 1, 10]
    late = trace(requests, {**alone, "async_scheduling": True}, rules=rules(GATED))
    assert totals(late) == [10, 1, 10], "the step between is empty"
