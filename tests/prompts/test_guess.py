"""The prompt is found by the first records of a dataset, and by nothing else.

The rows of public evaluation sets are made up here after their schemas: names and
shapes of the fields are the sets' own, the text is not.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chunkscope.artefacts.note import Note
from chunkscope.errors import InputError
from chunkscope.prompts.fields import field_table, fields_of
from tests.commands.helpers import analyze, write_jsonl
from tests.prompts.helpers import CHAT, choose, codes, extract, items

Row = dict[str, Any]
LONG = "A paragraph about rivers and the mountains they come from. " * 40
CODE = "def solve(x):\n    return x\n" * 30
USER = {"role": "user", "content": "Please look at it for me."}
ANSWER = {"role": "assistant", "content": "I looked and it is fine."}


@dataclass(frozen=True)
class PublicSet:
    row: Row
    label: str
    note: str = ""  # what the prompt lacks: a code, and the options or fields of it


SETS = {
    "GPQA": PublicSet(
        {
            "Question": "What energy is it?",
            "Correct Answer": "3 eV",
            "Explanation": LONG,
        },
        "Question",
    ),
    "NarrativeQA": PublicSet(
        {
            "document": {"id": "a1", "text": LONG},
            "question": {"text": "Who is it?"},
            "answers": [{"text": "Bob"}],
        },
        "question.text",
        "left_out --field=document.text --field=question.text",
    ),
    "NarrativeQA without a document": PublicSet(
        {"context": LONG, "question": {"text": "Who is it?"}},
        "question.text",
        "left_out --field=context --field=question.text",
    ),
    "SWE-bench": PublicSet(
        {
            "instance_id": "astropy__astropy-1",
            "patch": CODE,
            "hints_text": LONG,
            "problem_statement": "The matrix is wrong.",
            "requirements": "It must work.",
            "image": "docker.io/swe/eval.x:latest",
        },
        "problem_statement",
        "left_out --field=requirements --field=problem_statement",
    ),
    "MT-Bench": PublicSet(
        {"question_id": 1, "turns": ["Compose a post.", "Rewrite it."]},
        "turns[0]",
        "first_counted --each=turns",
    ),
    "LiveCodeBench": PublicSet(
        {
            "question_title": "Short Sort",
            "question_content": "There are cards. ",
            "public_test_cases": '[{"input": "6 a"}]' * 99,
            "starter_code": "def f(x): ..",
        },
        "question_content",
        "left_out --field=starter_code --field=question_content",
    ),
    "CRUXEval": PublicSet(
        {"code": CODE, "input": "3, [3]", "output": "[2]", "id": "sample_1"},
        "input",
        "left_out --field=code --field=input",
    ),
    "BigCodeBench": PublicSet(
        {"complete_prompt": f"{LONG} 1", "instruct_prompt": "Write it."},
        "complete_prompt",
    ),
    "Multi-IF": PublicSet(
        {"turn_1_prompt": str(USER), "turn_2_prompt": str(USER)}, "turn_1_prompt (chat)"
    ),
    "BFCL v3": PublicSet({"id": "live_1", "question": [[USER]]}, "question[0] (chat)"),
    "BFCL v1": PublicSet({"id": "live_1", "question": [USER]}, "question (chat)"),
    "xLAM": PublicSet(
        {"query": "What is its area?", "tools": '[{"name": "f"}]', "answers": "[]"},
        "query",
        "left_out --field=tools --field=query",
    ),
    "ARC as published": PublicSet(
        {
            "id": "Mercury_1",
            "answerKey": "A",
            "question": {"stem": "Which factor is it?"},
        },
        "question.stem",
    ),
    "RepoBench": PublicSet(
        {
            "context": [{"path": "a.py", "snippet": CODE}],
            "import_statement": "import b",
            "cropped_code": CODE[:60],
        },
        "cropped_code",
        "left_out --field=context[].snippet --field=cropped_code",
    ),
    "LongBench v2": PublicSet(
        {"_id": "66f3", "question": "What is it?", "context": LONG}
        | {f"choice_{letter}": "one" for letter in "ABCD"},
        "question",
        "left_out --field=context --field=question",
    ),
    "HotpotQA": PublicSet(
        {
            "id": "5a7",
            "question": "Were both there?",
            "answer": "yes",
            "context": {"title": ["A b"], "sentences": [[LONG], ["Two of them."]]},
        },
        "question",
        "left_out --field=context.sentences[][] --field=question",
    ),
    "NATURAL PLAN": PublicSet(
        {"prompt_0shot": "Plan days.", "prompt_5shot": f"{LONG} Plan days."},
        "prompt_5shot",
    ),
    "WildBench": PublicSet(
        {"conversation_input": [USER], "intent": "To know why.", "user_prompt": ""},
        "conversation_input (chat)",
    ),
    "HelpSteer3": PublicSet(
        {"context": [USER], "response1": LONG, "response2": LONG}, "context (chat)"
    ),
    "COPA": PublicSet(
        {
            "premise": "My body cast shadows.",
            "choice1": "The sun rose.",
            "choice2": "The grass was cut.",
            "question": "cause",
        },
        "premise",
    ),
    "SQuAD": PublicSet(
        {"context": LONG, "question": "Why is it?", "answers": {"text": ["so"]}},
        "question",
        "left_out --field=context --field=question",
    ),
    "HarmBench": PublicSet(
        {"Behavior": "How is it?", "Tags": "", "BehaviorID": "a_1"}, "Behavior"
    ),
    "NLI": PublicSet(
        {"premise": "a b", "hypothesis": "c d", "label": 0}, "premise + hypothesis"
    ),
    "GLUE": PublicSet(
        {"sentence1": "a b", "sentence2": "c d", "idx": 1}, "sentence1 + sentence2"
    ),
    "Arena-Hard": PublicSet(
        {"cluster": "A b", "turns": [{"content": "How is it?"}]}, "turns[0].content"
    ),
    "NeMo Gym": PublicSet(
        {"responses_create_params": {"input": CHAT}},
        "responses_create_params.input (chat)",
    ),
    "Dolly": PublicSet(
        {"instruction": "Add it up.", "context": LONG, "response": "3"},
        "instruction",
        "left_out --field=context --field=instruction",
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_the_prompt_of_a_public_set_is_found_and_what_it_lacks_is_noted(name) -> None:
    public_set = SETS[name]
    reader = choose(*[public_set.row] * 8)
    assert reader.label == public_set.label
    lacking = [note for note in reader.uncounted if note.code != "choices_uncounted"]
    assert [in_short(note) for note in lacking] == [public_set.note][: len(lacking)]
    assert bool(lacking) is bool(public_set.note)
    assert len(items(reader, public_set.row)) == 1


def in_short(note: Note) -> str:
    """The code of a note, and the options that it proposes."""
    return " ".join((note.code, *note.values["use"]))


EACH_SETS = {
    "L-Eval": (
        {"instructions": ["How many?", "Why?"], "outputs": ["1", "2"], "input": LONG},
        "--field input --field instructions --each instructions",
    ),
    "CoQA": (
        {"source": "wiki", "story": LONG, "questions": ["When?"], "answers": ["1475"]},
        "--field story --field questions --each questions",
    ),
    "QMSum": (
        {
            "meeting_transcripts": [{"content": LONG}],
            "general_query_list": [{"query": "Why?"}],
        },
        "--field 'meeting_transcripts[].content' --field general_query_list.query "
        "--each general_query_list",
    ),
    "SQuAD as published": (
        {
            "title": "A b",
            "paragraphs": [{"context": "a b", "qas": [{"question": "c?"}]}],
        },
        "--field paragraphs.context --field paragraphs.qas.question --each paragraphs "
        "--each paragraphs.qas",
    ),
}


@pytest.mark.parametrize("name", EACH_SETS)
def test_a_set_with_lists_of_questions_comes_with_the_options_that_count_it(
    name,
) -> None:
    row, options = EACH_SETS[name]
    with pytest.raises(InputError) as caught:
        choose(row, row)
    assert f" {options}?" in (caught.value.hint or "")


LENGTHS = {"input_length": 1, "output_length": 2}
CASES: dict[str, tuple[Any, str, str]] = {
    "messages before prompt": (
        {"messages": CHAT, "prompt": "x"},
        "chat",
        "messages (chat)",
    ),
    "request with messages": (
        {"body": {"messages": CHAT}},
        "chat",
        "body.messages (chat)",
    ),
    "request with a prompt": (
        {"url": "u", "body": {"prompt": "p"}},
        "text",
        "body.prompt",
    ),
    "request with input": ({"body": {"input": CHAT}}, "chat", "body.input (chat)"),
    "response request": (
        {"url": "/v1/responses", "body": {"input": "p"}},
        "chat",
        "body.input (chat)",
    ),
    "embedding request": (
        {"url": "/v1/embeddings", "body": {"input": "p"}},
        "text",
        "body.input",
    ),
    "user prompt": (
        {"system_prompt": LONG, "user_prompt": "Why so?"},
        "text",
        "user_prompt",
    ),
    "ShareGPT": (
        {"conversations": [{"from": "Human", "value": "x"}]},
        "chat",
        "conversations (chat)",
    ),
    "chat under prompt": ({"prompt": CHAT, "question": "x"}, "chat", "prompt (chat)"),
    "chat as a cell": ({"prompt": str(CHAT)}, "chat", "prompt (chat)"),
    "chat of another name": ({"trajectory": CHAT, "n": 3}, "chat", "trajectory (chat)"),
    "chat is the record": (CHAT, "chat", "record (chat)"),
    "plain lines": ("Why is it so?", "text", "whole file"),
    "lengths": ({"name": "Big run"} | LENGTHS, "lengths", "input_length (lengths)"),
    "text beside lengths": ({"text": "x y"} | LENGTHS, "text", "text"),
    "token ids": (
        {"timestamp": 3, "prompt_token_ids": [1]},
        "lengths",
        "prompt_token_ids (lengths)",
    ),
    "usage": (
        {"id": "a_1", "usage": {"prompt_tokens": 5}},
        "lengths",
        "usage.prompt_tokens (lengths)",
    ),
    "metrics": (
        {"metrics": {"input_sequence_length": {"value": 5}}},
        "lengths",
        "metrics.input_sequence_length (lengths)",
    ),
    "capital": ({"Problem": "What is it?", "id": 3}, "text", "Problem"),
    "only text": (
        {"id": 3, "remark": "What is it?", "answer": "It is so."},
        "text",
        "remark",
    ),
    "odd key": ({"k\ud800": "a b"}, "text", "k?"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_prompt_is_found(name) -> None:
    record, kind, label = CASES[name]
    reader = choose(record)
    assert (reader.kind, reader.label) == (kind, label)
    assert len(items(reader, record, record)) == 2


def test_the_answer_for_a_file_does_not_depend_on_other_files(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"q": "Big run it is", "input_length": "512"}])
    write_jsonl(tmp_path / "b.jsonl", [{"q": "Big run it is", "input_length": "n/a"}])
    fields = []
    for files in (("a.jsonl", "b.jsonl"), ("b.jsonl", "a.jsonl")):
        run = analyze(tmp_path, *files)
        assert run.code == 0, run.err
        fields.append({one["name"]: one["field"] for one in run.profile["datasets"]})
    assert fields[0] == fields[1] == {"a": "input_length (lengths)", "b": "q"}


def test_fields_are_looked_for_four_levels_deep_and_fifty_wide() -> None:
    deep: Row = {"a": {"b": {"c": {"d": {"e": "x"}}}}, "t": ["so"] * 60}
    chars = {field.path.text: field.chars for field in fields_of([deep])}
    assert chars == {"a.b.c.d": 0, "t[]": 100}
    assert field_table(fields_of([{f"k{n}": n for n in range(31)}]))["more"] == 1


def test_the_surest_name_decides_where_half_of_the_records_have_it() -> None:
    rows = [{"question": "a a"}, {"question": "b b"}, {"prompt": "p p"}]
    assert choose(*rows[1:]).label == "prompt"
    assert choose(*rows).label == "question"
    prompts, bad = extract(choose(*rows), *rows)
    assert ([prompt.position for prompt in prompts], bad) == ([1, 2], [3])


def test_alpaca_rows_may_have_no_input() -> None:
    rows = [{"instruction": "Add", "input": text} for text in ("1 2", "", None)]
    reader = choose(*rows, prefix="> ")
    expected = ["> Add\n\n1 2", "> Add", "> Add", "> Go"]
    assert items(reader, *rows, {"instruction": "Go"}) == expected


def test_a_longer_text_beside_the_prompt_is_named_once() -> None:
    rows = [{"question": "Why?", "report": LONG, "other_memo": LONG[:99]}] * 3
    (note,) = choose(*rows).uncounted
    assert in_short(note) == "left_out --field=report --field=question"


@pytest.mark.parametrize(
    "beside",
    [
        pytest.param({"answer": LONG}, id="answer"),
        pytest.param({"reasoning_trace": LONG}, id="trace of thoughts"),
        pytest.param({"Grading guidelines": LONG}, id="grading"),
        pytest.param({"blob": "AuT0T9pcQZ=" * 40}, id="encoded"),
        pytest.param({"ask": "Why?"}, id="part of the prompt"),
    ],
)
def test_nothing_is_said_of_what_no_prompt_is_made_of(beside) -> None:
    assert not choose(*[{"prompt": "Why? Do it now."} | beside] * 3).uncounted


@pytest.mark.parametrize(
    ("rows", "likely"),
    [
        pytest.param(
            [{"chosen": [USER, ANSWER], "rejected": [USER, ANSWER]}],
            "--field chosen",
            id="preferences",
        ),
        pytest.param(
            [{"train": [{"query": LONG, "memo": "a b"}] * 2, "tags": [{"n": 1}]}],
            "--field train.query --each train",
            id="splits",
        ),
        pytest.param(
            [{"say": "a b", "data": {"rows": [{"q": LONG}]}}],
            "--field data.rows.q --each data.rows",
            id="rows",
        ),
        pytest.param(
            [{"alpha": "a b c", "beta": LONG}], "--field beta", id="two texts"
        ),
        pytest.param(
            [
                {
                    "error": "The set does not exist.",
                    "model": "It is not there at all, and never was.",
                }
            ],
            "--field model",
            id="nothing likely",
        ),
    ],
)
def test_what_cannot_be_guessed_comes_with_the_likely_options(rows, likely) -> None:
    with pytest.raises(InputError) as caught:
        choose(*rows)
    assert f" {likely}?" in (caught.value.hint or "")
    assert "the fields are:" in caught.value.message


@pytest.mark.parametrize(
    "value",
    [
        "simple_0",
        "9b1deb4d-3b7d",
        "data/a.txt",
        "https://x.org/a?b=1",
        "7.5",
        "2024-05-01 12:00:00",
    ],
)
def test_an_identifier_is_not_guessed(value: str) -> None:
    with pytest.raises(InputError):
        choose({"environment": value, "n": 3})


def test_an_encoded_problem_is_not_guessed() -> None:
    with pytest.raises(InputError):
        choose({"problem": "AuT0T9pcQZ=" * 10, "answer": "QQjZ0Q=="})  # BrowseComp's


@pytest.mark.parametrize("name", ["text", "input", "document", "content"])
def test_a_name_of_a_file_beside_a_text_is_not_the_prompt(name: str) -> None:
    rows = []
    for number in range(5):
        rows.append({name: f"file_{number}.txt", "words": f"A paragraph, {number}."})
    assert choose(*rows).label == "words"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param({"messages": [USER, ANSWER]}, ["answers_counted"], id="answer"),
        pytest.param({"messages": [USER]}, [], id="question"),
        pytest.param(
            {"question": "Why?", "image_base64": "iVBORw"},
            ["not_counted"],
            id="picture",
        ),
        pytest.param({"question": "Why?", "image": None}, [], id="no picture"),
        pytest.param(
            {"question": "Why?", "image": "docker.io/a/b:latest"}, [], id="machine"
        ),
        pytest.param("Why is it so?\n" * 10, ["lines_together"], id="lines"),
        pytest.param("Why is it so?\n\n" * 10, [], id="paragraphs"),
    ],
)
def test_what_may_surprise_is_noted(record, expected) -> None:
    assert codes(choose(record).notes) == expected


def test_lists_and_objects_in_the_cells_of_a_csv_are_read_as_in_json_lines(
    tmp_path: Path,
) -> None:
    rows: list[Row] = [
        {"custom_id": 1, "body": {"prompt": "Why is it so?", "n": 1}},
        {"messages": [USER], "n": 1},
        {"input_ids": [1, 2, 3], "sampling_params": {"n": 1}},
        {"input_length": 600, "output_length": 5, "hash_ids": [1, 2]},
    ]
    for number, row in enumerate(rows):
        write_jsonl(tmp_path / f"{number}.jsonl", [row, row])
        with (tmp_path / f"{number}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([row, row.values(), row.values()])
    run = analyze(tmp_path, ".")
    assert run.code == 0, run.err
    datasets = run.profile["datasets"]
    results = [(one["lengths"], one.get("prefixes")) for one in datasets]
    assert results[::2] == results[1::2]
