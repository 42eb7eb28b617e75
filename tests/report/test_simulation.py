"""What `simulate` says of one setting, of rates, of a sweep, and of single steps."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.note import note
from chunkscope.report.blocks import Details, Heading, Look, Notes
from chunkscope.report.charts import Scatter, Timeline
from chunkscope.report.simulation import (
    headline,
    host_sentence,
    runs_table,
    setup,
    simulation_blocks,
    steps_table,
)
from chunkscope.simulation.result import (
    PromptChunk,
    Simulation,
    SustainedRate,
    TimelineStep,
)
from tests.report import examples
from tests.report.plans import growing, limited, simulated

LIMIT = "itl_p99=50ms"


def simulation(*runs, **more) -> Simulation:
    """The example with other runs."""
    return replace(examples.simulation(), runs=runs, notes=(), **more)


# -- one setting -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default_s", "comparison"),
    [
        pytest.param(10.29, ", within 3 % of vLLM's default", id="a tie"),
        pytest.param(
            10.301, ": 3 % more throughput than vLLM's default", id="as a plan says it"
        ),
        pytest.param(9.0, ": 10 % less throughput than vLLM's default", id="slower"),
    ],
)
def test_a_setting_is_compared_with_the_default(default_s, comparison):
    runs = simulated("plan", 10.0), simulated("default", default_s)

    assert headline(simulation(*runs)) == (
        f"The plan takes 10.0 s for all requests{comparison} (simulated)."
    )


def test_a_setting_that_is_the_default_stands_alone():
    alone = replace(simulated("plan", 10.0), same_as=("default",))

    assert headline(simulation(alone)) == (
        "The plan (vLLM's default) takes 10.0 s for all requests (simulated)."
    )


def test_with_limits_they_are_the_answer():
    runs = (
        limited(simulated("plan"), 0.031, LIMIT),
        limited(simulated("default"), 0.2, LIMIT),
    )

    assert headline(simulation(*runs)) == (
        "The plan: itl_p99 is 31.0 ms, within the limit of 50.0 ms (simulated). "
        "With vLLM's default, itl_p99 is 200 ms, over the limit of 50.0 ms."
    )


def test_two_numbers_of_a_limit_that_breaks_by_little_look_different():
    run = limited(simulated("plan"), 0.05000001, LIMIT)

    assert headline(simulation(run)) == (
        "The plan: itl_p99 is 0.05000001 s, over the limit of 0.05 s (simulated)."
    )


def test_a_limit_on_what_does_not_happen_does_not_apply():
    run = limited(simulated("plan"), None, LIMIT)

    assert "itl_p99 does not apply" in headline(simulation(run))


def test_requests_that_come_too_fast_are_the_answer():
    assert headline(simulation(growing(simulated("plan")))) == (
        "The plan: requests come faster than they are served (simulated)."
    )


# -- rates -----------------------------------------------------------------------------


def sustaining(setting: str, rate: float | None):
    run = simulated(setting)
    return replace(run, rate=SustainedRate(rate_per_s=rate, breaks="ttft_p95"))


@pytest.mark.parametrize(
    ("plan_rate", "sentence"),
    [
        pytest.param(
            17.0,
            "The plan sustains 17/s (simulated). vLLM's default sustains 11.3/s.",
            id="the plan",
        ),
        pytest.param(
            11.4,
            "vLLM's default sustains 11.3/s (simulated). No other setting sustains "
            "3 % more.",
            id="too little for a flag",
        ),
    ],
)
def test_the_setting_with_the_highest_rate_is_named(plan_rate, sentence):
    runs = sustaining("plan", plan_rate), sustaining("default", 11.3)

    assert headline(simulation(*runs)) == sentence


def test_where_no_rate_keeps_the_limits_what_breaks_is_named():
    assert headline(simulation(sustaining("plan", None))) == (
        "No setting keeps the limits at any rate: ttft_p95 breaks (simulated)."
    )


# -- a sweep ---------------------------------------------------------------------------


def test_a_sweep_names_the_fastest_and_the_smoothest():
    runs = (
        simulated("a", 10.0, longest_gap_s=5.15),
        simulated("", 12.0, longest_gap_s=0.06),
    )

    assert headline(simulation(*runs)) == (
        "Fastest is a: time 10.0 s, longest gap about 5 s (simulated). Smoothest is "
        "8,192 tokens a step: time 12.0 s, longest gap about 60 ms (simulated)."
    )


def test_a_sweep_with_limits_names_the_best_that_keep_them():
    fast = limited(simulated("", 10.0), 0.2, LIMIT)
    kept = limited(simulated("kept", 12.0), 0.01, LIMIT)

    assert headline(simulation(fast, kept)).startswith(
        "1 of 2 settings keep the limits. Fastest is kept: time 12.0 s"
    )


# -- what it rests on ------------------------------------------------------------------


def test_the_setup_names_all_gpus_and_where_answers_have_an_assumed_length():
    run = simulated()
    two = replace(run, settings=replace(run.settings, tensor_parallel_size=2))
    made = replace(simulation(two), notes=(note("assumed_output", tokens=256),))

    assert "2 x L4" in setup(made)
    assert setup(made).endswith("(256 each where unknown; --output).")


@pytest.mark.parametrize(
    ("gpu_s", "sentence"),
    [
        pytest.param(
            8.0,
            "The GPU waits for the CPU 20 % of the time: expect 8.20 s to 12.9 s.",
            id="a fifth of the time",
        ),
        pytest.param(9.0, "", id="hardly"),
    ],
)
def test_a_gpu_that_waits_for_the_cpu_makes_the_time_less_sure(gpu_s, sentence):
    assert host_sentence(simulation(simulated(gpu_s=gpu_s))) == sentence


def test_how_rough_gaps_are_is_a_note():
    rough = note("rough_gaps", p99=2.0, longest=10.5)
    made = replace(simulation(simulated()), notes=(rough,))

    notes = [block for block in simulation_blocks(made) if isinstance(block, Notes)]

    assert notes[0].notes == (
        "On an H200, p99 gaps were up to 2x and the longest gap up to 10.5x the "
        "prediction.",
    )


# -- tables and pictures ---------------------------------------------------------------


def test_the_longest_gap_of_requests_sent_at_once_has_one_digit():
    table = runs_table([("plan", simulated(longest_gap_s=9.97))])

    assert table.headings[-1] == "longest gap"
    assert table.rows[0][-1].text == "about 10 s"


def test_times_of_a_column_have_one_unit():
    named = [("plan", simulated("plan", 125.0)), ("off", simulated("off", 115.0))]

    assert [row[1].text for row in runs_table(named).rows] == ["2.08 min", "1.92 min"]


def test_a_broken_limit_is_marked():
    run = limited(simulated(), 0.2, LIMIT)

    cell = runs_table([("plan", run)]).rows[0][1]

    assert (cell.text, cell.look) == ("! 200 ms", Look.BAD)


def step(number: int, *chunks: PromptChunk, **more) -> TimelineStep:
    values = {"decode_requests": 3, "waiting": 0, "preempted": (), **more}
    return TimelineStep(
        number=number, start_s=0.1 * number, duration_s=0.1, chunks=chunks, **values
    )


def piece(request: int, start: int, end: int, of: int = 100) -> PromptChunk:
    return PromptChunk(request=request, start=start, end=end, prompt_tokens=of)


STEPS = (
    step(0, piece(7, 0, 50), piece(8, 0, 100)),
    step(1, piece(7, 50, 100), preempted=(3,)),
)


def test_a_step_shows_how_far_each_long_prompt_is():
    last = [row[-1].text for row in steps_table(STEPS).rows]

    assert last == ["A 50 %  1 whole", "A 100 %  1 preempted"]


def test_of_many_prompts_in_a_step_two_are_named():
    crowd = step(0, *(piece(request, 0, 50) for request in range(4)))

    assert steps_table([crowd]).rows[0][-1].text == "A 50 %  B 50 %  +2"


def test_steps_are_shown_for_each_run_and_drawn_together():
    runs = simulated("plan", timeline=STEPS), simulated("off", timeline=STEPS)

    blocks = simulation_blocks(simulation(*runs))

    titles = [block.text for block in blocks if isinstance(block, Heading)]
    assert titles == ["First steps: the plan", "First steps: chunking off"]
    (drawn,) = [block for block in blocks if isinstance(block, Timeline)]
    assert [lane.name.partition(":")[0] for lane in drawn.lanes] == [
        "the plan",
        "chunking off",
    ]


def test_each_setting_is_a_point_with_its_flags():
    settings = simulated().settings
    smaller = replace(settings, max_num_batched_tokens=2_048)
    runs = simulated("default"), simulated("plan", 9.0, settings=smaller)

    blocks = simulation_blocks(simulation(*runs))

    points = next(block.points for block in blocks if isinstance(block, Scatter))
    assert points[1].detail == "Flags: --max-num-batched-tokens 2048"


def test_a_sweep_has_no_table_of_every_figure():
    blocks = simulation_blocks(simulation(simulated("")))

    details = next(block for block in blocks if isinstance(block, Details))
    assert [type(block).__name__ for block in details.blocks] == ["Text", "Notes"]
