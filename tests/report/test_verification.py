"""What `verify` says: the verdict, its figures, and what had been predicted."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.figures import MAKESPAN
from chunkscope.hardware.memory import Memory
from chunkscope.report.blocks import Details, Look, Table
from chunkscope.report.verification import (
    failure,
    headline,
    look_of,
    measured_elsewhere,
    measured_on,
    memory_picture,
    memory_table,
    predicted_table,
    runs_table,
    verification_blocks,
    worse_sentences,
)
from chunkscope.simulation.workload import Session, Turn
from chunkscope.verification.result import Machine, Subject, WorkerMemory
from chunkscope.verification.verdict import judged
from chunkscope.vllm.settings import OWN, Settings
from tests import build
from tests.build import failed, figures, run, verification
from tests.report import plans

PLAN = run("plan", 10.0, 9.9, 10.1)
NO_FLAGS = {"settings": OWN}


def answer(*runs, **more) -> str:
    return headline(judged(verification(*runs, **more)))


# -- the verdict -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        pytest.param(
            (PLAN, run("default", 12.0, 11.9, 12.1, **NO_FLAGS)),
            "Keep the plan: time for all requests 10.0 s instead of 12.0 s with vLLM's "
            "default (-17 %, measured).",
            id="the plan is faster",
        ),
        pytest.param(
            (PLAN,),
            "Keep the plan: time for all requests 10.0 s (measured). vLLM's default "
            "was not measured.",
            id="nothing to compare it with",
        ),
        pytest.param(
            (PLAN, run("default", 10.05, 9.95, 10.2, **NO_FLAGS)),
            "Leave out max_num_batched_tokens: a tie, time for all requests 10.0 s "
            "with it, 10.1 s without (measured).",
            id="a tie needs no flag",
        ),
        pytest.param(
            (PLAN, run("default", 8.0, 7.9, 8.1, **NO_FLAGS)),
            "Use vLLM's defaults instead of the plan: time for all requests 8.00 s "
            "instead of 10.0 s with the plan (-20 %, measured).",
            id="the default is faster",
        ),
        pytest.param(
            (failed("plan"), run("default", 8.0, **NO_FLAGS)),
            "The plan does not run: out of memory while loading: no memory. vLLM's "
            "default does: time for all requests 8.00 s (measured).",
            id="the plan fails",
        ),
        pytest.param(
            (failed("plan"),),
            "The plan does not run: out of memory while loading: no memory.",
            id="nothing runs",
        ),
    ],
)
def test_the_verdict_is_the_answer(runs, sentence):
    assert answer(*runs) == sentence


def test_a_plan_that_is_the_default_is_kept_with_what_it_needs():
    needed = Settings(max_model_len=4_096)
    same = replace(PLAN, settings=needed, same_as=("default",))
    slower = run("off", 12.0, 11.9, 12.1, settings=needed)

    assert answer(same, slower) == (
        "Keep vLLM's defaults with max_model_len 4,096: time for all requests 10.0 s "
        "(measured). No other setting is clearly better."
    )


def test_a_server_has_a_figure_and_nothing_to_compare():
    assert answer(run("endpoint", 3.0)) == (
        "Endpoint: time for all requests 3.00 s (measured)."
    )


def test_what_gets_worse_is_named():
    default = run("default", 12.0, 11.9, 12.1, gap_s=0.005, **NO_FLAGS)

    (worse,) = worse_sentences(judged(verification(PLAN, default)))

    assert worse.startswith("Worse: median gap between tokens 10.0 ms instead of 5.00")


def test_a_run_that_failed_says_which_and_why():
    assert failure(failed("off")) == (
        "chunking off: out of memory while loading: no memory"
    )


# -- where -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "where"),
    [
        pytest.param(
            Machine(device="cuda", gpu="NVIDIA H200", gpus=2, vllm="0.24.0"),
            "tiny on 2 x H200, vLLM 0.24.0",
            id="GPUs",
        ),
        pytest.param(
            Machine(device="cpu", vllm="0.28.0"), "tiny on a CPU, vLLM 0.28.0", id="CPU"
        ),
        pytest.param(Machine(device="endpoint"), "tiny on a server", id="a server"),
    ],
)
def test_the_machine_is_named(machine, where):
    text = measured_on(verification(machine=machine))

    assert text.startswith(f"Measured: {where}, random weights, 2 requests")


def test_another_machine_than_planned_is_named():
    made = plans.plan()
    machine = Machine(device="cuda", gpu="NVIDIA L4", gpus=1, vllm="0.32.0")
    measured = verification(
        machine=machine, model=Subject(name="other", load_format="auto")
    )

    assert measured_elsewhere(made, measured) == [
        "The plan is for meta-llama/Llama-3.1-8B.",
        "The plan is for vLLM 0.24.0.",
        "The plan is for NVIDIA H200.",
    ]


def test_the_planned_machine_needs_no_word():
    made = plans.plan()
    name = made.model.load_name

    here = verification(model=Subject(name=name, load_format="dummy"))

    assert measured_elsewhere(made, here) == []


# -- the table -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "look"),
    [
        pytest.param((9.93, 9.92, 9.94), Look.PLAIN, id="0.7 % is no gain"),
        pytest.param((9.6, 9.59, 9.61), Look.GOOD, id="4 %"),
        pytest.param((9.6, 9.0, 10.4), Look.PLAIN, id="within the spread"),
        pytest.param((10.5, 10.4, 10.6), Look.WORSE, id="slower"),
    ],
)
def test_only_a_gain_beyond_noise_is_green(seconds, look):
    steady = run("plan", 10.0, 9.99, 10.01)

    assert look_of(MAKESPAN, run("off", *seconds), steady) is look


def test_each_run_is_compared_with_the_first():
    table = runs_table([PLAN, run("off", 12.0, 11.9, 12.1)])

    assert table.headings == (
        "setting",
        "time",
        "change",
        "first token p95",
        "longest gap",
    )
    assert [row[2].text for row in table.rows] == ["", "+20 %"]


def test_a_difference_within_the_spread_is_a_tie():
    assert runs_table([PLAN, run("off", 10.1, 10.0, 10.2)]).rows[1][2].text == "tie"


def test_a_figure_that_was_not_measured_says_so():
    runs = [PLAN, replace(run("off", 12.0), figures=figures(12.0, gap_s=None))]

    assert runs_table(runs).rows[1][-1].text == "not measured"


# -- what had been predicted -----------------------------------------------------------


def predicted(measured):
    return replace(
        measured,
        predicted_figures=figures(9.0),
        predicted_prefix_hit_rate=0.91,
        figures=figures(10.0, prefix_hit_rate=0.93),
    )


def test_times_are_off_by_a_part_and_shares_by_points():
    rows = [
        [cell.text for cell in row[1:]]
        for row in predicted_table([predicted(PLAN)]).rows
    ]

    assert rows[0] == ["time for all requests", "10.0 s", "9.00 s", "-10 %"]
    assert rows[-1] == ["prefix-cache hits", "93 %", "91 %", "-2.0 points"]


def tables(made) -> list[str]:
    return [
        block.headings[-1]
        for block in verification_blocks(made)
        if isinstance(block, Table)
    ]


def test_of_sessions_the_prediction_stands_beside_the_measurement():
    turns = (Turn(prompt_tokens=100, output_tokens=8),) * 2
    agents = replace(build.WORKLOAD, sessions=(Session(turns=turns),))

    made = verification(predicted(PLAN), workload=agents)

    assert "off" in tables(made)


def test_of_single_requests_it_is_a_detail():
    made = verification(predicted(PLAN))

    details = {
        b.title: b.blocks for b in verification_blocks(made) if isinstance(b, Details)
    }
    assert "off" not in tables(made)
    assert details["Every figure"][1].headings[-1] == "off"


# -- memory ----------------------------------------------------------------------------


def remembering() -> "tuple[object, Memory]":
    """A run with what vLLM logged of its memory, and the bill that was predicted."""
    worker = WorkerMemory(
        rank=0,
        activation_peak_gib=0.5,
        device_peak_gib=120.0,
        weights_gib=15.0,
        profiled_activation_gib=1.1,
        kv_cache_gib=110.0,
    )
    bill = plans.base().memory
    return replace(PLAN, workers=(worker,), predicted=bill), bill


def test_memory_is_a_row_as_predicted_and_one_as_measured():
    measured, _ = remembering()

    table = memory_table([measured])

    assert [row[0].text for row in table.rows] == [
        "the plan, predicted",
        "the plan, measured",
    ]
    assert table.rows[1][1].text == "15.0 GiB"


def test_memory_is_drawn_up_to_what_the_gpu_has():
    measured, bill = remembering()

    assert memory_picture([measured]).limit == bill.total_gib


def test_without_figures_of_memory_there_is_no_row():
    assert memory_table([PLAN]).rows == ()
