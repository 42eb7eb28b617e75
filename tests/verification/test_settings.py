"""Which rows there are, and which of them are one."""

from dataclasses import replace

import pytest

from chunkscope.errors import UsageError
from chunkscope.verification.settings import parse_engine_args, parse_point, rows_of
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.build import MIXED, SHORT, plan, plan_that_sets

V24 = release("0.24.0")


def rows(planned, *, against=("default", "off"), installed=V24, **more):
    return rows_of(planned, installed, against=against, **more)


def test_every_row_is_the_same_engine_but_for_what_is_compared() -> None:
    """Bugs 6 and 7: rows lost expert parallelism, the KV cache's type or the context."""
    common = {
        "max_model_len": 4_352,
        "tensor_parallel_size": 2,
        "enable_expert_parallel": True,
        "kv_cache_dtype": "fp8",
    }
    moe = plan(MIXED, model="qwen3-30b-a3b", tp=2, ep=True, kv_cache_dtype="fp8")
    against = ("default", "off", "length-rule")
    for row in rows(moe, against=against, also=["max-num-seqs=8"]):
        given = row.settings.given()
        assert {name: given.get(name) for name in common} == common, row.name


def test_the_plan_comes_first_then_what_it_is_compared_to() -> None:
    also = "max-num-batched-tokens=4096"
    planned, default, off, point = rows(plan(MIXED), also=[also])
    assert [row.name for row in (planned, default, off, point)] == ["plan", "default", "off", also]
    assert set(default.settings.given()) == {"max_model_len"}
    assert off.settings == replace(default.settings, enable_chunked_prefill=False)
    assert point.settings == replace(default.settings, max_num_batched_tokens=4_096)


def test_names_for_the_same_settings_are_measured_once() -> None:
    planned = plan([32_000], model="qwen2.5-7b-instruct")
    (row,) = rows(planned, against=("default", "length-rule"))
    assert (row.name, row.same_as) == ("plan", ("default", "length-rule"))
    assert row.settings == Settings()
    also = ["max-num-seqs=8", "max_num_seqs=8"]
    (_, point) = rows(plan(MIXED), against=(), also=also)
    assert (point.name, point.same_as) == (also[0], (also[1],))


def test_a_plan_that_switches_chunking_off_is_the_row_off() -> None:
    first, default = rows(plan(SHORT))
    assert (first.name, first.same_as, default.name) == ("plan", ("off",), "default")


def test_a_row_that_does_not_take_the_longest_request_is_refused() -> None:
    planned = plan_that_sets(MIXED, given={"max_model_len": 4_608})
    assert {row.refused for row in rows(planned, longest=4_608)} == {None}
    (row, *_) = rows(planned, longest=5_000)
    assert (row.refused.code, row.refused.values["longest"]) == ("context_too_short", 5_000)


def test_off_is_refused_where_vllm_ignores_it() -> None:
    off = rows(plan(MIXED), against=["off"], installed=release("0.10.2"))[1]
    assert off.refused.code == "off_is_ignored"


def test_an_unknown_name_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'of'") as error:
        rows(plan(MIXED), against=["of"])
    assert "default, off, length-rule" in error.value.hint


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("max-num-batched-tokens=4096", {"max_num_batched_tokens": 4096}),
        ("--max-num-seqs=8,gpu-memory-utilization=0.5",
         {"max_num_seqs": 8, "gpu_memory_utilization": 0.5}),
        ("enable-chunked-prefill=false", {"enable_chunked_prefill": False}),
        ("kv-cache-dtype=fp8", {"kv_cache_dtype": "fp8"}),  # bug 8: "that is not a number"
    ],
)  # fmt: skip
def test_points_the_user_adds(text, given) -> None:
    assert parse_point(text).given() == given


@pytest.mark.parametrize(
    "text",
    ["max-num-batched-tokens", "max-batched-tokens=4", "max-num-seqs=many", "max-num-seqs=true",
     "enable-chunked-prefill=perhaps", "max-num-partial-prefills=2", "kv-cache-dtype=8", ""],
)  # fmt: skip
def test_what_is_no_argument_is_refused(text) -> None:
    with pytest.raises(UsageError, match="--also"):
        parse_point(text)


def test_engine_arguments_are_json_where_they_are() -> None:
    parsed = parse_engine_args(["--dtype=float32", "max-logprobs=5", 'hf-overrides={"a": 1}'])
    assert parsed == {"dtype": "float32", "max_logprobs": 5, "hf_overrides": {"a": 1}}
    with pytest.raises(UsageError, match="--engine-arg"):
        parse_engine_args(["dtype"])
