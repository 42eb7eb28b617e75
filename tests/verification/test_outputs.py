"""Outputs of two sendings beside each other; no engine. test_real_outputs.py has one."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.simulation.workload import Request, Workload
from chunkscope.verification.outputs import (
    ENDINGS,
    OUTPUT_TOKENS,
    PROMPTS,
    QUESTIONS,
    ComparedOutputs,
    RunOutputs,
    SpokenOutputs,
    compared,
    impossible,
    only_noise,
    sample_of,
)
from chunkscope.verification.plausible import contradiction
from chunkscope.verification.references import reference_of, with_references
from chunkscope.verification.result import Verification
from chunkscope.verification.rows import SpokenFile
from chunkscope.vllm.enums import Task
from tests.build import WORKLOAD, failed, run, verification

SURE, NEAR = ((5, -0.1), (6, -2.0)), ((5, -0.69), (6, -0.70))


def answers(*each: tuple[Any, ...]) -> SpokenOutputs:
    return SpokenOutputs(answers=each)


def scores(*each: tuple[float, ...]) -> SpokenOutputs:
    return SpokenOutputs(scores=each)


def workload(*prompts: int, task: Task = Task.GENERATE) -> Workload:
    requests = tuple(Request(prompt_tokens=n, output_tokens=8) for n in prompts)
    return replace(WORKLOAD, requests=requests, task=task)


# -- answers --------------------------------------------------------------------------------------


def test_equal_answers_still_show_how_much_their_probabilities_moved():
    found = compared(answers((SURE, NEAR)), answers((SURE, ((5, -0.68), (6, -0.71)))))
    assert (found.prompts, found.equal, found.different) == (1, 1.0, ())
    assert found.first_difference is found.difference_logprob is found.flipped_choices is None
    assert found.mean_logprob_change == pytest.approx(0.005)
    assert found.largest_logprob_change == pytest.approx(0.01)


def test_the_first_token_that_differs_and_what_its_probability_did():
    tied = ((6, -0.69), (5, -0.72))
    one, other = answers((SURE, NEAR, SURE), (SURE,)), answers((SURE, tied, NEAR), (SURE,))
    found = compared(one, other)
    assert found.equal == 0.5
    (difference,) = found.different
    assert (difference.prompt, difference.at) == (0, 2)
    assert difference.logprob_change == pytest.approx(0.03)  # of token 5, under both
    assert (found.first_difference, found.difference_logprob) == (2, difference.logprob_change)
    assert found.mean_logprob_change == pytest.approx(0.03 / 3), "nothing after a difference counts"


def test_a_token_that_the_other_does_not_even_name_changed_at_least_so_much():
    found = compared(answers((SURE,)), answers((((8, -0.2), (9, -4.0)),)))
    assert found.difference_logprob == pytest.approx(3.9)


def test_an_answer_that_ends_earlier_is_another_answer():
    found = compared(answers((SURE, SURE)), answers((SURE,)))
    (difference,) = found.different
    assert (difference.at, difference.logprob_change) == (2, None)
    assert found.difference_logprob is None
    assert found.equal == 0.0


def test_the_earliest_difference_of_all_is_told():
    tied = ((6, -0.69), (5, -0.70))
    one = answers((NEAR, NEAR, NEAR), (NEAR, NEAR, NEAR))
    other = answers((NEAR, NEAR, tied), (NEAR, tied, NEAR))
    found = compared(one, other)
    assert [difference.at for difference in found.different] == [3, 2]
    assert found.first_difference == 2


# -- choices --------------------------------------------------------------------------------------


def test_a_choice_flips_when_another_ending_becomes_the_likeliest():
    one, other = scores((-3.0, -3.1, -9.0), (-1.0, -5.0)), scores((-3.2, -3.1, -9.0), (-1.1, -5.0))
    found = compared(one, other)
    assert (found.prompts, found.equal, found.flipped_choices) == (2, 0.5, 1)
    (flipped,) = found.different
    assert (flipped.prompt, flipped.at) == (0, None)
    assert flipped.logprob_change == pytest.approx(0.2)
    assert found.largest_logprob_change == pytest.approx(0.2)
    assert found.mean_logprob_change == pytest.approx(0.3 / 5)
    assert found.first_difference is None


spoken = st.lists(
    st.tuples(st.integers(0, 3), st.floats(-20, 0)),
    min_size=1,
    max_size=3,
    unique_by=lambda token: token[0],
).map(tuple)
answer = st.lists(spoken, max_size=4).map(tuple)


@given(st.data(), st.integers(1, 5), st.booleans())
def test_whatever_is_compared_does_not_contradict_itself(data, prompts, choosing):
    def sent() -> SpokenOutputs:
        if choosing:
            each = st.tuples(*[st.tuples(*[st.floats(-50, 0)] * 3)] * prompts)
            return SpokenOutputs(scores=data.draw(each))
        return SpokenOutputs(answers=data.draw(st.tuples(*[answer] * prompts)))

    first, again, other = sent(), sent(), sent()
    task = Task.LOGLIKELIHOOD if choosing else Task.GENERATE
    found = RunOutputs(
        tokens=4, again=compared(first, again), against="off", beside=compared(other, first)
    )
    assert list(impossible(found, workload(*[9] * prompts, task=task))) == []
    same = compared(first, first)
    assert (same.equal, same.different) == (1.0, ())
    assert not same.largest_logprob_change


# -- what is sent ---------------------------------------------------------------------------------


def test_the_sample_covers_all_lengths_and_has_the_longest():
    found = sample_of(workload(*range(1, 1_001)))
    lengths = [place + 1 for place in found.places]
    assert len(lengths) == len(set(lengths)) == PROMPTS
    assert lengths == sorted(lengths), "in the order in which they are sent"
    assert max(lengths) == 1_000
    assert min(lengths) < 20
    assert (found.tokens, found.endings) == (OUTPUT_TOKENS, None)


def test_few_prompts_are_all_sent():
    assert sample_of(workload(7, 1, 9)).places == (0, 1, 2)


def test_likelihoods_are_asked_of_prompts_that_have_room_for_an_ending():
    found = sample_of(workload(1, 5, *[100] * 50, task=Task.LOGLIKELIHOOD))
    assert len(found.places) == QUESTIONS
    assert 0 not in found.places
    assert found.endings == ENDINGS
    assert sample_of(workload(1, 5, task=Task.LOGLIKELIHOOD)).tokens == 2
    assert sample_of(workload(1, 1, task=Task.LOGLIKELIHOOD)) is None


# -- which run is the reference -------------------------------------------------------------------

SAID = answers((SURE,), (NEAR,))
OTHER = answers((SURE,), (((6, -0.69), (5, -0.7)),))
NOTHING = RunOutputs(tokens=8, again=compared(SAID, SAID))


def checked(*names: str, **same_as: tuple[str, ...]) -> Verification:
    made = [run(name, 1.0, outputs=NOTHING, same_as=same_as.get(name, ())) for name in names]
    # Of figures made by hand nothing is asked here.
    return verification(*(replace(one, repeats=(), figures=None) for one in made))


@pytest.mark.parametrize(
    ("names", "same_as", "expected"),
    [
        (("plan", "default", "off"), {}, "off"),
        (("plan", "default"), {}, "default"),
        (("plan", "default"), {"plan": ("off",)}, "plan"),
        (("plan", "max-num-seqs=8"), {}, "plan"),
    ],
)
def test_without_chunks_is_the_reference_or_what_comes_nearest(names, same_as, expected):
    made = checked(*names, **same_as)
    assert reference_of(made).setting == expected
    found = with_references(made, dict.fromkeys(names, SAID))
    assert {r.setting: r.outputs.against for r in found.runs} == {
        name: None if name == expected else expected for name in names
    }
    assert not any(contradiction(one, found) for one in found.runs)


def test_a_row_that_failed_is_no_reference():
    made = verification(run("plan", 1.0, outputs=NOTHING), failed("off"))
    assert reference_of(made).setting == "plan"
    assert reference_of(verification(run("plan", 1.0))) is None


def test_the_reference_may_come_after_the_rows_that_are_compared_with_it():
    """Rows are kept one by one: the plan's first, and off later."""
    first = with_references(checked("plan"), {"plan": OTHER})
    assert first.run("plan").outputs.beside is None
    both = first.with_run(checked("off").runs[0])
    found = with_references(both, {"plan": OTHER, "off": SAID})
    assert found.run("plan").outputs.beside == compared(SAID, OTHER)
    assert found.run("plan").outputs.beside.equal == 0.5
    assert found.run("off").outputs.against is None


def test_what_was_said_is_found_again_by_the_run_that_said_it(tmp_path):
    made = run("max-num-seqs=8", 1.0, outputs=NOTHING)
    assert SpokenFile.of(made, tmp_path) is None
    SpokenFile(started=made.started, said=SAID).save(tmp_path, made.setting)
    assert SpokenFile.of(made, tmp_path) == SAID
    assert SpokenFile.of(replace(made, started="later"), tmp_path) is None
    (tmp_path / "verify-max-num-seqs-8.outputs.json").write_bytes(b'{"said": 7}')
    assert SpokenFile.of(made, tmp_path) is None


def test_noise_is_what_the_same_setting_does_by_itself():
    noisy = replace(NOTHING, again=compared(SAID, OTHER))
    beside = {"against": "off", "beside": compared(SAID, OTHER)}
    assert only_noise(replace(noisy, **beside), [NOTHING])
    assert only_noise(replace(NOTHING, **beside), [noisy])
    assert not only_noise(replace(NOTHING, **beside), [NOTHING])


# -- in the artefact ------------------------------------------------------------------------------


def made_with(**changed: Any) -> Verification:
    spoken_now = {"plan": OTHER, "off": SAID}
    found = with_references(checked("plan", "off"), spoken_now)
    outputs = found.run("plan").outputs
    return found.with_run(replace(found.run("plan"), outputs=replace(outputs, **changed)))


def test_it_is_written_and_read_back_and_older_files_have_none_of_it():
    found = made_with()
    assert Verification.from_json(found.to_json()) == found
    assert "outputs" not in verification(run("plan", 1.0)).to_json()["runs"][0]


def worse(**changed: Any) -> ComparedOutputs:
    return replace(compared(SAID, OTHER), **changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"beside": worse(equal=1.0)}, "the share of equal outputs"),
        ({"beside": worse(different=())}, "the share of equal outputs"),
        ({"beside": worse(prompts=9)}, "outputs of 9 of 2 prompts"),
        ({"beside": worse(prompts=0)}, "outputs of 0 of 2 prompts"),
        ({"beside": worse(different=worse().different * 2, equal=0.0)}, "a prompt differs twice"),
        ({"beside": worse(first_difference=2)}, "the first difference"),
        ({"beside": worse(flipped_choices=0)}, "the flipped choices"),
        ({"beside": worse(difference_logprob=None)}, "the change of log-probability"),
        ({"beside": worse(largest_logprob_change=0.0)}, "by more than they did at most"),
        ({"beside": worse(mean_logprob_change=None)}, "nobody says by how much"),
        ({"tokens": 0}, "a token that was not asked for"),
        ({"beside": None}, "with those of nobody"),
        ({"against": None}, "with those of nobody"),
        ({"against": "plan"}, "with another run's"),
        ({"against": None, "beside": None}, "with another run's"),
        ({"again": replace(NOTHING.again, prompts=1)}, "other prompts were sent again"),
    ],
)
def test_outputs_that_contradict_themselves_are_noticed(changed, said):
    found = made_with(**changed)
    plan = next(one for one in found.runs if one.setting == "plan")
    assert said in contradiction(plan, found)
