"""`--check-outputs`: which prompts are sent, and whose answers are compared with whose."""

from dataclasses import replace

import pytest

from chunkscope.report.words.verdicts import outputs as in_words
from chunkscope.simulation.workload import Request
from chunkscope.verification.outputs import (
    PROMPTS,
    equal_share,
    is_noise,
    reference_run,
    sample_places,
    with_outputs_compared,
)
from chunkscope.verification.result import RunOutputs
from tests.build import WORKLOAD, failed, run, verification


def answering(setting: str, *answers: int, again: float = 1.0, **more):
    outputs = RunOutputs(answers=tuple((token,) for token in answers), again=again)
    return run(setting, outputs=outputs, **more)


@pytest.mark.parametrize(("requests", "places"), [(3, 3), (200, PROMPTS)])
def test_the_sample_is_spread_over_the_lengths_and_has_the_longest(requests, places) -> None:
    lengths = [(7 * n) % 1_000 + 1 for n in range(requests)]
    sent = tuple(Request(prompt_tokens=n, output_tokens=8) for n in lengths)
    sample = sample_places(replace(WORKLOAD, requests=sent))
    assert len(sample) == len(set(sample)) == places
    assert lengths.index(max(lengths)) in sample
    assert sample == sorted(sample)


def test_an_answer_that_goes_on_is_another_answer() -> None:
    assert equal_share([[1, 2], [3]], [[1, 2], [3, 4]]) == 0.5


@pytest.mark.parametrize(
    ("settings", "reference"),
    [
        (["plan", "default", "off"], "off"),
        (["plan", "default"], "default"),
        (["plan", "small"], "plan"),
    ],
)
def test_the_reference_is_without_chunks_else_the_default_else_the_first(
    settings, reference
) -> None:
    measured = verification(*(answering(setting, 5, 6) for setting in settings))
    assert reference_run(measured).setting == reference


def test_every_run_is_compared_with_the_reference_and_it_with_none() -> None:
    runs = (answering("plan", 5, 7), answering("off", 5, 6), failed("default"))
    plan, off, default = with_outputs_compared(verification(*runs)).runs
    assert (plan.outputs.reference, plan.outputs.equal) == ("off", 0.5)
    assert (off.outputs.reference, off.outputs.equal) == (None, None)
    assert default.outputs is None


def test_a_reference_that_comes_later_takes_the_place_of_the_first() -> None:
    first = with_outputs_compared(verification(answering("plan", 5), answering("default", 6)))
    later = with_outputs_compared(first.with_run(answering("off", 5)))
    assert [r.outputs.reference for r in later.runs] == ["off", "off", None]
    assert [r.outputs.equal for r in later.runs] == [1.0, 0.0, None]


def test_no_more_differences_than_sending_again_makes_are_noise() -> None:
    reference = RunOutputs(answers=(), again=0.9)
    for equal, noise in ((0.95, True), (0.9, True), (0.85, False)):
        assert is_noise(RunOutputs(answers=(), again=1.0, equal=equal), reference) is noise


def test_what_was_compared_has_words() -> None:
    runs = (answering("plan", 5, 7), answering("off", 5, 6))
    assert len(list(in_words(with_outputs_compared(verification(*runs))))) == 3
    assert list(in_words(verification(run("plan")))) == []
