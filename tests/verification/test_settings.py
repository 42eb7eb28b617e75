"""Which rows there are, and which of them are one."""

from dataclasses import replace

import pytest

from chunkscope.errors import UsageError
from chunkscope.verification.settings import parse_engine_args, parse_point, settings_of
from chunkscope.vllm.enums import Mode
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.build import MIXED, SHORT, advised, profile
from tests.build import plan as make_plan

V24 = release("0.24.0")


def rows(lengths, *, against=("default", "off"), also=(), installed=V24, **options):
    made = make_plan(lengths, **options)
    return settings_of(made, profile(data=lengths), installed, against=against, also=also)


def test_the_plan_comes_first_then_what_it_is_compared_to() -> None:
    found = rows(MIXED, also=["max-num-batched-tokens=4096"])
    assert [row.name for row in found] == ["plan", "default", "off", "max-num-batched-tokens=4096"]


def test_every_row_takes_requests_of_the_same_length() -> None:
    found = rows(MIXED, also=["max-num-seqs=8"])
    assert len({row.settings.max_model_len for row in found}) == 1


def test_default_sets_nothing_else() -> None:
    _, default, off = rows(MIXED)
    assert set(default.settings.given()) == {"max_model_len"}
    assert off.settings == replace(default.settings, enable_chunked_prefill=False)


def test_a_plan_that_is_vllms_default_is_measured_once() -> None:
    (row,) = rows([32_000], against=("default",), model="qwen2.5-7b-instruct")
    assert (row.name, row.same_as, row.settings) == ("plan", ("default",), Settings())


def test_points_that_say_the_same_are_measured_once() -> None:
    also = ["max-num-seqs=8", "max_num_seqs=8"]
    (_, row) = rows(MIXED, against=(), also=also)
    assert (row.name, row.same_as) == (also[0], (also[1],))


def test_a_plan_that_switches_chunking_off_is_the_row_off() -> None:
    found = rows(SHORT)
    assert (found[0].name, found[0].same_as) == ("plan", ("off",))
    assert [row.name for row in found[1:]] == ["default"]


def test_other_modes_are_what_recommend_says_of_them() -> None:
    (plan, row) = rows(MIXED, against=["aggressive"])
    forced = make_plan(MIXED, mode=Mode.AGGRESSIVE)
    assert row.settings.long_prefill_token_threshold == forced.threshold
    assert plan.settings != row.settings


def test_what_the_length_policy_says_is_a_row_where_it_differs() -> None:
    made = advised(MIXED)
    assert not made.settings.long_prefill_token_threshold
    found = settings_of(made, profile(data=MIXED), V24, against=["default", "length-policy"])
    assert [row.name for row in found][-1] == "length-policy"
    assert found[-1].settings.long_prefill_token_threshold == made.decision.threshold
    assert found[-1].settings == made.rule.over(found[1].settings)


@pytest.mark.parametrize("advice", [make_plan, advised], ids=["by lengths", "by evidence"])
def test_the_length_policy_shares_a_row_with_what_sets_the_same(advice) -> None:
    """Prompts of one length: the budget ends a chunk before a threshold could."""
    made = advice([32_000], model="qwen2.5-7b-instruct")
    against = ["default", "length-policy"]
    (row,) = settings_of(made, profile(data=[32_000]), V24, against=against)
    assert row.same_as == ("default", "length-policy")


def test_a_plan_of_a_version_that_kept_no_rule_was_made_by_it() -> None:
    made = replace(make_plan(MIXED), rule=None)
    (row,) = settings_of(made, profile(data=MIXED), V24, against=["length-policy"])
    assert row.same_as == ("length-policy",)


def test_a_row_that_does_not_take_the_longest_request_is_impossible() -> None:
    """The length policy switches off what is short, with a context of no more than that."""
    made = advised(SHORT)
    against = {"against": ["length-policy"], "longest": 5_000}
    plan, rule = settings_of(made, profile(data=SHORT), V24, **against)
    assert plan.impossible is None
    assert rule.settings.enable_chunked_prefill is False
    assert rule.impossible == "its max_model_len is 768, and the longest request has 5,000 tokens"


def test_off_is_impossible_where_vllm_ignores_it() -> None:
    off = rows(MIXED, against=["off"], installed=release("0.10.2"))[1]
    assert "ignores chunked prefill off" in off.impossible


def test_an_unknown_name_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no such setting") as error:
        rows(MIXED, against=["of"])
    assert "default, off, length-policy, conservative, aggressive" in error.value.hint


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("max-num-batched-tokens=4096", {"max_num_batched_tokens": 4096}),
        ("max_num_seqs=8", {"max_num_seqs": 8}),
        ("--max-num-seqs=8,gpu-memory-utilization=0.5",
         {"max_num_seqs": 8, "gpu_memory_utilization": 0.5}),
        ("enable-chunked-prefill=false", {"enable_chunked_prefill": False}),
    ],
)  # fmt: skip
def test_points_of_the_users_own(text, args) -> None:
    assert parse_point(text).given() == args


@pytest.mark.parametrize(
    "text",
    ["max-num-batched-tokens", "max-batched-tokens=4", "max-num-seqs=many", "x=1",
     "enable-chunked-prefill=perhaps", "max-num-partial-prefills=2"],
)  # fmt: skip
def test_what_is_no_argument_is_refused(text) -> None:
    with pytest.raises(UsageError, match="--also"):
        parse_point(text)


def test_engine_arguments_are_json_where_they_are() -> None:
    found = parse_engine_args(["--dtype=float32", "max-logprobs=5", 'hf-overrides={"a": 1}'])
    assert found == {"dtype": "float32", "max_logprobs": 5, "hf_overrides": {"a": 1}}


@pytest.mark.parametrize("text", ["dtype", "", "=3"])
def test_an_engine_argument_without_a_value_is_refused(text) -> None:
    with pytest.raises(UsageError, match="has no value"):
        parse_engine_args([text])
