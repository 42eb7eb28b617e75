"""What of a workload is sent: requests, those that warm up, those that are compared."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.artefact import Numbers
from chunkscope.verification.task import (
    SAMPLE_OUTPUT,
    SAMPLE_PROMPTS,
    TaskRequest,
    output_sample,
    requests_of,
    warm_up,
)
from chunkscope.vllm.enums import Task
from tests.build import WORKLOAD, workload


def test_requests_keep_their_place_and_time():
    assert requests_of(WORKLOAD) == [
        TaskRequest(prompt_tokens=100, output_tokens=8, arrival_s=0.0, place=0),
        TaskRequest(prompt_tokens=5_000, output_tokens=8, arrival_s=0.5, place=1),
    ]


def test_a_request_asks_for_likelihoods_if_its_dataset_is_for_them():
    mixed = replace(WORKLOAD, scored=Numbers([1]))
    assert [request.is_scored for request in requests_of(mixed)] == [False, True]
    every = replace(WORKLOAD, task=Task.LOGLIKELIHOOD)
    assert [request.is_scored for request in requests_of(every)] == [True, True]


def test_the_longest_prompt_and_the_requests_with_short_answers_warm_an_engine_up():
    """The longest prompt decides the peak, though it may not be among the requests."""
    warming = warm_up(workload(100, 5_000, output=300, apart_s=0.5), 7_000)
    assert warming == [
        TaskRequest(prompt_tokens=7_000, output_tokens=1),
        TaskRequest(prompt_tokens=100, output_tokens=16, place=0),
        TaskRequest(prompt_tokens=5_000, output_tokens=16, place=1),
    ]
    scored = warm_up(replace(WORKLOAD, task=Task.LOGLIKELIHOOD), 7_000)
    assert all(request.is_scored for request in scored)


@pytest.mark.parametrize(
    ("requests", "places"),
    [pytest.param(3, 3, id="all of few"), pytest.param(200, SAMPLE_PROMPTS, id="many")],
)
def test_the_sample_is_spread_over_the_lengths_and_has_the_longest(requests, places):
    lengths = [(7 * number) % 1_000 + 1 for number in range(requests)]
    sample = output_sample(workload(*lengths))
    sampled = [request.place for request in sample]
    assert len(set(sampled)) == len(sampled) == places
    assert sampled == sorted(sampled)
    assert lengths.index(max(lengths)) in sampled
    median = sorted(request.prompt_tokens for request in sample)[places // 2]
    assert median == pytest.approx(sorted(lengths)[requests // 2], rel=0.05)
    assert {request.output_tokens for request in sample} == {SAMPLE_OUTPUT}


def test_only_greedy_answers_are_compared():
    scored = replace(WORKLOAD, task=Task.LOGLIKELIHOOD)
    assert not any(request.is_scored for request in output_sample(scored))
