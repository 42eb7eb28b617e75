"""What `recommend` says: one outcome, one sentence; what else holds, another."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.note import note
from chunkscope.planning.plan import AdviceKind, Basis, Reason, Refused, Saving
from chunkscope.report.blocks import Details, Facts, Headline, Notes, Table, Text
from chunkscope.report.plan import (
    answer,
    facts,
    flags,
    headline,
    plan_blocks,
    saving_text,
    setup_sentence,
    tried_name,
)
from chunkscope.simulation.outputs import DatasetOutput, OutputLengths, OutputOrigin
from chunkscope.simulation.slo import read_slo
from chunkscope.vllm.enums import Mode
from chunkscope.vllm.settings import OWN, Settings
from tests import build
from tests.report import plans
from tests.report.plans import KEEP, growing, limited, simulated

LIMIT = "itl_p99=50ms"


def requesting(plan, **more):
    return replace(plan, request=replace(plan.request, **more))


# -- the answer ------------------------------------------------------------------------


def test_where_nothing_is_faster_the_defaults_stay():
    assert answer(plans.plan(KEEP, simulated())) == [
        "Keep vLLM's defaults: no other setting is more than 3 % faster (simulated)."
    ]


def test_a_gain_that_is_in_doubt_is_named_with_its_doubt():
    doubtful = replace(
        KEEP,
        gain=0.2,
        least_gain=-0.02,
        doubt="longer_prompts",
        alternative=plans.setting(512),
    )

    assert answer(plans.plan(doubtful, simulated())) == [
        "Keep vLLM's defaults: max_num_seqs 512 gives +20 % throughput, but -2 % with "
        "prompts 10 % longer (simulated)."
    ]


def test_a_setting_that_pays_is_named_with_its_gain_and_the_default():
    made = plans.advised(512, simulated(), simulated("best", 8.0))

    assert answer(made) == [
        "Set max_num_seqs 512 instead of 1,024: 20 % more throughput than vLLM's "
        "default (simulated)."
    ]


def test_the_least_gain_is_a_sentence_of_its_own():
    made = plans.advised(
        512,
        simulated(),
        simulated("best", 8.0),
        doubt="longer_prompts",
        least_gain=0.073,
    )

    assert answer(made)[1] == "With prompts 10 % longer it is +7.3 %."


def test_what_vllm_needs_to_start_is_a_sentence_of_its_own():
    needed = replace(KEEP, needed=Settings(max_model_len=27_136))

    assert answer(plans.plan(needed, simulated()))[1] == (
        "vLLM needs max_model_len 27,136 to start."
    )


def test_a_longest_gap_that_grows_is_the_price_and_has_one_digit():
    made = plans.advised(
        512,
        simulated(longest_gap_s=0.233),
        simulated("best", 8.0, longest_gap_s=5.15),
    )

    assert answer(made)[-1] == (
        "The longest gap between tokens grows from about 200 ms to about 5 s."
    )


def test_for_those_who_stream_a_smoother_setting_at_no_cost_is_named():
    smoother = replace(KEEP, alternative=Settings(max_num_batched_tokens=2_048))
    made = plans.plan(
        smoother,
        simulated(longest_gap_s=9.97),
        simulated("best", 9.9, longest_gap_s=0.984),
    )

    assert answer(made)[-1] == (
        "If you stream answers, set max_num_batched_tokens 2,048: at no cost in time, "
        "the longest gap between tokens is about 1 s instead of about 10 s."
    )


@pytest.mark.parametrize(
    ("makespan_s", "longest_gap_s"),
    [
        pytest.param(10.1, 1.0, id="it costs time"),
        pytest.param(9.9, 6.0, id="the gap is not halved"),
    ],
)
def test_a_smoother_setting_that_costs_or_brings_little_is_not_named(
    makespan_s, longest_gap_s
):
    smoother = replace(KEEP, alternative=Settings(max_num_batched_tokens=2_048))
    other = simulated("best", makespan_s, longest_gap_s=longest_gap_s)

    made = plans.plan(smoother, simulated(longest_gap_s=10.0), other)

    assert "stream" not in headline(made)


def test_prompts_that_do_not_fit_come_first():
    refused = note("prompts_refused", count=20, of=70, context=8_192, room=7_936)

    made = plans.plan(KEEP, simulated(), notes=(refused,))

    assert headline(made).startswith("20 of 70 prompts do not fit. Keep vLLM's")
    assert "leaves 7,936 tokens for the prompt" in texts(made)


def test_without_a_gpu_the_lengths_answer_and_the_missing_option_is_named():
    by_length = replace(
        KEEP,
        kind=AdviceKind.SET,
        basis=Basis.LENGTHS,
        settings=Settings(long_prefill_token_threshold=2_303),
    )
    made = plans.plan(by_length)
    made = replace(made, deployment=replace(made.deployment, gpu=None))

    assert answer(made) == [
        "By the lengths of the prompts alone: set long_prefill_token_threshold 2,303.",
        "To simulate settings takes --model and a --gpu whose speed is known.",
    ]


def test_a_forced_mode_is_called_by_its_option():
    forced = replace(
        KEEP,
        kind=AdviceKind.SET,
        basis=Basis.MODE,
        settings=Settings(enable_chunked_prefill=False),
        needed=Settings(max_model_len=768),
    )
    own = build.plan(build.SHORT).deployment.complete(
        forced.settings.over(forced.needed)
    )
    rule = simulated("length-rule", 12.0, settings=own)
    made = requesting(plans.plan(forced, simulated(), rule), mode=Mode.OFF)

    assert answer(made) == [
        "Set enable_chunked_prefill False instead of True, as --mode off asks.",
        "That needs max_model_len 768.",
        "It has 17 % less throughput than vLLM's default (simulated).",
    ]
    assert tried_name(made, rule) == "--mode off"


def test_no_table_calls_a_forced_mode_the_length_rule():
    reason = Reason(argument="enable_chunked_prefill", code="why_length_rule")
    made = requesting(plans.plan(KEEP, reasons=(reason,)), mode=Mode.OFF)
    made = replace(made, decision=replace(made.decision, forced=True))

    why = details(made)["Why"].rows[0][-1].text

    assert why == "as --mode off asks"


# -- with limits -----------------------------------------------------------------------


def test_limits_that_are_kept_by_default_need_no_setting():
    made = plans.plan(KEEP, limited(simulated(), 0.031, LIMIT))
    made = requesting(made, slo=read_slo(LIMIT))

    assert answer(made) == [
        "Keep vLLM's defaults: itl_p99 is 31.0 ms, within the limit of 50.0 ms "
        "(simulated)."
    ]


def test_a_setting_for_a_limit_is_named_with_what_the_default_does():
    made = plans.advised(
        512,
        limited(simulated(), 0.2, LIMIT),
        limited(simulated("best"), 0.031, LIMIT),
    )
    made = requesting(made, slo=read_slo(LIMIT))

    assert answer(made) == [
        "Set max_num_seqs 512 instead of 1,024: itl_p99 is 31.0 ms, within the limit "
        "of 50.0 ms (simulated).",
        "It has 20 % more throughput than vLLM's default.",
        "With vLLM's default, itl_p99 is 200 ms, over the limit of 50.0 ms.",
    ]


def broken(**advice):
    none = replace(KEEP, kind=AdviceKind.NO_SETTING, gain=None, **advice)
    made = plans.plan(none, growing(limited(simulated(), 0.2, LIMIT)))
    return requesting(made, slo=read_slo(LIMIT), arrivals="20/s")


def test_limits_that_nothing_keeps_come_with_the_rate_that_does():
    assert answer(broken(rate=7.55, gpus=3)) == [
        "No setting that was tried keeps itl_p99 50.0 ms at 20/s.",
        "With vLLM's default, requests come faster than they are served (simulated).",
        "A rate of about 7.55/s would keep them.",
        "20/s needs about 3 GPUs.",
    ]


def test_limits_that_no_rate_keeps_say_so():
    assert answer(broken())[1:] == [
        "With vLLM's default, itl_p99 is 200 ms, over the limit of 50.0 ms "
        "(simulated).",
        "No lower rate helps.",
    ]


def test_where_limits_are_broken_no_flags_are_shown():
    assert flags(replace(broken(), settings=plans.setting(8))) == ""


# -- what it rests on ------------------------------------------------------------------


def test_without_a_model_it_is_planned_for_any():
    made = plans.plan(KEEP, memory=None, cost=None)
    made = replace(made, deployment=replace(made.deployment, shape=None))

    assert setup_sentence(made).startswith("Planned for any model, vLLM 0.24.0, 50 ")


def outputs(*made: tuple[OutputOrigin, int]):
    return tuple(
        DatasetOutput(name=str(place), tokens=tokens, origin=origin)
        for place, (origin, tokens) in enumerate(made)
    )


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        pytest.param(
            outputs((OutputOrigin.ASSUMED, 256)),
            "256 output tokens each (assumed; --output)",
            id="assumed",
        ),
        pytest.param(
            outputs((OutputOrigin.SCORED, 1)),
            "1 output token each (scored)",
            id="likelihoods",
        ),
        pytest.param(
            outputs((OutputOrigin.ASKED, 5), (OutputOrigin.ASKED, 9)),
            "5 to 9 output tokens each (as asked)",
            id="by dataset",
        ),
        pytest.param(
            outputs((OutputOrigin.DATA, 1_500)),
            "at most 1,500 output tokens each (from the data)",
            id="from the data",
        ),
    ],
)
def test_the_setup_says_how_long_answers_are_and_how_that_is_known(lengths, text):
    made = plans.plan(KEEP, outputs=lengths)

    assert setup_sentence(made).endswith(f", {text}.")


def test_answers_of_a_distribution_have_two_figures():
    asked = DatasetOutput(
        name="a",
        tokens=32_000,
        origin=OutputOrigin.ASKED,
        asked=OutputLengths(p50=9_000, p95=32_000),
    )

    assert "p50 9,000 and p95 32,000 output tokens each" in setup_sentence(
        plans.plan(KEEP, outputs=(asked,))
    )


def fact(plan, label: str):
    """Value and remark of a fact, or None."""
    for one in facts(plan):
        if one.label == label:
            return one.value, one.remark
    return None


def test_a_time_has_its_range_and_what_that_depends_on():
    made = plans.plan(KEEP, cost=plans.cost())

    assert fact(made, "time") == (
        "60.0 min",
        "30.0 to 120 min, depending on CPU overhead, prompt lengths, answer lengths "
        "and prediction error",
    )


def test_answers_of_unknown_length_are_the_main_reason_of_a_range():
    made = plans.plan(KEEP, cost=plans.cost(hours_per_1000_output_tokens=3.0))

    assert fact(made, "time")[1].endswith(
        "mostly because nobody knows how long the answers are"
    )
    assert fact(made, "longer answers") == (
        "+ 3.00 h",
        "per 1,000 more tokens an answer",
    )


@pytest.mark.parametrize(
    ("per_hour", "value", "remark"),
    [
        pytest.param(3.5, "3.50", "1.75 to 7.00", id="hours"),
        pytest.param(0.02, "0.02", "0.01 to 0.04", id="a hundredth"),
        pytest.param(0.003, "0.003", "0.0015 to 0.006", id="less than a hundredth"),
    ],
)
def test_a_small_price_keeps_its_digits(per_hour, value, remark):
    made = requesting(plans.plan(KEEP, cost=plans.cost()), price_per_hour=per_hour)

    assert fact(made, "price") == (value, remark)


def test_prompts_at_once_are_advised_only_where_nobody_said_how_many():
    answer = replace(plans.AGENTS, unit="requests")
    free = plans.plan(KEEP, simulated(), concurrency=answer)
    asked = replace(free, concurrency=replace(answer, client=4))

    assert fact(free, "concurrency")[0] == "8"
    assert fact(asked, "concurrency") is None


def test_a_saving_is_its_sentence_and_what_it_saves():
    saving = Saving(
        code="few_in_flight",
        values={"concurrency": 8, "enough": 218},
        tokens=9_000,
        hours=0.05,
        simulated=True,
    )

    assert saving_text(saving) == (
        "The client sends 8 requests at once. Send 218 (lm-eval: num_concurrent or "
        "--batch_size, Inspect: --max-connections). That saves about 9,000 prompt "
        "tokens and 3.00 min (simulated)."
    )


# -- blocks ----------------------------------------------------------------------------


def texts(plan) -> str:
    return " ".join(
        block.text for block in plan_blocks(plan) if isinstance(block, Text)
    )


def details(plan) -> dict[str, Table]:
    return {
        block.title: block.blocks[0]
        for block in plan_blocks(plan)
        if isinstance(block, Details)
    }


def test_the_answer_comes_first_then_the_figures():
    kinds = [type(block) for block in plan_blocks(plans.plan(KEEP, simulated()))]

    assert kinds[:3] == [Headline, Facts, Text]


def test_how_near_predictions_came_is_a_detail():
    doubt = note(
        "unlike_measured",
        kind=None,
        gpu="NVIDIA L4",
        gpus=None,
        nearest="a dense model",
        least=-0.18,
        most=0.06,
    )

    made = plans.plan(KEEP, simulated(), notes=(doubt,))

    assert "(not validated)" in setup_sentence(made)
    assert details(made)["How sure the times are"] == Notes(
        (
            "Not validated: NVIDIA L4. On an H200, predicted times of dense models "
            "were 18 % too short to 6 % too long.",
        )
    )


def test_a_table_of_a_part_of_the_requests_says_so():
    part = simulated(requests=40)
    all_of_them = Refused(prompts=0, of=850, room_tokens=9_000)

    made = plans.plan(KEEP, part, refused=all_of_them)

    notes = [block for block in plan_blocks(made) if isinstance(block, Notes)]
    assert notes[0].notes[0] == "The table shows a sample: 40 of 850 requests."


def test_the_datasets_have_no_column_of_times_that_are_not_known():
    assert "time" not in details(plans.plan(KEEP, cost=None))["Each dataset"].headings
    assert (
        "time" in details(plans.plan(KEEP, cost=plans.cost()))["Each dataset"].headings
    )


def test_a_plan_that_sets_nothing_shows_no_flags():
    assert flags(plans.plan(replace(KEEP, settings=OWN))) == ""
