"""`--choices`: a question with its choices, in the form that MMLU's evaluations have."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands.helpers import analyze, write_jsonl
from tests.prompts.helpers import CHAT, choose, codes, extract, items, lm_eval_sample

QUESTION = {"question": " Which one? \n", "answer": 1}
WRITTEN = "Which one?\nA. red\nB. 2\nC. blue\nAnswer:"


@pytest.mark.parametrize(
    ("fields", "given", "written"),
    [
        ({"choices": ["red", 2, "blue"]}, "choices", WRITTEN),
        ({"choices": '["red", 2, "blue"]'}, "choices", WRITTEN),
        ({"choices": "['red', 2, 'blue']"}, "choices", WRITTEN),
        ({"options": {"A": "red", "B": "2", "C": "blue"}}, "options", WRITTEN),
        ({"choices": {"text": ["red", "2", "blue"], "label": [*"ABC"]}}, "choices", WRITTEN),
        ({"choices": {"text": ["red", "2", "blue"]}}, "choices", WRITTEN),
        ({"A": "red", "B": "2", "C": "blue", "D": ""}, "A,B,C,D", WRITTEN),
        ({"A": "red", "B": "2", "C": "blue", "D": None}, "A, B, C, D", WRITTEN),
        # labels of the data's own
        ({"q": {"text": [*"xy"], "label": [*"12"]}}, "q", "Which one?\n1. x\n2. y\nAnswer:"),
    ],
    ids=str,
)  # fmt: skip
def test_choices_are_lettered_lines_after_the_question(fields, given, written) -> None:
    selection = choose(QUESTION | fields, choices=(given,))
    assert (selection.kind, selection.label) == ("text", "question + choices")
    assert items(selection, QUESTION | fields) == [written]
    assert not selection.notes


def test_it_goes_with_a_prefix_a_template_and_several_fields() -> None:
    record = {"context": "C.", "question": "Q?", "options": ["x", "y"]}
    lines = "\nA. x\nB. y\nAnswer:"
    ask = {"prefix": "Shots.\n\n", "choices": ("options",)}
    template = choose(record, template="Question: {{ question }}", **ask)
    assert items(template, record) == [f"Shots.\n\nQuestion: Q?{lines}"]
    fields = choose(record, fields=("context", "question"), **ask)
    assert items(fields, record) == [f"Shots.\n\nC.\n\nQ?{lines}"]
    assert fields.columns == {"context", "question", "options"}
    repeated = choose(record | {"A": "x", "B": "y"}, choices=("A", "B"))
    assert items(repeated, record | {"A": "x", "B": "y"}) == [f"Q?{lines}"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "red, blue",
        "['red' 'blue']",
        ["red", None],
        ["red"],
        ["x"] * 27,
        ["red", "\ud800"],
    ],
    ids=repr,
)
def test_a_row_without_choices_is_a_bad_row(value: Any) -> None:
    good = {"question": "Q", "choices": ["x", "y"]}
    selection = choose(good, choices=("choices",))
    prompts, bad = extract(selection, good, {"question": "Q", "choices": value}, good)
    assert ([prompt.position for prompt in prompts], bad) == ([1, 3], [2])


def test_chats_and_lengths_have_no_use_for_them() -> None:
    for record in ({"messages": CHAT}, {"input_length": 3, "output_length": 1}):
        selection = choose(
            record | {"choices": ["x", "y"]}, choices=("choices",), prefix="P"
        )
        assert codes(selection.notes) == ["unused_with_chat"] * 2


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        pytest.param({"choices": ["x", "y" * 99]}, "choices", id="list"),
        pytest.param({"Options": {"A": "x", "B": "y"}}, "Options", id="object"),
        pytest.param({"answer_choices": ["x", "y"]}, "answer_choices", id="answer choices"),
        pytest.param({"endings": ["x", "y"]}, "endings", id="endings"),
        pytest.param({"A": "x", "B": "y", "C": "z"}, "A,B,C", id="letters"),
        pytest.param({f"choice_{n}": "x" for n in "abc"}, "choice_a,choice_b,choice_c",
                     id="named letters"),
    ],
)  # fmt: skip
def test_multiple_choice_without_its_choices_is_noted(
    fields: dict[str, Any], named: str
) -> None:
    for options in ({}, {"fields": ("question",)}):
        (note,) = choose(
            {"question": "Which one of them?"} | fields, **options
        ).uncounted
        assert (note.code, note.values) == ("choices_uncounted", {"fields": named})


@pytest.mark.parametrize(
    ("record", "options"),
    [
        ({"options": {"temperature": 0.5}}, {}),
        ({"choices": []}, {}),
        (
            {f"answer_{n}": "x" for n in range(3)},
            {},
        ),  # FreshQA's: all of them are right
        (
            {"choices": ["x", "y"], "question": "Which of them? (a) x (b) y"},
            {},
        ),  # AGIEval's
        ({"A": "x", "B": "y"}, {}),
        ({"a": "x", "b": "y", "c": "z"}, {}),
        ({"choices": ["x", "y"]}, {"template": "{{ question }} {{ choices }}"}),
        ({"choices": ["x", "y"]}, {"fields": ("question", "choices")}),
    ],
    ids=str,
)
def test_nothing_is_noted_of_other_data(
    record: dict[str, Any], options: dict[str, Any]
) -> None:
    assert not choose({"question": "Which one of them?"} | record, **options).uncounted


# What lm-eval's own MMLU task makes of rows, through its own template.
_LM_EVAL = """
import json, sys, pathlib, yaml, lm_eval
from lm_eval.utils import apply_template
folder = pathlib.Path(lm_eval.__file__).parent / "tasks" / "mmlu" / "default"
template = yaml.safe_load((folder / "_default_template_yaml").read_text())["doc_to_text"]
print("texts:" + json.dumps([apply_template(template, row) for row in json.load(sys.stdin)]))
"""


@pytest.mark.real
def test_the_form_is_lm_evals(harness_python: Path) -> None:
    choices = ["a", "b.", "c d", "e"]
    rows = [{"question": f" What is {n}?\n", "choices": choices} for n in range(5)]
    done = subprocess.run(
        [harness_python, "-c", _LM_EVAL],
        input=json.dumps(rows), capture_output=True, text=True, check=True,
    )  # fmt: skip
    rendered = json.loads(done.stdout.rpartition("texts:")[2])
    assert items(choose(*rows, choices=("choices",)), *rows) == rendered


def test_likelihoods_are_a_request_for_each_choice_from_rows_as_from_a_log(
    tmp_path: Path,
) -> None:
    rows = [{"question": f"Is {n} odd?", "choices": ["yes", "no"]} for n in range(3)]
    samples = [
        lm_eval_sample(
            n, *([f"Is {n} odd?\nA. yes\nB. no\nAnswer:", f" {a}"] for a in "AB")
        )
        for n in range(3)
    ]
    write_jsonl(tmp_path / "rows.jsonl", [*rows, {"question": "And this?"}])
    write_jsonl(tmp_path / "log.jsonl", samples)
    write_jsonl(tmp_path / "text.jsonl", [{"question": "What else?"}])
    run = analyze(
        tmp_path, "rows.jsonl", "log.jsonl", "text.jsonl", "--task", "loglikelihood"
    )
    from_rows, from_log, text = run.profile["datasets"]
    assert (run.code, from_rows["skipped"]) == (3, 1), run.err
    assert from_rows["lengths"] == from_log["lengths"]
    for dataset in (from_rows, from_log):
        assert (dataset["rows"], dataset["log"]["kinds"]) == (6, {"likelihood": 6})
    assert (text["rows"], text["notes"][0]["code"]) == (1, "nothing_to_score")
