"""Requests: lengths as in the data, arrivals as asked, the same for the same seed."""

import random
from collections import Counter

import pytest

from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.prompts.harness.log import LogSummary
from chunkscope.simulation.workload import (
    Drawing,
    arrival_rate,
    arrival_times,
    draw_workload,
    stratified,
)
from chunkscope.vllm.enums import Task
from tests.build import LONG, MIXED, dataset


def drawing(**options):
    return Drawing(**{"count": 50, "room": 16_384, "output_if_unknown": 256, **options})


def test_all_prompts_are_sent_when_no_number_is_given() -> None:
    workload = draw_workload([dataset("a", MIXED)], drawing(count=None))
    assert Counter(r.prompt_tokens for r in workload.requests) == Counter(MIXED)


@pytest.mark.parametrize("count", [10, 125, 200])
def test_a_sample_takes_one_prompt_of_each_part_of_the_sorted_lengths(count) -> None:
    lengths = LengthHistogram.of(range(1, 1_001))
    drawn = stratified(lengths, count, random.Random(1))
    parts = [int((length - 1) * count / 1_000) for length in drawn]
    assert parts == list(range(count))


def test_a_sample_keeps_the_mean_of_the_data() -> None:
    lengths = LengthHistogram.of([*MIXED, *LONG])
    drawn = stratified(lengths, 200, random.Random(0))
    assert sum(drawn) / 200 == pytest.approx(lengths.mean, rel=0.02)


def test_the_same_seed_draws_the_same_requests() -> None:
    data = [dataset("a", MIXED, output_lengths=LengthHistogram.of(range(10, 60)))]
    one, same, other = (draw_workload(data, drawing(seed=seed)) for seed in (3, 3, 4))
    assert one == same
    assert one.requests != other.requests


def test_outputs_are_as_long_as_those_of_the_prompts_own_dataset() -> None:
    short = dataset("short", [100] * 20, output_lengths=LengthHistogram.of([5]))
    long = dataset("long", [4_000] * 20, output_lengths=LengthHistogram.of([700]))
    silent = dataset("silent", [9_000] * 20)
    workload = draw_workload([short, long, silent], drawing(count=None))
    pairs = {(r.prompt_tokens, r.output_tokens) for r in workload.requests}
    assert pairs == {(100, 5), (4_000, 700), (9_000, 256)}


def test_an_output_length_that_is_asked_for_is_everybodys() -> None:
    data = [dataset("a", MIXED, output_lengths=LengthHistogram.of([5]))]
    workload = draw_workload(data, drawing(output=32))
    assert {r.output_tokens for r in workload.requests} == {32}


def test_a_likelihood_eval_generates_one_token() -> None:
    workload = draw_workload([dataset("a", MIXED)], drawing(task=Task.LOGLIKELIHOOD, output=99))
    assert {r.output_tokens for r in workload.requests} == {1}


def test_a_log_of_scored_prompts_generates_one_token_each() -> None:
    log = LogSummary(harness="lm-eval", documents=20, requests=80, kinds={"likelihood": 80})
    workload = draw_workload([dataset("a", MIXED, log=log)], drawing())
    assert {r.output_tokens for r in workload.requests} == {1}


@pytest.mark.parametrize(
    ("longest", "left_out"),
    [
        pytest.param(1_024, 0, id="it fills the context with its output"),
        pytest.param(1_025, 1, id="one token too many"),
    ],
)
def test_prompts_without_room_for_their_output_are_left_out(longest, left_out) -> None:
    workload = draw_workload([dataset("a", [10, longest])], drawing(room=1_124, output=100))
    assert workload.left_out == left_out


def test_outputs_are_cut_to_the_room_that_is_left() -> None:
    workload = draw_workload([dataset("a", [1_000])], drawing(count=1, room=1_100))
    assert workload.requests[0].output_tokens == 100


def test_when_no_prompt_fits_that_is_an_error() -> None:
    with pytest.raises(InputError, match="no prompt fits"):
        draw_workload([dataset("a", [5_000])], drawing(room=4_096))


def test_at_least_one_request_must_be_asked_for() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        draw_workload([dataset("a", MIXED)], drawing(count=0))


def test_all_at_once_is_at_once() -> None:
    assert arrival_times("batch", 3, random.Random(0)) == [0.0, 0.0, 0.0]


def test_a_rate_is_kept_on_average() -> None:
    times = arrival_times("4/s", 4_001, random.Random(0))
    assert times[0] == 0
    assert times == sorted(times)
    assert times[-1] == pytest.approx(1_000, rel=0.05)


@pytest.mark.parametrize("text", ["", "4", "4/h", "fast", "0/s", "-1/s", "inf/s", "nan/s", "/s"])
def test_what_is_no_rate_is_refused(text) -> None:
    with pytest.raises(UsageError, match="neither batch nor a rate"):
        arrival_rate(text)
