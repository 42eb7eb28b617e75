"""What is said of outputs: of which prompts, with what they are compared, and what is noise."""

from dataclasses import replace

import pytest

from chunkscope.report.output_words import TIES, outputs_said
from chunkscope.verification.outputs import RunOutputs, compared
from chunkscope.verification.references import with_references
from chunkscope.verification.result import Subject, Verification
from chunkscope.vllm.enums import Task
from tests.build import WORKLOAD, run, verification
from tests.gating.test_outputs import chosen, said

REAL = Subject(name="tiny", load_format="auto")


def measured(differ: int, again: int = 0, of=said, **more) -> Verification:
    """The plan beside off, ten prompts each; so many differ, and so many when sent again."""
    outputs = RunOutputs(tokens=4, again=compared(of(10), of(10, again)))
    rows = [run(name, 1.0, outputs=outputs) for name in ("plan", "off")]
    made = verification(*rows, **{"model": REAL, **more})
    return with_references(made, {"plan": of(10, differ), "off": of(10)})


def test_nothing_is_said_where_nothing_was_compared():
    assert list(outputs_said(verification(run("plan", 1.0)))) == []


def test_equal_outputs_need_one_sentence():
    (sentence,) = outputs_said(measured(0))
    assert sentence.startswith(
        "Outputs: 10 of the prompts (random token ids), greedy, at most 4 tokens each. Compared "
        "with off, and with the same setting when they are sent again in the opposite order"
    )


def test_real_prompts_are_named():
    (sentence,) = outputs_said(measured(0, source="real prompts of gsm8k"))
    assert "10 of the prompts (real prompts of gsm8k)" in sentence


def test_a_single_setting_is_compared_with_itself_alone():
    outputs = RunOutputs(tokens=4, again=compared(said(10), said(10)))
    (sentence,) = outputs_said(verification(run("endpoint", 1.0, outputs=outputs), model=REAL))
    assert "each. Compared with the same setting when" in sentence


@pytest.mark.parametrize(
    ("again", "end"),
    [
        (1, "differ from off's, and 1 when the same setting is sent again."),
        (3, "differ from off's, no more than when the same setting is sent again."),
    ],
)
def test_chunking_is_not_blamed_for_batching(again, end):
    *_, sentence = outputs_said(measured(3, again))
    assert sentence == f"plan: 3 of 10 outputs {end}"


def test_choices_are_called_choices():
    workload = replace(WORKLOAD, task=Task.LOGLIKELIHOOD)
    first, last = outputs_said(measured(2, of=chosen, workload=workload))
    assert "up to 4 endings of 4 tokens from the middle of the prompts" in first
    assert last.startswith("plan: 2 of 10 choices differ from off's")


def test_random_weights_are_said_to_tie():
    dummy = Subject(name="tiny", load_format="dummy")
    assert TIES in outputs_said(measured(0, model=dummy))
    assert TIES.startswith("Random weights: ties decide.")
