"""Requests out of a profile that knows its prompts one by one: what they share, in their order."""

import random
from collections import Counter
from typing import Any

import pytest

from chunkscope.artefacts.artefact import Numbers
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.prefixes.sharing import NOTHING, Sharing, Stretch, depths, read_together
from chunkscope.prompts.harness.log import LONGEST_FIRST, LogSummary
from chunkscope.simulation import workload as workload_module
from chunkscope.simulation.workload import (
    Request,
    Workload,
    arrival_rate,
    arrival_times,
    dataset_output,
    draw_workload,
)
from chunkscope.vllm.enums import SendOrder, Task
from tests.build import MIXED, dataset

LENGTHS = (500, 300, 900, 300, 700, 100)
ENDS = (1, 0, 1, 0, 1, NOTHING)
TREE = (Stretch(parent=-1, tokens=64), Stretch(parent=0, tokens=160))


def known(
    name: str,
    lengths: tuple[int, ...] = LENGTHS,
    ends: tuple[int, ...] = ENDS,
    **more: Any,
) -> DatasetProfile:
    parents, tokens = Numbers([-1, 0]), Numbers([64, 160])
    sharing = Sharing(
        lengths=Numbers(lengths), ends=Numbers(ends), parents=parents, tokens=tokens
    )
    return dataset(name, lengths, sharing=sharing, **more)


def drawn(*datasets: DatasetProfile, **options: Any) -> Workload:
    task, asked = options.pop("task", None), options.pop("output", None)
    outputs = [dataset_output(one, task, asked) for one in datasets]
    return draw_workload(datasets, outputs, **{"room": 16_384, **options})


def pairs(workload: Workload) -> list[tuple[int, int]]:
    """By request, its length and how much of it is shared."""
    reach = [*depths(workload.stretches), 0]
    return [(r.prompt_tokens, reach[r.stretch]) for r in workload.requests]


AS_SENT = [(500, 224), (300, 64), (900, 224), (300, 64), (700, 224), (100, 0)]


def test_datasets_are_sent_one_after_the_other_and_share_nothing_with_each_other():
    alone, workload = drawn(known("a")), drawn(known("a"), known("b"))
    assert (pairs(alone), alone.order, alone.stretches) == (
        AS_SENT,
        SendOrder.DATA,
        TREE,
    )
    assert pairs(workload) == AS_SENT * 2
    first, second = ({r.stretch for r in half} - {NOTHING} for half in halves(workload))
    assert first.isdisjoint(second)


def halves(workload: Workload):
    middle = len(workload.requests) // 2
    return workload.requests[:middle], workload.requests[middle:]


def test_at_a_rate_datasets_come_mixed_each_in_its_order():
    few = known("few", (11, 12), (NOTHING, NOTHING))
    lengths = [r.prompt_tokens for r in drawn(known("a"), few, arrivals="4/s").requests]
    assert lengths == [500, 300, 11, 900, 300, 700, 12, 100]


LM_EVAL = {
    "log": LogSummary(harness="lm-eval", documents=6, requests=6, order=LONGEST_FIRST),
}


@pytest.mark.parametrize(
    ("data", "asked"),
    [({}, {"order": SendOrder.LONGEST}), (LM_EVAL, {})],
    ids=["asked", "lm-eval"],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_longest_first_keeps_together_what_begins_alike(data, asked, seed):
    workload = drawn(known("a", **data), known("b", **data), seed=seed, **asked)
    assert workload.order is SendOrder.LONGEST
    tokens = [request.prompt_tokens for request in workload.requests]
    assert tokens == sorted(LENGTHS * 2, reverse=True)
    equal = [r.stretch for r in workload.requests if r.prompt_tokens == 300]
    assert equal == sorted(equal)


def test_tasks_of_lm_eval_among_others_stay_in_their_order():
    assert drawn(known("a", **LM_EVAL), known("b")).order is SendOrder.DATA


def test_shuffled_is_another_order_for_another_seed_and_keeps_what_is_shared():
    one, other = (
        drawn(known("a"), order=SendOrder.SHUFFLED, seed=seed) for seed in (1, 2)
    )
    assert pairs(one) != pairs(other)
    assert Counter(pairs(one)) == Counter(pairs(other)) == Counter(AS_SENT)


def test_a_sample_is_spread_over_the_lengths_and_stays_in_order():
    chance = random.Random(5)
    lengths = tuple(chance.randint(1, 3_000) for _ in range(1_000))
    many = known("a", lengths, tuple(place % 2 for place in range(1_000)))
    workload = drawn(many, count=100)
    where = {tokens: place for place, tokens in enumerate(lengths)}
    once = {tokens for tokens, times in Counter(lengths).items() if times == 1}
    places = [
        where[r.prompt_tokens] for r in workload.requests if r.prompt_tokens in once
    ]
    assert places == sorted(places)
    ranks = sorted(
        sum(other <= r.prompt_tokens for other in lengths) for r in workload.requests
    )
    assert all(0 <= rank - 10 * part <= 15 for part, rank in enumerate(ranks))
    stretches = {(r.prompt_tokens, r.stretch) for r in workload.requests}
    assert stretches <= {(n, place % 2) for place, n in enumerate(lengths)}


def test_a_part_of_the_prompts_stands_for_all_of_them():
    """Of 600 rows six are known one by one; the other dataset has one row."""
    part = dataset("a", LENGTHS * 100, sharing=known("a").sharing)
    workload = drawn(part, known("b", (11,), (NOTHING,)), count=300)
    tokens = Counter(request.prompt_tokens for request in workload.requests)
    assert tokens[11] <= 1
    assert all(49 <= tokens[n] <= 51 for n in set(LENGTHS) - {300})
    assert len(drawn(part).requests) == 600


def test_an_asked_for_prefix_replaces_what_the_data_shares_and_zero_is_nothing():
    workload = drawn(known("a"), shared_prefix=200)
    assert {request.stretch for request in workload.requests} == {0}
    assert workload.stretches == (Stretch(parent=-1, tokens=200),)
    nothing = drawn(known("a"), shared_prefix=0)
    assert nothing.stretches == ()
    assert {request.stretch for request in nothing.requests} == {NOTHING}
    assert [r.prompt_tokens for r in nothing.requests] == list(LENGTHS)


def test_scored_prompts_of_a_log_find_nothing_among_others_that_generate():
    scored = known("a", scored=True)
    workload = drawn(scored, known("b"))
    first, second = halves(workload)
    assert {request.stretch for request in first} == {NOTHING}
    assert {request.output_tokens for request in first} == {1}
    assert {request.stretch for request in second} == {2, 3, NOTHING}
    assert (workload.task, workload.scored) == (Task.GENERATE, tuple(range(6)))


@pytest.mark.parametrize(
    ("room", "output", "left_out"), [(600, 100, 2), (599, 100, 3), (600, None, 3)]
)
def test_what_leaves_no_room_for_its_answer_is_left_out_and_counted(
    room, output, left_out
):
    workload = drawn(
        known("a"), room=room, output=output
    )  # the longest that fits has 500 tokens
    assert drawn(dataset("b", LENGTHS), room=room, output=output).left_out == left_out
    assert [r.prompt_tokens for r in workload.requests] == [500, 300, 300, 100][
        left_out - 2 :
    ]
    assert workload.left_out == left_out


def test_of_very_many_prompts_some_are_drawn_from_and_the_shares_stay(monkeypatch):
    monkeypatch.setattr(workload_module, "MOST_PROMPTS", 500)
    large = known("a", tuple(range(1, 2_001)), (0,) * 2_000)
    small = known("b", (5_000,) * 20, (0,) * 20)
    workload = drawn(large, small, count=505)
    tokens = [request.prompt_tokens for request in workload.requests]
    assert 4 <= tokens.count(5_000) <= 6
    rest = [n for n in tokens if n != 5_000]
    assert rest == sorted(rest), "the data's order"
    assert sum(rest) / len(rest) == pytest.approx(1_000, rel=0.1)
    assert len(drawn(large, small).requests) == 2_020, "all of them are all of them"


def test_the_same_seed_draws_the_same_requests():
    data = [dataset("a", MIXED, output_lengths=LengthHistogram.of(range(10, 60)))]
    one, same, other = (drawn(*data, count=50, seed=seed) for seed in (3, 3, 4))
    assert one == same
    assert one.requests != other.requests


def test_outputs_are_as_long_as_those_of_the_prompts_own_dataset():
    short = dataset("short", [100] * 20, output_lengths=LengthHistogram.of([5]))
    long = dataset("long", [4_000] * 20, output_lengths=LengthHistogram.of([700]))
    silent = dataset("silent", [9_000] * 20)
    workload = drawn(short, long, silent, count=None)
    pairs = {(r.prompt_tokens, r.output_tokens) for r in workload.requests}
    assert pairs == {(100, 5), (4_000, 700), (9_000, 256)}


@pytest.mark.parametrize(
    ("scored", "how"), [(False, {"task": Task.LOGLIKELIHOOD, "output": 99}), (True, {})]
)
def test_a_likelihood_eval_generates_one_token(scored, how):
    workload = drawn(dataset("a", MIXED, scored=scored), count=50, **how)
    assert {r.output_tokens for r in workload.requests} == {1}
    assert (workload.task, workload.scored) == (Task.LOGLIKELIHOOD, ())


def test_outputs_are_cut_to_the_room_that_is_left_and_without_any_that_is_an_error():
    workload = drawn(dataset("a", [1_000]), count=1, room=1_300, assumed_times=2.0)
    assert workload.requests[0].output_tokens == 300
    with pytest.raises(InputError):
        drawn(dataset("a", [5_000]), count=50, room=4_096)


def test_a_rate_is_kept_on_average():
    assert (arrival_rate("90/min"), arrival_rate("batch")) == (1.5, None)
    times = arrival_times("4/s", 4_001, random.Random(0))
    assert times[0] == 0
    assert times == sorted(times)
    assert times[-1] == pytest.approx(1_000, rel=0.05)


def test_requests_beside_each_other_read_together_what_they_share():
    ends = (1, 1, 0, NOTHING)
    sent = [Request(prompt_tokens=90, output_tokens=20, stretch=end) for end in ends]
    assert read_together(sent, TREE) == (224 + 64) / 400
    assert workload_module.parts([2, 1, 1], 4, random.Random(0)) == [0, 0, 1, 2]


@pytest.mark.parametrize(
    "text", ["", "4", "4/h", "fast", "0/s", "-1/s", "inf/s", "nan/s", "/s"]
)
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(UsageError):
        arrival_rate(text)
