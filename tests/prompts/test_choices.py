"""`--choices`: a question with its choices, as MMLU's evaluations write them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands.helpers import analyze, write_jsonl
from tests.prompts.helpers import CHAT, choose, codes, extract, items, lm_eval_sample

QUESTION = {"question": " Which one? \n", "answer": 1}
WRITTEN = "Which one?\nA. red\nB. 2\nC. blue\nAnswer:"
NUMBERED = "Which one?\n1. red\n2. blue\nAnswer:"
LETTERS = {"A": "red", "B": "2", "C": "blue"}
LABELLED = {"text": ["red", "blue"], "label": ["1", "2"]}


@pytest.mark.parametrize(
    ("fields", "option", "written"),
    [
        pytest.param({"choices": ["red", 2, "blue"]}, "choices", WRITTEN, id="list"),
        pytest.param({"choices": '["red", 2, "blue"]'}, "choices", WRITTEN, id="cell"),
        pytest.param({"options": LETTERS}, "options", WRITTEN, id="object"),
        pytest.param({"q": {"c": LABELLED}}, "q.c", NUMBERED, id="labels of its own"),
        pytest.param(LETTERS | {"D": ""}, "A,B,C,D", WRITTEN, id="columns, one empty"),
        pytest.param(LETTERS | {"D": None}, "A, B, C, D", WRITTEN, id="one null"),
    ],
)
def test_choices_are_lettered_lines_after_the_question(fields, option, written) -> None:
    reader = choose(QUESTION | fields, choices=(option,))
    assert (reader.kind, reader.label) == ("text", "question + choices")
    assert items(reader, QUESTION | fields) == [written]
    assert not reader.notes


RECORD = {"context": "C.", "question": "Q?", "options": ["x", "y"]}
LINES = "\nA. x\nB. y\nAnswer:"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"template": "Q: {{ question }}"}, "Q: Q?", id="template"),
        pytest.param({"fields": ("context", "question")}, "C.\n\nQ?", id="two fields"),
    ],
)
def test_they_go_with_a_prefix_and_what_makes_the_text(options, text) -> None:
    reader = choose(RECORD, prefix="Shots. ", choices=("options",), **options)
    assert items(reader, RECORD) == [f"Shots. {text}{LINES}"]
    assert "options" in (reader.columns or ())


@pytest.mark.parametrize(
    "value",
    [None, "red, blue", ["red", None], ["red"], ["x"] * 27, ["red", "\ud800"]],
    ids=repr,
)
def test_a_row_without_choices_is_a_bad_row(value: Any) -> None:
    good = {"question": "Q", "choices": ["x", "y"]}
    reader = choose(good, choices=("choices",))
    prompts, bad = extract(reader, good, {"question": "Q", "choices": value}, good)
    assert ([prompt.position for prompt in prompts], bad) == ([1, 3], [2])


@pytest.mark.parametrize(
    "record", [{"messages": CHAT}, {"input_length": 3, "output_length": 1}], ids=str
)
def test_chats_and_lengths_have_no_use_for_them(record) -> None:
    row = record | {"choices": ["x", "y"]}
    reader = choose(row, choices=("choices",), prefix="P")
    assert codes(reader.notes) == ["unused_with_chat"] * 2


@pytest.mark.parametrize(
    ("fields", "option"),
    [
        pytest.param({"choices": ["x", "y" * 99]}, "choices", id="list"),
        pytest.param({"Options": {"A": "x", "B": "y"}}, "Options", id="object"),
        pytest.param({"endings": ["x", "y"]}, "endings", id="endings"),
        pytest.param({"A": "x", "B": "y", "C": "z"}, "A,B,C", id="letters"),
        pytest.param(
            {"choice_a": "x", "choice_b": "x", "choice_c": "x"},
            "choice_a,choice_b,choice_c",
            id="named letters",
        ),
    ],
)
@pytest.mark.parametrize("options", [{}, {"fields": ("question",)}], ids=str)
def test_multiple_choice_without_its_choices_is_noted(fields, option, options) -> None:
    (note,) = choose(QUESTION | fields, **options).uncounted
    assert (note.code, note.values) == ("choices_uncounted", {"fields": option})


@pytest.mark.parametrize(
    ("record", "options"),
    [
        pytest.param({"options": {"temperature": 0.5}}, {}, id="other options"),
        pytest.param({"choices": []}, {}, id="none"),
        pytest.param({"A": "x", "B": "y"}, {}, id="two columns"),
        pytest.param({"a": "x", "b": "y", "c": "z"}, {}, id="small letters"),
        pytest.param(
            {"choices": ["x", "y"]},
            {"fields": ("question", "choices")},
            id="in the prompt already",
        ),
    ],
)
def test_nothing_is_noted_of_other_data(record, options) -> None:
    assert not choose(QUESTION | record, **options).uncounted


# What lm-eval's own MMLU task makes of rows, through its own template.
LM_EVAL = """
import json, sys, pathlib, yaml, lm_eval
from lm_eval.utils import apply_template
folder = pathlib.Path(lm_eval.__file__).parent / "tasks" / "mmlu" / "default"
document = yaml.safe_load((folder / "_default_template_yaml").read_text())
texts = [apply_template(document["doc_to_text"], row) for row in json.load(sys.stdin)]
print("texts:" + json.dumps(texts))
"""


@pytest.mark.real
def test_the_form_is_lm_evals(harness_python: Path) -> None:
    choices = ["a", "b.", "c d", "e"]
    rows = [{"question": f" What is {n}?\n", "choices": choices} for n in range(5)]
    done = subprocess.run(
        [harness_python, "-c", LM_EVAL],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        check=True,
    )
    rendered = json.loads(done.stdout.rpartition("texts:")[2])
    assert items(choose(*rows, choices=("choices",)), *rows) == rendered


def test_likelihoods_are_a_request_for_each_choice_from_rows_as_from_a_log(
    tmp_path: Path,
) -> None:
    rows = []
    samples = []
    for number in range(3):
        text = f"Is {number} odd?\nA. yes\nB. no\nAnswer:"
        rows.append({"question": f"Is {number} odd?", "choices": ["yes", "no"]})
        samples.append(lm_eval_sample(number, [text, " A"], [text, " B"]))
    write_jsonl(tmp_path / "rows.jsonl", rows)
    write_jsonl(tmp_path / "log.jsonl", samples)
    run = analyze(tmp_path, "rows.jsonl", "log.jsonl", "--task", "loglikelihood")
    assert run.code == 0, run.err
    from_rows, from_log = run.profile["datasets"]
    assert from_rows["lengths"] == from_log["lengths"]
    assert from_rows["log"]["kinds"] == from_log["log"]["kinds"] == {"likelihood": 6}


def test_rows_without_choices_are_counted_as_generation() -> None:
    reader = choose({"question": "What else?"}, task="loglikelihood")
    assert codes(reader.notes) == ["nothing_to_score"]
