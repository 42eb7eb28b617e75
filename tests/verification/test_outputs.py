"""`--check-outputs`: which prompts are sent, and whose answers are compared with whose."""

from dataclasses import replace

import pytest

from chunkscope.simulation.workload import Request
from chunkscope.verification.outputs import PROMPTS, is_noise, sample_places, with_outputs_compared
from chunkscope.verification.result import RunOutputs
from tests.build import WORKLOAD, failed, run, verification


def answering(setting: str, *answers: int):
    outputs = RunOutputs(answers=tuple((token,) for token in answers), again=1.0)
    return run(setting, outputs=outputs)


@pytest.mark.parametrize(("requests", "places"), [(3, 3), (200, PROMPTS)])
def test_the_sample_is_spread_over_the_lengths_and_has_the_longest(requests, places) -> None:
    lengths = [(7 * n) % 1_000 + 1 for n in range(requests)]
    sent = tuple(Request(prompt_tokens=n, output_tokens=8) for n in lengths)
    sample = sample_places(replace(WORKLOAD, requests=sent))
    assert len(sample) == len(set(sample)) == places
    assert lengths.index(max(lengths)) in sample


def test_the_reference_is_without_chunks_else_the_default_else_the_first() -> None:
    measured = verification(failed("small"))
    expected = {
        ("plan", 5): [(None, None)],
        ("default", 6): [("default", 0.0), (None, None)],
        ("off", 5): [("off", 1.0), ("off", 0.0), (None, None)],
    }
    for (setting, answer), compared in expected.items():
        measured = with_outputs_compared(measured.with_run(answering(setting, answer)))
        outputs = [r.outputs for r in measured.runs if r.outputs]
        assert [(one.reference, one.equal) for one in outputs] == compared


def test_an_answer_that_goes_on_is_another_answer() -> None:
    longer = RunOutputs(answers=((5, 6), (7,)), again=1.0)
    runs = (run("plan", outputs=longer), answering("off", 5, 7))
    assert with_outputs_compared(verification(*runs)).runs[0].outputs.equal == 0.5


def test_no_more_differences_than_sending_again_makes_are_noise() -> None:
    reference = RunOutputs(answers=(), again=0.9)
    for equal, noise in ((0.95, True), (0.9, True), (0.85, False)):
        assert is_noise(RunOutputs(answers=(), again=1.0, equal=equal), reference) is noise
