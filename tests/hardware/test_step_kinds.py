"""Steps that are alike count as one kind."""

import pytest
from chunkscope.hardware.step_kinds import kinds_of

from chunkscope.hardware.calibration import StepSamples


def steps(*rows: tuple[int, int, int, float]) -> StepSamples:
    """(prompts of 100 tokens, decoding requests, context of each, seconds)"""
    prompts, decodes, context, seconds = zip(*rows, strict=True)
    return StepSamples(
        setting=("plan",) * len(rows),
        prefill_tokens=tuple(100 * n for n in prompts),
        prefill_pairs=tuple(5_050 * n for n in prompts),
        prefill_requests=prompts,
        decode_requests=decodes,
        decode_context_tokens=tuple(n * c for n, c in zip(decodes, context, strict=True)),
        duration_s=seconds,
    )


def test_those_that_something_held_up_do_not_count():
    found = kinds_of(steps(*[(0, 8, 100, 0.01)] * 8, (0, 8, 100, 9.0)), only_settled=False)
    assert found.duration_s == pytest.approx([0.01])
    assert found.steps == pytest.approx([9])


def test_sizes_and_time_are_means_of_the_same_steps():
    """So that a time that is linear in the sizes stays so."""
    rows = [(0, 8, context, 1e-6 * context) for context in range(100, 110)]
    found = kinds_of(steps(*rows), only_settled=False)
    assert found.duration_s == pytest.approx(1e-6 / 8 * found.decode_context_tokens)


def test_another_number_of_requests_or_a_context_twice_as_long_is_another_kind():
    rows = [(0, 8, 100, 1.0), (0, 9, 100, 1.0), (0, 8, 200, 1.0), (1, 8, 100, 1.0)]
    assert len(kinds_of(steps(*rows), only_settled=False).steps) == 4


def test_a_step_is_not_settled_at_the_start_or_when_many_have_just_ended():
    begun, going, ended = (1, 0, 0, 1.0), (0, 40, 100, 2.0), (0, 20, 100, 3.0)
    rows = steps(begun, going, going, ended, ended, begun, going)
    assert sorted(kinds_of(rows, only_settled=True).steps) == [1, 3]  # ended once, going thrice
    assert kinds_of(rows, only_settled=False).steps.sum() == 7
