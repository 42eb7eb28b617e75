"""Which settings are compared: the rows, and what the user adds."""

from dataclasses import replace

import pytest

from chunkscope.errors import UsageError
from chunkscope.verification.settings import (
    check_room,
    parse_engine_args,
    parse_point,
    rows_of,
)
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.build import MIXED, plan, plan_that_sets

BOTH = ("default", "off")
V24 = release("0.24.0")


def test_every_row_is_the_same_engine_but_for_what_is_compared():
    """Rows once lost expert parallelism, the KV cache's type or the context."""
    common = {
        "max_model_len": 4_352,
        "tensor_parallel_size": 2,
        "enable_expert_parallel": True,
        "kv_cache_dtype": "fp8",
    }
    experts = plan(MIXED, model="qwen3-30b-a3b", tp=2, ep=True, kv_cache_dtype="fp8")
    against = ("default", "off", "length-rule")
    for row in rows_of(experts, against, ["max-num-seqs=8"]):
        given = row.settings.given()
        assert {name: given.get(name) for name in common} == common, row.name


def test_the_plan_comes_first_then_what_it_is_compared_to():
    also = "max-num-batched-tokens=4096"
    rows = rows_of(plan(MIXED), BOTH, [also])
    assert [row.name for row in rows] == ["plan", "default", "off", also]
    default, off, point = (row.settings for row in rows[1:])
    assert set(default.given()) == {"max_model_len"}
    assert off == replace(default, enable_chunked_prefill=False)
    assert point == replace(default, max_num_batched_tokens=4_096)


def test_a_plan_that_is_the_default_and_the_rule_is_measured_once():
    planned = plan([32_000], model="qwen2.5-7b-instruct")
    (row,) = rows_of(planned, ("default", "length-rule"))
    assert (row.name, row.same_as) == ("plan", ("default", "length-rule"))
    assert row.settings == Settings()


def test_a_plan_that_switches_chunking_off_is_what_off_asks_for():
    off, default = rows_of(plan([100]), BOTH)
    assert (off.name, off.same_as, default.name) == ("plan", ("off",), "default")


def test_two_names_for_one_point_share_a_row():
    also = ["max-num-seqs=8", "max_num_seqs=8"]
    _, point = rows_of(plan(MIXED), (), also)
    assert (point.name, point.same_as) == (also[0], (also[1],))


def test_a_wrong_word_names_the_right_ones():
    with pytest.raises(UsageError, match="rule") as raised:
        rows_of(plan(MIXED), ["rule"])
    assert "length-rule" in raised.value.hint


def test_a_row_that_does_not_take_the_longest_request_is_an_error():
    planned = plan_that_sets(MIXED, given={"max_model_len": 4_608})
    rows = rows_of(planned, BOTH)
    check_room(rows, longest=4_608)
    with pytest.raises(UsageError, match="4,609 tokens"):
        check_room(rows, longest=4_609)


@pytest.mark.parametrize(
    "text",
    [
        "max-num-batched-tokens",
        "max-batched-tokens=4",
        "max-num-seqs=many",
        "max-num-seqs=true",
        "max-num-seqs=0",
        "enable-chunked-prefill=perhaps",
        "max-num-partial-prefills=2",
        "kv-cache-dtype=8",
        "",
    ],
)
def test_what_is_no_argument_is_refused(text):
    with pytest.raises(UsageError, match="--also"):
        parse_point(text)


def test_a_point_may_set_several_arguments():
    point = parse_point("--gpu-memory-utilization=0.5,enable-chunked-prefill=false")
    assert point.given() == {
        "gpu_memory_utilization": 0.5,
        "enable_chunked_prefill": False,
    }


def test_engine_arguments_are_json_where_they_are():
    texts = ["--dtype=float32", "max-logprobs=5", 'hf-overrides={"a": 1}']
    assert parse_engine_args(texts) == {
        "dtype": "float32",
        "max_logprobs": 5,
        "hf_overrides": {"a": 1},
    }
