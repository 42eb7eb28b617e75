"""The prompt of public evaluation sets, whose rows are made up here after their schemas.

None of these files is stored: names and shapes of the fields are the sets' own, the text is not.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chunkscope.errors import InputError
from chunkscope.prompts.prompt_field import select
from chunkscope.prompts.selection import SelectOptions
from chunkscope.sources.documents import rows_of
from tests.commands.helpers import analyze, write_jsonl
from tests.sources.helpers import choose, extract, items

Row = dict[str, Any]
LONG = "A paragraph about rivers and the mountains they come from. " * 40
CODE = "def solve(x):\n    return x\n" * 30
TOOL = {
    "name": "geometry.area",
    "description": "The area of a shape.",
    "parameters": {
        "type": "dict",
        "properties": {"sides": {"type": "array", "items": {"type": "float"}}},
        "required": ["sides"],
    },
}


def user(n: int) -> Row:
    return {"role": "user", "content": f"Please look at number {n} for me."}


def answer(n: int) -> Row:
    return {"role": "assistant", "content": f"I looked at {n} and it is fine."}


# By set: a row by its number, what is the prompt, and what is said to be left out.
SETS: dict[str, tuple[Callable[[int], Row], str, tuple[str, ...]]] = {
    "HumanEval": (
        lambda n: {"task_id": f"HumanEval/{n}", "prompt": f"def f{n}(x):\n", "entry_point": "f",
                   "canonical_solution": CODE, "test": CODE},
        "prompt", (),
    ),
    "MBPP": (
        lambda n: {"task_id": n, "text": f"Write a function for {n}.", "code": CODE,
                   "test_list": ["assert f() == 1"]},
        "text", (),
    ),
    "GPQA": (
        lambda n: {"Question": f"What energy have {n} electrons?", "Correct Answer": "3 eV",
                   "Incorrect Answer 1": "4 eV", "Incorrect Answer 2": "5 eV",
                   "Incorrect Answer 3": "6 eV", "Explanation": LONG, "Record ID": f"rec{n}"},
        "Question", ("--choices 'Correct Answer,Incorrect Answer 1,",),
    ),
    "MATH": (
        lambda n: {"problem": f"Solve $x+{n}=3$.", "level": "Level 3", "type": "Algebra",
                   "solution": LONG},
        "problem", (),
    ),
    "BBH": (lambda n: {"input": f"not ( True ) is {n}", "target": "False"}, "input", ()),
    "DROP": (
        lambda n: {"section_id": f"nfl_{n}", "query_id": f"{n}-ab", "passage": LONG,
                   "question": f"How many yards was pass {n}?", "answers_spans": {"spans": ["3"]}},
        "question", ("--field passage --field question",),
    ),
    "SQuAD": (
        lambda n: {"id": f"5733be28{n}", "title": "Some_Title", "context": LONG,
                   "question": f"To whom did it appear in {n}?", "answers": {"text": ["he"]}},
        "question", ("--field context --field question",),
    ),
    "NarrativeQA": (
        lambda n: {"document": {"id": f"a{n}", "kind": "book", "text": LONG},
                   "question": {"text": f"Who is {n}?", "tokens": ["Who", "is"]},
                   "answers": [{"text": "Bob"}]},
        "question.text", ("--field document.text --field question.text",),
    ),
    "tau-bench tasks": (
        lambda n: {"user_id": f"mia_{n}", "instruction": f"You are Mia and fly to {n}.",
                   "actions": [{"name": "book"}], "outputs": []},
        "instruction", (),
    ),
    "tau-bench results": (
        lambda n: {"task_id": n, "reward": 1.0, "trial": 0,
                   "info": {"task": {"instruction": "You are Mia and want it."}},
                   "traj": [{"role": "system", "content": "A policy."}, user(n),
                            {"role": "assistant", "content": None, "tool_calls": [
                                {"id": "a", "type": "function",
                                 "function": {"name": "f", "arguments": "{}"}}]}]},
        "traj (chat)", (),
    ),
    "WebArena": (
        lambda n: {"sites": ["shopping"], "task_id": n, "storage_state": "./.auth/x.json",
                   "intent_template": "What is the {{x}} of it", "intent": f"What is top-{n}?",
                   "eval": {"reference_answers": {"exact_match": "Bag"}}},
        "intent", (),
    ),
    "SWE-bench": (
        lambda n: {"repo": "astropy/astropy", "instance_id": f"astropy__astropy-{n}",
                   "base_commit": "d16bfe05a744909de4b27f5875fe0d4ed41ce607", "patch": CODE,
                   "problem_statement": f"The matrix is wrong for {n}", "hints_text": "",
                   "created_at": "2022-03-03T15:14:54Z", "test_patch": CODE},
        "problem_statement", (),
    ),
    "GAIA": (
        lambda n: {"task_id": f"c61d22de-{n}", "Question": f"Which paper is number {n}?",
                   "Level": "2", "Final answer": "x", "file_name": "a.xlsx",
                   "Annotator Metadata": {"Steps": LONG}},
        "Question", (),
    ),
    "ToolBench": (
        lambda n: {"api_list": [{"api_name": "Check", "api_description": LONG}],
                   "query": f"I need the health of {n}.", "query_id": n},
        "query", ("--field 'api_list[].api_description' --field query",),
    ),
    "MT-Bench": (
        lambda n: {"question_id": n, "category": "writing",
                   "turns": [f"Compose a post on {n}.", "Rewrite it."]},
        "turns[0]", ("--each turns makes a prompt of each",),
    ),
    "AlpacaEval": (
        lambda n: {"dataset": "helpful_base", "instruction": f"Name {n} actors.", "output": LONG,
                   "generator": "text_davinci_003"},
        "instruction", (),
    ),
    "IFEval": (
        lambda n: {"key": n, "prompt": f"Write 300+ words on {n}.", "kwargs": [{}],
                   "instruction_id_list": ["punctuation:no_comma"]},
        "prompt", (),
    ),
    "RULER": (
        lambda n: {"index": n, "input": LONG, "outputs": ["1"], "length": 4000}, "input", (),
    ),
    "InfiniteBench": (
        lambda n: {"id": n, "context": LONG, "input": f"What is key {n}?", "answer": ["9"],
                   "options": []},
        "input", ("--field context --field input",),
    ),
    "LiveCodeBench": (
        lambda n: {"question_title": "Short Sort", "question_content": f"There are {n} cards. ",
                   "question_id": f"1873_{n}", "contest_date": "2023-08-21T00:00:00",
                   "starter_code": "", "public_test_cases": '[{"input": "6 a"}]' * 99,
                   "private_test_cases": "eJxrYJ0dgAEHGF9" * 99},
        "question_content", (),
    ),
    "BFCL v1": (
        lambda n: {"id": f"multiple_{n}", "question": [user(n)], "function": [TOOL]},
        "question (chat)", (),
    ),
    "BFCL v3 and v4": (
        lambda n: {"id": f"live_simple_{n}-0-0", "question": [[user(n)]], "function": [TOOL]},
        "question[0] (chat)", (),
    ),
    "BFCL multi turn": (
        lambda n: {"id": f"multi_turn_base_{n}", "question": [[user(n)], [user(n + 1)]],
                   "initial_config": {"FS": {"root": {"a": {"content": LONG}}}},
                   "path": ["FS.find"], "involved_classes": ["FS"]},
        "question[0] (chat)", ("the first of up to 2 conversations",),
    ),
    "BFCL as text": (
        lambda n: {"question": f"What is the area of {n}?", "function": TOOL},
        "question", ("--field 'function|json' --field question",),
    ),
    "L-Eval": (
        lambda n: {"instructions": [f"How many are {n}?", f"Why are there {n}?"],
                   "outputs": ["1", "2"], "input": LONG, "source": "gsm", "evaluation": "exam"},
        "input + instructions, each of instructions", (),
    ),
    "QuALITY": (
        lambda n: {"article_id": f"{n}", "article": LONG, "title": "A title",
                   "questions": [{"question": f"Why {n}?", "options": ["a", "b"]}]},
        "article + questions.question, each of questions", (),
    ),
    "CoQA": (
        lambda n: {"source": "wiki", "story": LONG, "questions": [f"When {n}?", "What for?"],
                   "answers": {"input_text": ["1475", "for it"]}},
        "questions[0]", ("--each questions --field story --field questions",),
    ),
    "MMLU-Pro": (
        lambda n: {"question_id": n, "question": f"Which group is {n}?", "options": ["0", "30"],
                   "answer": "A", "answer_index": 0, "cot_content": LONG, "category": "math"},
        "question", ("--choices options",),
    ),
    "ARC": (
        lambda n: {"id": f"Mercury_{n}", "question": f"Which factor causes {n}?",
                   "choices": {"text": ["a leg", "a bone"], "label": ["A", "B"]},
                   "answerKey": "A"},
        "question", ("--choices choices",),
    ),
    "ARC as published": (
        lambda n: {"id": f"Mercury_{n}", "answerKey": "A", "question": {
            "stem": f"Which factor causes {n}?",
            "choices": [{"text": "a leg", "label": "A"}, {"text": "a bone", "label": "B"}]}},
        "question.stem", ("--choices question.choices",),
    ),
    "LongBench v2": (
        lambda n: {"_id": f"66f36490821e{n}", "domain": "Single-Document QA", "length": "short",
                   "question": f"What follows from {n}?", "choice_A": "one", "choice_B": "two",
                   "choice_C": "three", "choice_D": "four", "answer": "A", "context": LONG},
        "question", ("--field context --field question", "--choices choice_A,choice_B,"),
    ),
    "HotpotQA": (
        lambda n: {"id": "5a7", "question": f"Were both of {n} there?", "answer": "yes",
                   "context": {"title": ["A b"], "sentences": [[LONG], ["Two of them."]]}},
        "question", ("--field 'context.sentences[][]' --field question",),
    ),
    "HellaSwag": (
        lambda n: {"ind": n, "activity_label": "Roofing", "ctx": f"A man sits on {n}. he",
                   "ctx_a": "A man", "endings": ["is using it.", "is ripping."], "label": "1"},
        "ctx", ("--choices endings",),
    ),
    "COPA": (
        lambda n: {"premise": f"My body cast {n} shadows.", "choice1": "The sun rose.",
                   "choice2": "The grass was cut.", "question": ("cause", "effect")[n % 2],
                   "idx": n, "label": 0},
        "premise", ("--choices choice1,choice2",),
    ),
    "WildBench": (
        lambda n: {"id": n, "session_id": "ab12", "conversation_input": [user(n), answer(n)],
                   "references": {"gpt-4": LONG}, "intent": "Information seeking"},
        "conversation_input (chat)", (),
    ),
    "SWE-agent trajectories, one per row": (
        lambda n: {"instance_id": f"a__b-{n}", "model_name": "swe-agent-8b", "eval_logs": LONG,
                   "trajectory": [{"role": "user", "text": "We have this issue.", "mask": False},
                                  {"role": "ai", "text": "Let us go.", "mask": False}]},
        "trajectory (chat)", (),
    ),
    "rows of a datasets server": (
        lambda n: {"row_idx": n, "row": {"question": f"How many are {n}?", "answer": "many of it"},
                   "truncated_cells": []},
        "row.question", (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_the_prompt_is_found_and_what_it_lacks_is_said(name: str) -> None:
    row, label, left_out = SETS[name]
    rows = [row(n) for n in range(8)]
    selection = choose(*rows)
    assert selection.label == label
    assert len(selection.left_out) == len(left_out)
    for said, expected in zip(selection.left_out, left_out, strict=True):
        assert expected in said
    prompts, problems = select_all(rows)
    assert not problems
    assert len(prompts) >= len(rows)


def select_all(rows: list[Row]) -> tuple[list[Any], list[str]]:
    from chunkscope.sources.base import Chunk, Problems

    problems = Problems()
    prompts = choose(*rows).extract(Chunk(range(1, len(rows) + 1), rows), problems)
    return prompts.items, [row.reason for row in problems.rows]


@pytest.mark.parametrize(
    ("document", "likely"),
    [
        (
            {"version": "1.1", "data": [{"title": "T", "paragraphs": [
                {"context": LONG, "qas": [{"id": "1", "question": "Who is it then?"}]}]}]},
            "--each paragraphs --each paragraphs.qas --field paragraphs.context "
            "--field paragraphs.qas.question",
        ),
        (
            [{"id": "040", "needle": "Actually, {CHAR} lives next to the opera house, they say.",
              "task_template": "Read {haystack} and answer.", "questions": {"onehop": "Who is?"}}],
            "--field needle",
        ),
        (
            [{"id": "1", "description": {"purpose": "Refuse to go on"}, "user_scenario": {
                "instructions": {"task_instructions": "Say that it was not possible at all."}}}],
            "--field user_scenario.instructions.task_instructions",
        ),
        ([{"chosen": [user(1), answer(1)], "rejected": [user(1), answer(2)]}], "--field chosen"),
        ([{"id": f"q_{n}", "task": "GR", "history": [{"user": f"Who is {n}?", "bot": LONG}]}
          for n in range(5)], "--field 'history[].user'"),
    ],
    ids=["SQuAD as published", "NoLiMa", "tau2-bench", "preferences", "MT-Bench-101"],
)  # fmt: skip
def test_what_cannot_be_told_comes_with_the_likely_options(document: Any, likely: str) -> None:
    rows_at, head = rows_of(document)
    with pytest.raises(InputError, match="cannot tell which field is the prompt") as caught:
        select(head, SelectOptions(), rows_at=rows_at)
    assert f"is it {likely}?" in (caught.value.hint or "")


def test_the_options_that_are_proposed_work(tmp_path: Path) -> None:
    qas = [{"question": "Who is it?"}, {"question": "Why then?"}]
    squad = {"data": [{"title": "T", "paragraphs": [{"context": LONG, "qas": qas}]}]}
    (tmp_path / "squad.json").write_text(json.dumps(squad))
    words = "--each paragraphs --each paragraphs.qas --field paragraphs.context "
    run = analyze(tmp_path, "squad.json", *words.split(), "--field", "paragraphs.qas.question")
    assert (run.code, run.dataset["rows"]) == (0, 2), run.err


# --- what is never the prompt -----------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        ["simple_0", "simple_1"],
        ["9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"],
        ["d16bfe05a744909de4b27f5875fe0d4ed41ce607"],
        ["data/a.txt", "data/b.txt"],
        ["report.pdf"],
        ["https://example.org/a?b=1"],
        ["swe_main"],
        ["2024-05-01 12:00:00"],
        ["12", "7.5"],
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["id", "environment", "key", "doc"])
def test_ids_hashes_and_names_of_files_are_never_the_prompt(name: str, values: list[str]) -> None:
    with pytest.raises(InputError, match="cannot tell"):
        choose(*({name: value, "n": 3} for value in values))


@pytest.mark.parametrize("name", ["text", "input", "document", "prompt"])
def test_a_likely_name_does_not_make_an_id_a_prompt(name: str) -> None:
    rows = [{name: f"file_{n}.txt", "words": f"A real paragraph is here, number {n}."}
            for n in range(5)]  # fmt: skip
    assert choose(*rows).label == "words"


def test_a_question_beside_what_was_said_before_is_the_prompt_and_the_rest_is_named() -> None:
    row = {"history": [user(1), answer(1), user(2), answer(2)], "question": "And the third?"}
    selection = choose(row)
    assert selection.label == "question"
    assert "--field history --field question" in selection.left_out[0]


def test_a_run_beside_its_task_is_what_was_sent() -> None:
    row = {"problem_statement": "The matrix is wrong.", "trajectory": [user(1), answer(1)]}
    assert choose(row).label == "trajectory (chat)"


# --- whole files --------------------------------------------------------------------------------


def test_a_swe_agent_file_is_one_conversation(tmp_path: Path) -> None:
    steps = [{"action": "ls\n", "observation": LONG, "thought": "Let me see."}]
    history = [{"role": "system", "content": "You are an agent.", "agent": "primary"}, user(1)]
    run = {"environment": "swe_main", "trajectory": steps, "history": history,
           "info": {"exit_status": "submitted"}}  # fmt: skip
    (tmp_path / "astropy__astropy-1.traj").write_text(json.dumps(run))
    (tmp_path / "only_history.json").write_text(json.dumps({"history": history, "info": {}}))
    (tmp_path / "messages.json").write_text(json.dumps(history))
    done = analyze(tmp_path, ".", "--no-chat-template")
    assert done.code == 0, done.err
    fields = {dataset["field"]: dataset["rows"] for dataset in done.profile["datasets"]}
    assert fields == {"history (text)": 1, "record (text)": 1}
    lengths = {tuple(dataset["histogram"].items()) for dataset in done.profile["datasets"]}
    assert len(lengths) == 1


def test_bfcl_files_are_counted_with_their_functions(tmp_path: Path) -> None:
    """With the embedded tokenizer, which takes no schema but JSON's and no dots in names."""
    for name in ("BFCL v1", "BFCL v3 and v4", "BFCL multi turn"):
        write_jsonl(tmp_path / f"{name}.json", [SETS[name][0](n) for n in range(4)])
    write_jsonl(tmp_path / "plain.jsonl", [{"messages": [user(n)]} for n in range(4)])
    run = analyze(tmp_path, ".")
    assert run.code == 0, run.err
    found = {dataset["name"]: dataset["tokens"]["min"] for dataset in run.profile["datasets"]}
    assert found["BFCL v1"] == found["BFCL v3 and v4"] > found["plain"] + 30
    assert found["BFCL multi turn"] == found["plain"]


def test_a_longer_field_is_said_before_any_figure(tmp_path: Path) -> None:
    rows = [SETS["LongBench v2"][0](n) for n in range(8)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "longbench.parquet")
    run = analyze(tmp_path, "longbench.parquet")
    said = " ".join(run.out.split())
    first = said.partition("8 prompts in 1 dataset")[0]
    assert "Not all of it is counted" in first
    assert "--field context --field question" in first
    assert "--choices choice_A,choice_B,choice_C,choice_D" in first
    assert "As counted, none of these prompts is over 2,048 tokens" in said
    assert len(run.dataset["left_out"]) == 2
    markdown = analyze(tmp_path, "longbench.parquet", "--format", "md").out
    assert markdown.startswith("Not all of it is counted")
    asked = ("--field", "context", "--field", "question", "--choices", ",".join(
        f"choice_{letter}" for letter in "ABCD"))  # fmt: skip
    whole = analyze(tmp_path, "longbench.parquet", *asked)
    assert "Not all" not in whole.out
    assert whole.dataset["tokens"]["min"] > 20 * run.dataset["tokens"]["max"]


def test_every_instruction_of_l_eval_is_a_prompt_after_its_document(tmp_path: Path) -> None:
    rows = [SETS["L-Eval"][0](n) for n in range(3)]
    write_jsonl(tmp_path / "leval.jsonl", rows)
    pairs = [f"{row['input']}\n\n{asked}" for row in rows for asked in row["instructions"]]
    write_jsonl(tmp_path / "sent.jsonl", [{"prompt": text} for text in pairs])
    run = analyze(tmp_path, "leval.jsonl")
    assert run.dataset["histogram"] == analyze(tmp_path, "sent.jsonl").dataset["histogram"]
    assert 'one prompt for each of "instructions", after "input"' in run.err
    answered = analyze(tmp_path, "leval.jsonl", "--output-field", "outputs")
    assert answered.dataset["output_tokens"]["count"] == 6
    assert answered.dataset["output_tokens"]["max"] == 1


# --- one prompt each, nulls, lists and objects -------------------------------------------------


def test_each_puts_an_element_where_its_list_was() -> None:
    row = {"doc": "D", "qas": [{"q": "a"}, {"q": "b"}], "texts": ["x", "y"]}
    selection = choose(row, each=("qas",), template="{doc}: {qas.q}")
    prompts, _ = select_each(selection, row)
    assert prompts == ["D: a", "D: b"]
    assert select_each(choose(row, each=("texts",)), row)[0] == ["x", "y"]
    crossed = choose(row, each=("qas", "texts"), fields=("qas.q", "texts"))
    assert select_each(crossed, row)[0] == ["a\n\nx", "a\n\ny", "b\n\nx", "b\n\ny"]


def select_each(selection: Any, *rows: Row) -> tuple[list[Any], list[str]]:
    from chunkscope.sources.base import Chunk, Problems

    problems = Problems()
    prompts = selection.extract(Chunk(range(1, len(rows) + 1), list(rows)), problems)
    return prompts.items, [f"{row.position}: {row.reason}" for row in problems.rows]


def test_a_row_without_the_list_is_a_bad_row() -> None:
    row = {"q": ["a", "b"]}
    _, problems = select_each(choose(row, each=("q",)), row, {"q": "a"}, {})
    assert problems == ['2: field "q" is text, not a list', '3: field "q" is missing']


def test_a_null_in_a_list_does_not_cost_the_row_and_is_said(tmp_path: Path) -> None:
    rows = [SETS["tau-bench results"][0](n) for n in range(4)]
    write_jsonl(tmp_path / "run.jsonl", rows)
    run = analyze(tmp_path, "run.jsonl", "--field", "traj[].content")
    assert (run.code, run.dataset["rows"], run.dataset["skipped"]) == (0, 4, 0), run.err
    assert '4 rows: nulls in "traj[].content" were left out' in run.err


def test_a_list_where_text_was_expected_is_joined_and_said(tmp_path: Path) -> None:
    rows = [{"question": "One text only."}, {"question": ["One.", "Two."]}]
    write_jsonl(tmp_path / "a.jsonl", rows)
    run = analyze(tmp_path, "a.jsonl", "--field", "question")
    assert run.dataset["rows"] == 2
    assert '1 row: "question" is a list, whose texts were joined to one prompt' in run.err
    assert "--each question" in run.err
    spelled = analyze(tmp_path, "a.jsonl", "--template", "{question}")
    assert "were joined" in spelled.err


def test_an_object_is_counted_as_json_where_that_is_asked_for() -> None:
    row = {"question": "Q?", "function": TOOL, "ids": [1, None]}
    as_json = json.dumps(TOOL, ensure_ascii=False)
    assert items(choose(row, fields=("function|json", "question")), row) == [f"{as_json}\n\nQ?"]
    assert items(choose(row, template="{question}: {ids|json}"), row) == ["Q?: [1, null]"]
    assert items(choose({"a|json": "x"}, fields=("a|json",)), {"a|json": "x"}) == ["x"]
    good = {"function": "text"}
    _, problems = extract(choose(good, fields=("function",)), good, {"function": {"a": 1}})
    assert problems == [
        '2: field "function" is an object, not text (as JSON it is counted by '
        "--field 'function|json')"
    ]


# --- tools ---------------------------------------------------------------------------------------

IGNORES_TOOLS = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


def test_a_template_that_ignores_tools_is_said(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": LONG}}]
    write_jsonl(tmp_path / "a.jsonl", [{"messages": [user(1)], "tools": tools}])
    (tmp_path / "plain.jinja").write_text(IGNORES_TOOLS)
    (tmp_path / "tools.jinja").write_text(IGNORES_TOOLS + "{{ tools | tojson }}")
    ignored = analyze(tmp_path, "a.jsonl", "--chat-template", "plain.jinja")
    assert "1 rows have tools, which the chat template ignores" in ignored.err
    used = analyze(tmp_path, "a.jsonl", "--chat-template", "tools.jinja")
    assert "ignores" not in used.err
    assert used.dataset["tokens"]["max"] > ignored.dataset["tokens"]["max"] + 100


def test_tools_are_counted_as_that_vllm_writes_them(tmp_path: Path) -> None:
    odd = {"name": "f", "strict": None, "x-origin": "somewhere in the catalogue"}
    write_jsonl(tmp_path / "a.jsonl", [{"messages": [user(1)], "tools": [{"function": odd}]}])
    (tmp_path / "tools.jinja").write_text(IGNORES_TOOLS + "{{ tools | tojson }}")
    words = ("a.jsonl", "--chat-template", "tools.jinja", "--vllm-version")
    counted = [analyze(tmp_path, *words, version).dataset["tokens"]["max"]
               for version in ("0.23", "0.24", "0.27")]  # fmt: skip
    newest = analyze(tmp_path, *words[:-1]).dataset["tokens"]["max"]
    assert counted[0] > counted[1] > counted[2] == newest
    assert analyze(tmp_path, *words, "soon").code == 2


def test_a_request_that_vllm_refuses_is_a_bad_row(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{city: Bern}"}}
    chat = [user(1), {"role": "assistant", "tool_calls": [call]}, user(2)]
    write_jsonl(tmp_path / "a.jsonl", [{"messages": [user(1)]}, {"messages": chat}])
    (tmp_path / "t.jinja").write_text("{{ messages | tojson }}")
    words = ("a.jsonl", "--chat-template", "t.jinja")
    refused = analyze(tmp_path, *words)
    assert (refused.code, refused.dataset["skipped"]) == (3, 1)
    assert "the arguments of a tool call of message 2 are not valid JSON" in refused.err
    mended = analyze(tmp_path, *words, "--vllm-version", "0.29")
    assert (mended.code, mended.dataset["rows"]) == (0, 2)
