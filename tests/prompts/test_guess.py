"""The prompt is found by looking at the first records.

The rows of public evaluation sets are made up here after their schemas: names and shapes of the
fields are the sets' own, the text is not.
"""

import csv
import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chunkscope.artefacts.note import Note
from chunkscope.errors import InputError
from chunkscope.prompts.guess import are_labels
from chunkscope.prompts.options import shape_of
from chunkscope.prompts.paths import field_table, leaves
from tests.commands.helpers import analyze, write_jsonl
from tests.prompts.helpers import CHAT, choose, codes, extract, items, lengths

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


# By set: a row by its number, what is the prompt, and what it lacks, as a note.
SETS: dict[str, tuple[Callable[[int], Row], str, tuple[str, ...]]] = {
    "GPQA": (
        lambda n: {"Question": f"What energy have {n} electrons?", "Explanation": LONG}
        | {f"{right}orrect Answer": "3 eV" for right in ("C", "Inc")} | {"Incorrect Answer 2": "4"},
        "Question", ("choices_uncounted Correct Answer,Incorrect Answer,Incorrect Answer 2",),
    ),
    "NarrativeQA": (
        lambda n: {"document": {"id": f"a{n}", "kind": "book", "text": LONG},
                   "question": {"text": f"Who is {n}?", "tokens": ["Who", "is"]},
                   "answers": [{"text": "Bob"}]},
        "question.text", ("left_out --field=document.text --field=question.text",),
    ),
    "SWE-bench": (
        lambda n: {"instance_id": f"astropy__astropy-{n}", "patch": CODE, "PASS_TO_PASS": LONG,
                   "problem_statement": f"The matrix is wrong for {n}", "hints_text": LONG,
                   "image": "docker.io/swe/eval.x:latest", "requirements": "It must work."},
        "problem_statement", ("left_out --field=requirements --field=problem_statement",),
    ),
    "MT-Bench": (
        lambda n: {"question_id": n, "turns": [f"Compose a post on {n}.", "Rewrite it."]},
        "turns[0]", ("first_counted --each=turns",),
    ),
    "LiveCodeBench": (
        lambda n: {"question_title": "Short Sort", "question_content": f"There are {n} cards. ",
                   "public_test_cases": '[{"input": "6 a"}]' * 99, "starter_code": "def f(x): ..",
                   "private_test_cases": "eJxrYJ0dgAEHGF9" * 99},
        "question_content", ("left_out --field=starter_code --field=question_content",),
    ),
    "CRUXEval": (
        lambda n: {"code": CODE, "input": f"{n}, [{n}]", "output": "[2]", "id": f"sample_{n}"},
        "input", ("left_out --field=code --field=input",),
    ),
    "BigCodeBench": (
        lambda n: {"complete_prompt": f"{LONG} {n}", "instruct_prompt": f"Write it for {n}."},
        "complete_prompt", ("not_counted instruct_prompt",),
    ),
    "Multi-IF": (
        lambda n: {f"turn_{turn}_prompt": str(user(n)) for turn in (1, 2)},
        "turn_1_prompt (chat)", ("not_counted turn_2_prompt",),
    ),
    "BFCL multi turn": (
        lambda n: {"id": f"multi_turn_base_{n}", "question": [[user(n)], [user(n + 1)]],
                   "initial_config": {"FS": {"root": {"a": {"content": LONG}}}},
                   "involved_classes": ["FS"]},
        "question[0] (chat)", ("first_counted --each=question", "not_counted involved_classes"),
    ),
    "LooGLE": (
        lambda n: {"input": LONG, "title": "A b", "qa_pairs": str([{"Q": f"Why {n}?"}] * 2)},
        "input", ("not_counted qa_pairs",),
    ),
    "xLAM": (
        lambda n: {"query": f"What is the area of {n}?", "tools": str([TOOL]), "answers": "[]"},
        "query", ("left_out --field=tools|json --field=query",),
    ),
    "L-Eval": (
        lambda n: {"instructions": [f"How many are {n}?", f"Why are there {n}?"],
                   "outputs": ["1", "2"], "input": LONG, "source": "gsm", "evaluation": "exam"},
        "input + instructions, each of instructions", (),
    ),
    "QMSum": (
        lambda n: {"meeting_transcripts": [{"content": LONG}], "table": [["1"]], "about": "A talk."}
        | {f"{kind}_query_list": [{"query": f"Why {n}?"}] for kind in ("general", "specific")},
        "meeting_transcripts[].content + general_query_list.query, each of general_query_list",
        ("not_counted table about specific_query_list[].query",),
    ),
    "CoQA": (
        lambda n: {"source": "wiki", "story": LONG, "questions": [f"When {n}?", "What for?"],
                   "answers": {"input_text": ["1475", "for it"]}},
        "questions[0]", ("left_out --each=questions --field=story --field=questions",),
    ),
    "ARC as published": (
        lambda n: {"id": f"Mercury_{n}", "answerKey": "A", "question": {
            "stem": f"Which factor causes {n}?",
            "choices": [{"text": "a leg", "label": "A"}, {"text": "a bone", "label": "B"}]}},
        "question.stem", ("choices_uncounted question.choices",),
    ),
    "CoQA as published": (
        lambda n: {"story": LONG, "questions": [{"input_text": f"When is {n}?", "turn_id": 1}] * 2,
                   "answers": [{"input_text": "in 1475", "span_text": "formally in 1475"}] * 2},
        "story + questions.input_text, each of questions", (),
    ),
    "NarrativeQA without a document": (
        lambda n: {"context": LONG, "question": {"text": f"Who is {n}?"}},
        "question.text", ("left_out --field=context --field=question.text",),
    ),
    "RepoBench": (
        lambda n: {"context": [{"path": "a.py", "snippet": CODE}], "all_code": CODE * 3,
                   "import_statement": f"from a import b{n}", "cropped_code": CODE[:60]},
        "import_statement", ("left_out --field=context[].snippet --field=cropped_code "
                             "--field=import_statement",),
    ),
    "LongBench v2": (
        lambda n: {"_id": f"66f36490821e{n}", "question": f"What is {n}?", "context": LONG}
        | {f"choice_{letter}": "one" for letter in "ABCD"},
        "question", ("left_out --field=context --field=question",
                     "choices_uncounted choice_A,choice_B,choice_C,choice_D"),
    ),
    "HotpotQA": (
        lambda n: {"id": "5a7", "question": f"Were both of {n} there?", "answer": "yes",
                   "context": {"title": ["A b"], "sentences": [[LONG], ["Two of them."]]}},
        "question", ("left_out --field=context.sentences[][] --field=question",),
    ),
    "NATURAL PLAN": (
        lambda n: {"prompt_0shot": f"Plan {n} days.", "prompt_5shot": f"{LONG} Plan {n} days."},
        "prompt_5shot", (),  # which holds the other
    ),
    "WildBench": (
        lambda n: {"conversation_input": [user(n)], "intent": "To know why.", "user_prompt": ""},
        "conversation_input (chat)", (),
    ),
    "HelpSteer3": (
        lambda n: {"context": [user(n)], "response1": LONG, "response2": LONG},
        "context (chat)", (),
    ),
    "COPA": (
        lambda n: {"premise": f"My body cast {n} shadows.", "choice1": "The sun rose.",
                   "choice2": "The grass was cut.", "question": ("cause", "effect")[n % 2]},
        "premise", ("choices_uncounted choice1,choice2",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_the_prompt_of_a_public_set_is_found_and_what_it_lacks_is_noted(
    name: str,
) -> None:
    row, label, uncounted = SETS[name]
    rows = [row(n) for n in range(8)]
    selection = choose(*rows)
    assert selection.label == label
    others = [note for note in selection.notes if note.code == "not_counted"]
    assert tuple(map(in_short, (*selection.uncounted, *others))) == uncounted
    assert len(items(selection, *rows)) >= len(rows)


def in_short(note: Note) -> str:
    """The code of a note, and the options or fields that it proposes."""
    values = note.values
    fields = values.get("use") or values.get("field") or values["fields"]
    return " ".join((note.code, *([fields] if isinstance(fields, str) else fields)))


CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "1", "output": "20 C"}
SHARE_GPT, LANG_CHAIN = (
    [{"from": "Human", "value": "x"}],
    [{"type": "human", "content": "x"}],
)
LENGTHS = {"input_length": 1, "output_length": 2}
QASPER = {
    "abstract": "It is.",
    "full_text": [{"paragraphs": ["It is so.", "It is not."]}],
}
QAS = {"question": ["Why?"], "answers": [{}]}
PAPER = "full_text[].paragraphs[] + qas.question"
TALK = {
    "talk": {f"day_{n}": [{"text": LONG}] for n in (1, 2)},
    "qa": [{"question": "Who?"}],
}
SQUAD = (
    "paragraphs.context + paragraphs.qas.question, each of paragraphs, paragraphs.qas"
)


@pytest.mark.parametrize(
    ("record", "kind", "label"),
    [
        ({"messages": CHAT, "prompt": "x"}, "chat", "messages (chat)"),
        (
            {"custom_id": "1", "body": {"messages": CHAT}},
            "chat",
            "body.messages (chat)",
        ),
        (
            {"custom_id": "1", "url": "u", "body": {"prompt": "p"}},
            "text",
            "body.prompt",
        ),
        ({"custom_id": "1", "body": {"input": CHAT}}, "chat", "body.input (chat)"),
        (
            {"payload": [{"messages": CHAT}]},
            "chat",
            "payload.messages (chat), each of payload",
        ),
        ({"id": 3, "prompt": '["Why?", "And then?"]'}, "text", "prompt[0]"),
        (
            {"id": 3, "request": str({"messages": CHAT})},
            "chat",
            "request.messages (chat)",
        ),
        ({"url": "/v1/responses", "body": {"input": "p"}}, "chat", "body.input (chat)"),
        ({"url": "/v1/embeddings", "body": {"input": "p"}}, "text", "body.input"),
        ({"prompt": {"text": "a b", "replies": [answer(1)]}}, "text", "prompt.text"),
        (
            {"system_prompt": LONG, "user_prompt": "Why is that so?"},
            "text",
            "user_prompt",
        ),
        (
            {"system_instruction": LONG, "user": "Why so?", "assistant": "By it."},
            "text",
            "user",
        ),
        ({"id": "1", "conversations": SHARE_GPT}, "chat", "conversations (chat)"),
        ({"inputs": {"messages": LANG_CHAIN}}, "chat", "inputs.messages (chat)"),
        ({"prompt": CHAT, "question": "x"}, "chat", "prompt (chat)"),
        (
            {"id": "1", "inputs": '{"question": "Why is it so?"}'},
            "text",
            "inputs.question",
        ),
        ({"id": "1", "inputs": '{"a": "Why is it so?"}'}, "text", "inputs"),
        (
            {"responses_create_params": {"input": CHAT}},
            "chat",
            "responses_create_params.input (chat)",
        ),
        (
            {"input": [*CHAT, {"type": "reasoning", "summary": []}]},
            "chat",
            "input (chat)",
        ),
        ({"input": [*CHAT, CALL, RESULT]}, "chat", "input (chat)"),
        ({"prompt": str(CHAT * 2).replace("}, {", "}\n {")}, "chat", "prompt (chat)"),
        ({"prompt": str([CHAT[0] | {(1,): 2}])}, "text", "prompt"),
        ({"prompt": r"[{'role': 'user', 'content': '\d'}]"}, "chat", "prompt (chat)"),
        ({"url": "https://example.org/responses", "text": "a b"}, "text", "text"),
        (CHAT, "chat", "record (chat)"),
        ({"name": "Big run"} | LENGTHS, "lengths", "input_length (lengths)"),
        ({"text": "x"} | LENGTHS, "text", "text"),
        (
            {"Behavior": "How is it?", "Tags": "", "BehaviorID": "a_1"},
            "text",
            "Behavior",
        ),
        (
            {"cluster": "A b", "turns": [{"content": "How is it?"}]},
            "text",
            "turns[0].content",
        ),
        (
            {"timestamp": 3, "prompt_token_ids": [1]},
            "lengths",
            "prompt_token_ids (lengths)",
        ),
        (
            {"a": {"usage": {"prompt_tokens": 5}}},
            "lengths",
            "a.usage.prompt_tokens (lengths)",
        ),
        ({"u": {"promptTokenCount": 5}}, "lengths", "u.promptTokenCount (lengths)"),
        ({"id": 3, "input_token_count": 5}, "lengths", "input_token_count (lengths)"),
        ({"id": 3, "tokens_prompt": "5"}, "lengths", "tokens_prompt (lengths)"),
        (
            {
                "run": {"x": 1},
                "metrics": {"input_sequence_length": {"value": 5, "unit": "tokens"}},
            },
            "lengths",
            "metrics.input_sequence_length (lengths)",
        ),
        ({"a": {"b.input_tokens": 5}}, "lengths", 'a["b.input_tokens"] (lengths)'),
        ({"k\ud800": "a b"}, "text", "k?"),
        (
            {"errors": ["a"], "input_lens": [5]},
            "lengths",
            "input_lens (lengths), each of input_lens",
        ),
        (
            {"premise": "a b", "hypothesis": "c d", "label": 0},
            "text",
            "premise + hypothesis",
        ),
        (
            {"sentence1": "a b", "sentence2": "c d", "idx": 1},
            "text",
            "sentence1 + sentence2",
        ),
        ({"q_1_prompt": "a b", "q_2_prompt": "c d"}, "text", "q_1_prompt + q_2_prompt"),
        (
            {"open_question": "a b?", "pairs": [{"question": "c?"}]},
            "text",
            "open_question",
        ),
        ({"id": 1, "test_question": "Why is that so?"}, "text", "test_question"),
        (
            {"trajectory": [{"role": "ai", "text": "Go."}], "task": "a"},
            "chat",
            "trajectory (chat)",
        ),
        (
            TALK,
            "text",
            "talk.day_1[].text + talk.day_2[].text + qa.question, each of qa",
        ),
        (
            {"paragraphs": [{"context": "a b", "qas": [{"question": "c?"}]}]},
            "text",
            SQUAD,
        ),
        (QASPER | {"qas": [{"question": "Why?"}]}, "text", f"{PAPER}, each of qas"),
        (QASPER | {"qas": QAS}, "text", f"{PAPER}, each of qas.question"),
    ],
)
def test_the_prompt_is_found(record: Any, kind: str, label: str) -> None:
    selection = choose(record)
    assert (selection.kind, selection.label) == (kind, label)
    assert len(items(selection, record, record)) == 2


def test_labels_are_a_few_short_words_over_and_over() -> None:
    for values in (["a", "b"] * 2, ["x" * 40] * 4):
        assert are_labels(values)
    rows = [
        {"prompt": f"Do {n} now.", "job": "Accountants and so on"} for n in range(4)
    ]
    assert not choose(*rows).uncounted
    graded = (
        "rubrics",
        "Grading guidelines",
        "checklist",
        "reasoning_trace",
        "proof",
        "gpt4o",
    )
    assert not choose({"prompt": "Do it now."} | dict.fromkeys(graded, LONG)).uncounted
    for values in (["a b"] * 3, ["a", "b", "c", "a"], ["x" * 41] * 4):
        assert not are_labels(values)


def test_fields_are_looked_for_four_levels_deep_and_fifty_wide() -> None:
    deep: Row = {
        "a": {"b": {"c": {"d": {"e": "x"}}}},
        "l": [[[["x"]]]],
        "t": ["so"] * 60,
    }
    deep["hotpot"] = [["title", ["sentence", "another"]]]
    found = {leaf.path.text: leaf.chars for leaf in leaves([deep])}
    assert found == {"a.b.c.d": 0, "l[][][][]": 1, "t[]": 100, "hotpot[]": 24}
    assert field_table(leaves([{f"k{n}": n for n in range(31)}]))["more"] == 1


def test_the_surest_name_decides_where_half_of_the_records_have_it() -> None:
    rows = [{"question": "a a"}, {"question": "b b"}, {"prompt": "p p"}]
    assert choose(*rows[1:]).label == "prompt"
    assert choose(*[{"report": LONG, "summary": "It is so."}] * 2).label == "report"
    assert choose(*rows).label == "question"
    prompts, bad = extract(choose(*rows), *rows)
    assert (prompts.positions, bad) == ([1, 2], [3])


def test_alpaca_rows_may_have_no_input() -> None:
    rows = [{"instruction": "Add", "input": text} for text in ("1 2", "", None)]
    selection = choose(*rows, prefix="> ")
    expected = ["> Add\n\n1 2", "> Add", "> Add", "> Go"]
    assert items(selection, *rows, {"instruction": "Go"}) == expected
    dolly = [{"instruction": f"Add {n}", "context": LONG * (n < 3)} for n in range(8)]
    (note,) = choose(*dolly).uncounted
    assert in_short(note) == "left_out --field=context --field=instruction"
    named = choose(*dolly, fields=("context", "instruction"))
    odd = (
        {"context": None, "instruction": "Go"},
        {"context": LONG, "instruction": None},
    )
    assert extract(named, *odd, dolly[3]) == (
        ([1, 3], ["Go", "Add 3"], None, None),
        [2],
    )
    for beside, use in (
        (
            {"table_array": [["1", "B"]], "analysis": LONG},
            ["table_array|json", "question"],
        ),
        ({"query": "Say a number. Who is it?"}, ["query"]),  # MathVista's
        ({"query": "SELECT a FROM b WHERE b.c > 30"}, []),  # Spider's answer
        ({"tools": ['{"name": "f"}']}, ["tools|json", "question"]),  # When2Call's
        ({"suffix": "And so on."}, ["suffix", "question"]),
        (
            {"input_tokens": 90_000},
            ["input_tokens"],
        ),  # AA-LCR's, of documents elsewhere
    ):
        notes = choose({"question": "Who is it?"} | beside).uncounted
        assert [note.values["use"] for note in notes] == [
            [f"--field={u}" for u in use]
        ][: len(use)]
    names = (
        "system",
        "context",
        "body",
        "sentence",
        "options",
        "all_answers",
        "documents",
    )
    more = dict.fromkeys(names, "Be kind.")
    (note,) = choose(rows[0] | more | {"history": [["Hi, you.", "Hi, too."]]}).uncounted
    assert note.values["beside"] == ["history[][]", *names]
    lacking = rows[0] | {"parts": [{"about": LONG}, {"step": LONG}]}
    (note,) = choose(lacking).uncounted
    assert note.values["beside"] == ["parts|json"]
    named = choose(
        lacking, {"parts": [{"about": "a b"}]}, fields=("parts[].about", "instruction")
    )
    assert extract(named, lacking)[1] == [1]  # never without what it has


@pytest.mark.parametrize(
    ("rows", "likely"),
    [
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
        ([{"chosen": [user(1), answer(1)], "rejected": [user(1), *[answer(2)] * 2]}],
         "--field chosen"),
        ([{"id": f"q_{n}", "task": "GR", "history": [{"user": f"Who is {n}?", "bot": LONG}]}
          for n in range(5)], "--field 'history[].user'"),
        ([{"train": [{"question": LONG, "context": LONG}] * 2, "test": [{"question": "Why?"}],
           "tags": [{"name": "a b"}]}], "--field train.question --each train"),
        ([{"say": "a b", "data": {"rows": [{"q": LONG}]}}], "--field data.rows.q --each data.rows"),
        ([{"runs": [{"sent": {"ok": [{"prompt": LONG, "output": LONG}] * 2}}] * 2}],
         "--field runs.sent.ok.prompt --each runs --each runs.sent.ok"),
        ([{"talk": [{"text": LONG}, {"said": "a b"}]}] * 2, "--field 'talk|json'"),
        ([{"error": "The set does not exist, or not for you."}], "--field error"),
        ([{"generated_texts": [LONG], "errors": ["It is gone."]}] * 2, "--field 'errors[]'"),
    ],
    ids=["NoLiMa", "tau2", "preferences", "MT-Bench-101", "splits", "rows", "nested", "lacking",
         "error", "bench"],
)  # fmt: skip
def test_what_cannot_be_guessed_comes_with_the_likely_options(
    rows: list[Any], likely: str
) -> None:
    with pytest.raises(InputError) as caught:
        choose(*rows)
    assert f" {likely}?" in (caught.value.hint or "")


def test_ids_hashes_and_names_of_files_are_never_the_prompt() -> None:
    ids = "simple_0 9b1deb4d-3b7d-4bad-9bdd data/a.txt report.pdf https://x.org/a?b=1 swe_main 7.5"
    for value in (*ids.split(), "2024-05-01 12:00:00"):
        with pytest.raises(InputError):
            choose({"environment": value, "n": 3})
    with pytest.raises(InputError):
        choose(
            {"problem": "AuT0T9pcQZ=" * 10, "answer": "QQjZ0Q=="}
        )  # BrowseComp's: encrypted
    with pytest.raises(InputError):
        choose(
            {"question": "-", "r1_generation": LONG}
        )  # OpenCodeReasoning's second version
    with pytest.raises(InputError):
        choose(
            *({"model": name, "accuracy": 0.5} for name in ("llama", "qwen"))
        )  # of results
    assert choose(*({"word": name} for name in ("llama", "qwen"))).label == "word"
    for name in ("text", "input", "document", "prompt"):
        rows = [
            {name: f"file_{n}.txt", "words": f"A paragraph, number {n}."}
            for n in range(5)
        ]
        assert choose(*rows).label == "words"


def test_a_question_beside_what_was_said_before_is_the_prompt_and_the_rest_is_named() -> (
    None
):
    said = [user(1), answer(1), user(2), answer(2)]
    for history in (said, [said, said]):
        selection = choose({"history": history, "question": "And the third?"})
        (before,) = selection.uncounted
        assert before.values["use"] == ["--field=history|json", "--field=question"]
        assert selection.label == "question"
    (system,) = choose({"prompt": LONG, "system": "Be kind."}).uncounted
    assert system.values["use"] == ["--field=system", "--field=prompt"]
    whole = choose(
        {"prompt": f"{LONG} Why is it?", "context": LONG, "question": "Why is it?"}
    )
    assert (whole.label, whole.uncounted, whole.notes) == ("prompt", (), ())
    (longer,) = choose({"messages": [user(1)], "file": LONG, "memo": LONG}).uncounted
    assert longer.values["use"] == ["--field=memo", "--field=messages|json"]


def test_an_answer_at_the_end_of_most_chats_is_noted_and_a_picture_beside_a_text() -> (
    None
):
    chats = [{"messages": [user(1), answer(1)]}, {"messages": [user(2)]}]
    notes = [
        choose(*some, fields=("messages",)).notes
        for some in (chats[:1], chats, chats[1:])
    ]
    assert [codes(some) for some in notes] == [["answers_counted"], [], []]
    assert codes(choose({"question": "Why?", "image_base64": "iVBORw"}).notes) == [
        "not_counted"
    ]
    assert not choose({"question": "Why?", "image": None}).notes
    assert codes(choose("Why is it so?\n" * 10).notes) == ["lines_together"]
    alone = (
        choose("Why is it so?\n\n" * 10).notes,
        choose({"turns": ["Why?"]}).uncounted,
    )
    flat = [{"role": role, "text": "It is so."} for role in ("prompter", "assistant")]
    assert (alone, codes(choose(*flat).notes)) == (((), ()), ["turns_counted"])
    inner = [
        {"message": {"role": r, "content": "It is."}} for r in ("user", "assistant")
    ]
    assert codes(choose(*inner).notes) == ["turns_counted"]


def test_big_bench_is_counted_with_its_prefix(
    tmp_path: Path,
) -> None:
    for name in ("BFCL multi turn",):
        write_jsonl(tmp_path / f"{name}.json", [SETS[name][0](n) for n in range(4)])
    write_jsonl(tmp_path / "plain.jsonl", [{"messages": [user(n)]} for n in range(4)])
    task = {
        "name": "x",
        "task_prefix": "Say: ",
        "examples": [{"input": "Why is it so?"}],
    }
    write_jsonl(tmp_path / "task.json", [task])
    write_jsonl(tmp_path / "whole.jsonl", [{"input": "Say: Why is it so?"}])
    run = analyze(tmp_path, ".")
    assert run.code == 0, run.err
    found = {
        dataset["name"]: min(lengths(dataset)) for dataset in run.profile["datasets"]
    }
    assert found["BFCL multi turn"] == found["plain"]
    assert found["task"] == found["whole"]


def test_lists_and_objects_in_the_cells_of_a_csv_are_read_as_in_json_lines(
    tmp_path: Path,
) -> None:
    for n, row in enumerate([
        *(SETS[name][0](1) for name in ("L-Eval", "CoQA as published", "QMSum")),
        {"custom_id": 1, "body": {"prompt": "Why is it so?", "n": 1}},
        {"sent": [{"messages": [user(1)]}, {"messages": [user(2)]}]},
        {"input_ids": [1, 2, 3], "sampling_params": {"n": 1}},
        {"input_length": 600, "output_length": 5, "hash_ids": [1, 2]},
    ]):  # fmt: skip
        write_jsonl(tmp_path / f"{n}.jsonl", [row, row])
        with (tmp_path / f"{n}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([row, row.values(), row.values()])
    run = analyze(tmp_path, ".")
    assert run.code == 0, run.err
    found = [(one["lengths"], one.get("prefixes")) for one in run.profile["datasets"]]
    assert found[::2] == found[1::2]


def test_every_instruction_of_l_eval_is_a_prompt_after_its_document() -> None:
    rows = [SETS["L-Eval"][0](n) for n in range(3)]
    pairs = [
        f"P{row['input']}\n\n{text}" for row in rows for text in row["instructions"]
    ]
    prompts, _ = extract(choose(*rows, output_field="outputs", prefix="P"), *rows)
    assert (prompts.items, prompts.outputs) == (pairs, ["1", "2"] * 3)


VALUES = [
    "",
    " ",
    "A",
    "r2",
    "Why so?",
    LONG,
    "yes",
    "[1]",
    "7",
    0,
    7,
    None,
    ["a", "b"],
    CHAT,
]
NAMES = [
    "prompt",
    "question",
    "context",
    "answer",
    "input_length",
    "output_length",
    "A",
    "B",
    "C",
]


def test_small_files_of_one_shape_have_the_same_prompt() -> None:
    chance, by_shape = random.Random(7), defaultdict[Any, list[Any]](list)
    for _ in range(6_000):
        names, values = (
            chance.sample(NAMES, chance.randint(1, 3)),
            VALUES[: chance.choice([5, 14])],
        )
        rows = range(chance.randint(1, 3))
        head = [{name: chance.choice(values) for name in names} for _ in rows]
        by_shape[shape_of(head)].append(selected_or_none(head))
    by_shape.pop(())
    assert sum(len(chosen) > 1 for chosen in by_shape.values()) > 200
    assert all(chosen.count(chosen[0]) == len(chosen) for chosen in by_shape.values())


def selected_or_none(head: list[Row]) -> Any:
    with suppress(InputError):
        selection = choose(*head)
        return selection.kind, selection.label, selection.uncounted
    return None
