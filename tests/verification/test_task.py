"""What of a workload is sent: sessions, what warms up, what is compared."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.artefact import Numbers
from chunkscope.simulation.workload import Session, Turn
from chunkscope.verification.inside.chunkscope_sessions import SentSession, SentTurn
from chunkscope.verification.task import (
    SAMPLE_OUTPUT,
    SAMPLE_PROMPTS,
    output_sample,
    sessions_of,
    warm_up,
)
from chunkscope.vllm.enums import Task
from tests.build import WORKLOAD, workload

CHAT = Session(
    turns=(
        Turn(prompt_tokens=100, output_tokens=8),
        Turn(prompt_tokens=150, output_tokens=4, kept_tokens=108, think_s=0.5),
    )
)
CHATS = replace(WORKLOAD, sessions=(CHAT, CHAT))


def test_sessions_keep_their_place_and_time():
    assert sessions_of(WORKLOAD) == [
        SentSession([SentTurn(100, 8)], 0.0, place=0),
        SentSession([SentTurn(5_000, 8)], 0.5, place=1),
    ]


def test_turns_keep_what_was_said_and_the_time_to_think():
    first, _ = sessions_of(CHATS)
    assert first.turns[1] == SentTurn(150, 4, kept_tokens=108, think_s=0.5)


@pytest.mark.parametrize(
    ("change", "scored"),
    [
        pytest.param({"scored": Numbers([1])}, [False, True], id="some"),
        pytest.param({"task": Task.LOGLIKELIHOOD}, [True, True], id="all"),
    ],
)
def test_a_request_asks_for_likelihoods_if_its_dataset_is_for_them(change, scored):
    sessions = sessions_of(replace(WORKLOAD, **change))
    assert [session.turns[0].is_scored for session in sessions] == scored


def test_the_longest_prompt_and_first_prompts_with_short_answers_warm_up():
    """The longest prompt decides the peak, though it may not be among the requests."""
    assert warm_up(workload(100, 5_000, output=300, apart_s=0.5), 7_000) == [
        SentSession([SentTurn(7_000, 1)]),
        SentSession([SentTurn(100, 16)], place=0),
        SentSession([SentTurn(5_000, 16)], place=1),
    ]


def test_an_engine_for_likelihoods_is_warmed_up_with_them():
    warming = warm_up(replace(WORKLOAD, task=Task.LOGLIKELIHOOD), 7_000)
    assert all(session.turns[0].is_scored for session in warming)


def test_of_a_session_only_the_first_turn_warms_up():
    assert [len(session.turns) for session in warm_up(CHATS, 7_000)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("requests", "places"),
    [pytest.param(3, 3, id="all of few"), pytest.param(200, SAMPLE_PROMPTS, id="many")],
)
def test_the_sample_is_spread_over_the_lengths_and_has_the_longest(requests, places):
    lengths = [(7 * number) % 1_000 + 1 for number in range(requests)]
    sample = output_sample(workload(*lengths))
    sampled = [session.place for session in sample]
    assert len(set(sampled)) == len(sampled) == places
    assert sampled == sorted(sampled)
    assert lengths.index(max(lengths)) in sampled
    sizes = sorted(session.turns[0].prompt_tokens for session in sample)
    assert sizes[places // 2] == pytest.approx(sorted(lengths)[requests // 2], rel=0.05)


def test_only_greedy_answers_of_a_fixed_length_are_compared():
    for session in output_sample(replace(WORKLOAD, task=Task.LOGLIKELIHOOD)):
        assert session.turns[0].output_tokens == SAMPLE_OUTPUT
        assert not session.turns[0].is_scored
