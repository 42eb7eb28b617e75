"""Requests out of a profile that knows its prompts one by one: what they share, in
their order."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from chunkscope.artefacts.artefact import Numbers
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.lengths.sessions import Sessions
from chunkscope.prefixes.sharing import NOTHING, Sharing, Stretch, depths, read_together
from chunkscope.prompts.harness.log import LONGEST_FIRST, LogSummary
from chunkscope.simulation import draw as draw_module
from chunkscope.simulation.draw import draw_workload, parts
from chunkscope.simulation.outputs import dataset_output, read_output
from chunkscope.simulation.workload import (
    Request,
    Turn,
    Workload,
    arrival_rate,
    arrival_times,
    single,
)
from chunkscope.vllm.enums import SendOrder, Task
from tests.build import MIXED, dataset
from tests.simulation.common import talk, workload_of

# -- sessions ------------------------------------------------------------------

TALK = talk((100, 10, 0.0), (30, 5, 2.0))


def test_a_prompt_is_all_that_was_said_before_and_what_is_new():
    session = replace(TALK, arrival_s=4.0, stretch=1)

    assert workload_of([session, single(7, 8)]).requests == (
        Request(prompt_tokens=100, output_tokens=10, arrival_s=4.0, stretch=1),
        Request(prompt_tokens=140, output_tokens=5, arrival_s=4.0, stretch=1),
        Request(prompt_tokens=7, output_tokens=8),
    )


def test_of_every_second_session_the_same_requests_are_scored():
    sent = workload_of([TALK, single(1, 1)] * 2, scored=[1, 2, 4])

    half = sent.every_nth(2)

    assert half.sessions == (TALK,) * 2
    assert half.likelihoods == {1, 3}


def test_sessions_that_come_twice_as_fast_take_half_the_time():
    sent = workload_of([single(1, 1, 0.0), single(2, 1, 3.0)])

    assert [one.arrival_s for one in sent.times_as_fast(2).sessions] == [0.0, 1.5]


# -- the order -----------------------------------------------------------------

LENGTHS = (500, 300, 900, 300, 700, 100)
ENDS = (1, 0, 1, 0, 1, NOTHING)
TREE = (Stretch(parent=-1, tokens=64), Stretch(parent=0, tokens=160))


def known(
    name: str,
    lengths: tuple[int, ...] = LENGTHS,
    ends: tuple[int, ...] = ENDS,
    **more: Any,
) -> DatasetProfile:
    sharing = Sharing(
        lengths=Numbers(lengths),
        ends=Numbers(ends),
        parents=Numbers([-1, 0]),
        tokens=Numbers([64, 160]),
    )
    return dataset(name, lengths, sharing=sharing, **more)


def drawn(
    *datasets: DatasetProfile,
    task: Task | None = None,
    output: int | None = None,
    room: int = 16_384,
    **options: Any,
) -> Workload:
    lengths = None if output is None else read_output(output)
    outputs = [dataset_output(one, task, lengths) for one in datasets]
    return draw_workload(datasets, outputs, room=room, **options)


def lengths_of(workload: Workload) -> list[int]:
    return [request.prompt_tokens for request in workload.requests]


def pairs(workload: Workload) -> list[tuple[int, int]]:
    """By request, its length and how much of it is shared."""
    reach = [*depths(workload.stretches), 0]  # NOTHING is the last of them
    return [(one.prompt_tokens, reach[one.stretch]) for one in workload.requests]


AS_SENT = [(500, 224), (300, 64), (900, 224), (300, 64), (700, 224), (100, 0)]


def test_prompts_are_sent_in_the_order_of_the_data():
    workload = drawn(known("a"))

    assert pairs(workload) == AS_SENT
    assert (workload.order, workload.stretches) == (SendOrder.DATA, TREE)


def test_datasets_are_sent_one_after_the_other_and_share_nothing_with_each_other():
    workload = drawn(known("a"), known("b"))

    assert pairs(workload) == AS_SENT * 2
    stretches = [request.stretch for request in workload.requests]
    assert set(stretches[:6]) & set(stretches[6:]) == {NOTHING}


def test_at_a_rate_datasets_come_mixed_each_in_its_order():
    few = known("few", (11, 12), (NOTHING, NOTHING))

    workload = drawn(known("a"), few, arrivals="4/s")

    assert lengths_of(workload) == [500, 300, 11, 900, 300, 700, 12, 100]


LM_EVAL = LogSummary(harness="lm-eval", documents=6, requests=6, order=LONGEST_FIRST)


@pytest.mark.parametrize(
    ("log", "order"),
    [
        pytest.param(None, SendOrder.LONGEST, id="asked"),
        pytest.param(LM_EVAL, None, id="lm-eval"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_longest_first_keeps_together_what_begins_alike(log, order, seed):
    both = known("a", log=log), known("b", log=log)

    workload = drawn(*both, seed=seed, order=order)

    assert workload.order is SendOrder.LONGEST
    assert lengths_of(workload) == sorted(LENGTHS * 2, reverse=True)
    equal = [one.stretch for one in workload.requests if one.prompt_tokens == 300]
    assert equal == sorted(equal)


def test_tasks_of_lm_eval_among_others_stay_in_their_order():
    assert drawn(known("a", log=LM_EVAL), known("b")).order is SendOrder.DATA


def test_shuffled_is_another_order_for_another_seed_and_keeps_what_is_shared():
    one, other = (
        drawn(known("a"), order=SendOrder.SHUFFLED, seed=seed) for seed in (1, 2)
    )

    assert pairs(one) != pairs(other)
    assert Counter(pairs(one)) == Counter(pairs(other)) == Counter(AS_SENT)


# -- a sample ------------------------------------------------------------------


@pytest.fixture(scope="module")
def thousand() -> dict[int, int]:
    """Different lengths of prompts, and the place of each."""
    chance = random.Random(5)
    lengths = chance.sample(range(1, 3_000), 1_000)
    return {length: place for place, length in enumerate(lengths)}


@pytest.fixture(scope="module")
def sample(thousand) -> Workload:
    ends = tuple(place % 2 for place in range(1_000))
    return drawn(known("a", tuple(thousand), ends), count=100)


def test_a_sample_stays_in_order(thousand, sample):
    places = [thousand[length] for length in lengths_of(sample)]

    assert places == sorted(places)


def test_a_sample_is_spread_over_the_lengths(thousand, sample):
    """One of each ten, from the shortest on."""
    ranked = sorted(thousand)

    tens = sorted(ranked.index(length) // 10 for length in lengths_of(sample))

    assert tens == list(range(100))


def test_prompts_of_a_sample_share_what_they_shared(thousand, sample):
    for request in sample.requests:
        assert request.stretch == thousand[request.prompt_tokens] % 2


def test_a_part_of_the_prompts_stands_for_all_of_them():
    """Of 600 rows six are known one by one; the other dataset has one row."""
    part = dataset("a", LENGTHS * 100, sharing=known("a").sharing)

    workload = drawn(part, known("b", (11,), (NOTHING,)), count=300)

    tokens = Counter(lengths_of(workload))
    assert tokens[11] <= 1
    for length in set(LENGTHS) - {300}:
        assert 49 <= tokens[length] <= 51
    assert len(drawn(part).requests) == 600


def test_of_very_many_prompts_some_are_drawn_from_and_the_shares_stay(monkeypatch):
    monkeypatch.setattr(draw_module, "MOST_PROMPTS", 500)
    large = known("a", tuple(range(1, 2_001)), (0,) * 2_000)
    small = known("b", (5_000,) * 20, (0,) * 20)

    tokens = lengths_of(drawn(large, small, count=505))

    assert 4 <= tokens.count(5_000) <= 6
    rest = [length for length in tokens if length != 5_000]
    assert rest == sorted(rest), "the data's order"
    assert sum(rest) / len(rest) == pytest.approx(1_000, rel=0.1)
    assert len(drawn(large, small).requests) == 2_020, "all of them are all of them"


def test_the_same_seed_draws_the_same_requests():
    data = dataset("a", MIXED, output_lengths=LengthHistogram.of(range(10, 60)))

    one, same, other = (drawn(data, count=50, seed=seed) for seed in (3, 3, 4))

    assert one == same
    assert one.requests != other.requests


def test_parts_of_whole_weights_are_all_of_them():
    assert parts([2, 1, 1], 4, random.Random(0)) == [0, 0, 1, 2]


# -- what prompts share --------------------------------------------------------


def test_an_asked_for_prefix_replaces_what_the_data_shares():
    workload = drawn(known("a"), shared_prefix=200)

    assert {request.stretch for request in workload.requests} == {0}
    assert workload.stretches == (Stretch(parent=-1, tokens=200),)


def test_an_asked_for_prefix_of_zero_is_nothing():
    workload = drawn(known("a"), shared_prefix=0)

    assert workload.stretches == ()
    assert {request.stretch for request in workload.requests} == {NOTHING}
    assert lengths_of(workload) == list(LENGTHS)


def test_scored_prompts_of_a_log_find_nothing_among_others_that_generate():
    workload = drawn(known("a", scored=True), known("b"))

    scored, generating = workload.requests[:6], workload.requests[6:]
    assert {request.stretch for request in scored} == {NOTHING}
    assert {request.output_tokens for request in scored} == {1}
    assert {request.stretch for request in generating} == {2, 3, NOTHING}
    assert (workload.task, workload.scored) == (Task.GENERATE, tuple(range(6)))


def test_requests_beside_each_other_read_together_what_they_share():
    ends = (1, 1, 0, NOTHING)
    sent = [Request(prompt_tokens=90, output_tokens=20, stretch=end) for end in ends]

    assert read_together(sent, TREE) == (224 + 64) / 400


# -- what fits, and how long answers are ---------------------------------------


@pytest.mark.parametrize(
    ("room", "output", "lengths"),
    [
        pytest.param(600, 100, [500, 300, 300, 100], id="just fits"),
        pytest.param(599, 100, [300, 300, 100], id="one token too many"),
        pytest.param(600, None, [300, 300, 100], id="with the assumed answer"),
    ],
)
def test_what_leaves_no_room_for_its_answer_is_left_out_and_counted(
    room, output, lengths
):
    workload = drawn(known("a"), room=room, output=output)

    assert lengths_of(workload) == lengths
    assert workload.left_out == 6 - len(lengths)
    by_lengths = drawn(dataset("b", LENGTHS), room=room, output=output)
    assert by_lengths.left_out == workload.left_out


def test_a_prompt_that_is_sent_several_times_shares_all_of_itself():
    workload = drawn(dataset("a", [100, 200]), samples=3)

    stretches = [session.stretch for session in workload.sessions]
    assert lengths_of(workload).count(100) == lengths_of(workload).count(200) == 3
    assert sorted(depths(workload.stretches)) == [100, 200]
    assert all(stretches.count(stretch) == 3 for stretch in stretches)


def test_a_session_ends_with_the_turn_that_is_refused():
    sessions = Sessions(
        turns=Numbers([3, 1]),
        prompt_tokens=Numbers([100, 300, 600, 50]),
        kept_tokens=Numbers([0, 110, 310, 0]),
        output_tokens=Numbers([10, 10, 10, 10]),
        think_ms=Numbers([0, 500, 500, 0]),
        system_tokens=32,
    )
    agents = replace(dataset("a", [100, 300, 600, 50]), sessions=sessions)

    workload = drawn(agents, room=400)

    first, second = sorted(workload.sessions, key=lambda one: -len(one.turns))
    assert first.turns == (
        Turn(prompt_tokens=100, output_tokens=10),
        Turn(prompt_tokens=300, output_tokens=10, kept_tokens=110, think_s=0.5),
    )
    assert len(second.turns) == 1
    assert (workload.left_out, workload.outgrown) == (1, 1)
    assert depths(workload.stretches) == [32]


def test_where_no_prompt_fits_that_is_an_error():
    with pytest.raises(InputError, match="the shortest has 5,000"):
        drawn(dataset("a", [5_000]), count=50, room=4_096)


def test_outputs_are_cut_to_the_room_that_is_left():
    workload = drawn(dataset("a", [1_000]), count=1, room=1_300, assumed_times=2.0)

    assert workload.requests[0].output_tokens == 300


def test_outputs_are_as_long_as_those_of_the_prompts_own_dataset():
    short = dataset("short", [100] * 20, output_lengths=LengthHistogram.of([5]))
    long = dataset("long", [4_000] * 20, output_lengths=LengthHistogram.of([700]))
    silent = dataset("silent", [9_000] * 20)

    requests = drawn(short, long, silent).requests

    found = {(one.prompt_tokens, one.output_tokens) for one in requests}
    assert found == {(100, 5), (4_000, 700), (9_000, 256)}


@pytest.mark.parametrize(
    ("scored", "asked"),
    [
        pytest.param(False, {"task": Task.LOGLIKELIHOOD, "output": 99}, id="asked"),
        pytest.param(True, {}, id="the data's"),
    ],
)
def test_a_likelihood_eval_generates_one_token(scored, asked):
    workload = drawn(dataset("a", MIXED, scored=scored), count=50, **asked)

    assert {request.output_tokens for request in workload.requests} == {1}
    assert (workload.task, workload.scored) == (Task.LOGLIKELIHOOD, ())


# -- when they come ------------------------------------------------------------


def test_a_rate_is_kept_on_average():
    times = arrival_times("4/s", 4_001, random.Random(0))

    assert times[0] == 0
    assert times == sorted(times)
    assert times[-1] == pytest.approx(1_000, rel=0.05)


@pytest.mark.parametrize(
    ("text", "rate"), [("90/min", 1.5), ("4/s", 4), ("batch", None)]
)
def test_a_rate_is_by_second_or_minute(text, rate):
    assert arrival_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "4", "4/h", "fast", "0/s", "-1/s", "inf/s", "nan/s", "/s"]
)
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(UsageError):
        arrival_rate(text)
