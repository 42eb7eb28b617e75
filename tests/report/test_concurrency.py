"""How many samples at once: what is advised, and what more would do."""

from dataclasses import replace

import pytest

from chunkscope.planning.plan import KneeChange
from chunkscope.report.blocks import Details, Table
from chunkscope.report.charts import Lines
from chunkscope.report.concurrency import (
    advice_sentences,
    change_sentence,
    concurrency_blocks,
    points_table,
    warning_sentences,
)
from chunkscope.report.plan import headline, plan_blocks
from chunkscope.vllm.settings import OWN, Settings
from tests.report import plans
from tests.report.plans import AGENTS, KEEP, point, simulated


def test_the_number_to_run_comes_with_its_time_and_the_knee():
    assert advice_sentences(AGENTS) == [
        "Run 8 samples at once: 21.0 min (simulated).",
        "From 12 on the KV cache no longer holds their contexts: 16 take 37.0 min, "
        "with 19 % of the prompt tokens served from the cache instead of 91 %.",
    ]


def test_where_the_cache_holds_everything_no_knee_is_claimed():
    flat = replace(AGENTS, points=(point(8, 21.0, 0.91), point(40, 21.0, 0.90)))

    assert advice_sentences(flat) == ["Run 8 samples at once: 21.0 min (simulated)."]


def test_the_clients_own_number_stands_beside_the_advised_one():
    assert advice_sentences(replace(AGENTS, client=16))[-1] == (
        "The client keeps 16 under way: 37.0 min."
    )


@pytest.mark.parametrize("client", [None, 8], ids=["nobody said", "as advised"])
def test_a_client_that_nobody_asked_for_or_that_does_so_anyway_is_not_named(client):
    sentences = advice_sentences(replace(AGENTS, client=client))

    assert not any("The client" in sentence for sentence in sentences)


def test_samples_that_outgrow_the_context_end_with_a_refused_turn():
    assert warning_sentences(replace(AGENTS, outgrow=35), None) == [
        "35 of 40 samples outgrow max_model_len: a turn that is refused ends its "
        "sample."
    ]


def test_requests_that_the_client_gives_up_are_counted():
    assert warning_sentences(replace(AGENTS, timeouts=1), 600.0) == [
        "1 request would take longer than --e2e-timeout 10.0 min."
    ]


@pytest.mark.parametrize("timeouts", [None, 0], ids=["it waits forever", "none"])
def test_without_timeouts_nothing_is_said(timeouts):
    assert warning_sentences(replace(AGENTS, timeouts=timeouts), 600.0) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param(
            KneeChange(
                code="fp8_kv_cache",
                settings=Settings(kv_cache_dtype="fp8"),
                at_once=16,
                hours=0.25,
            ),
            "With kv_cache_dtype fp8, 16 at once take 15.0 min (simulated).",
            id="a smaller KV cache",
        ),
        pytest.param(
            KneeChange(
                code="shorter_context",
                settings=Settings(max_model_len=15_360),
                at_once=12,
                hours=0.25,
                outgrow=3,
            ),
            "With max_model_len 15,360, 12 at once take 15.0 min (simulated). "
            "3 samples would outgrow it.",
            id="a shorter context ends samples",
        ),
        pytest.param(
            KneeChange(
                code="other_gpu", settings=OWN, at_once=12, hours=0.25, gpu="h200"
            ),
            "With --gpu h200, 12 at once take 15.0 min (simulated).",
            id="another GPU",
        ),
    ],
)
def test_what_moves_the_knee_says_how_many_then(change, sentence):
    assert change_sentence(change) == sentence


def test_the_table_has_a_row_for_each_number_and_marks_two():
    table = points_table(replace(AGENTS, client=16))

    assert table.headings[0] == "samples at once"
    assert [row[0].text for row in table.rows] == [
        "4",
        "8 (advised)",
        "12",
        "16 (the client's)",
    ]
    assert table.strong == {1}


def test_the_curve_is_a_picture():
    pictures = [
        block for block in concurrency_blocks(AGENTS) if isinstance(block, Lines)
    ]

    assert pictures[0].lines[0].points[1] == (8, 21.0 * 60)


def test_a_plan_for_agents_begins_with_how_many_to_run():
    made = plans.plan(KEEP, simulated(), concurrency=AGENTS)

    assert headline(made).startswith("Run 8 samples at once: 21.0 min (simulated).")
    tables = [block for block in plan_blocks(made) if isinstance(block, Table)]
    assert tables[0].headings[0] == "samples at once"


def test_a_plan_for_single_requests_has_the_numbers_in_its_details():
    requests = replace(AGENTS, unit="requests")

    made = plans.plan(KEEP, simulated(), concurrency=requests)

    titles = [block.title for block in plan_blocks(made) if isinstance(block, Details)]
    assert "Run 8" not in headline(made)
    assert "Requests at once" in titles
