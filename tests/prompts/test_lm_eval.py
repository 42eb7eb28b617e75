"""lm-eval's samples in every form it has written them, and what may be wrong with
them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from chunkscope.errors import InputError
from chunkscope.lengths.analyze import analyze
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.prompts.options import SelectOptions
from tests.prompts.helpers import codes, read_log
from tests.prompts.helpers import lm_eval_sample as sample

DATE = "2026-11-15T12-48-36.519903"
RESULTS = {"results": {}, "configs": {"mine": {}}, "versions": {}, "config": {}}


def written(folder: Path, *rows: dict, **results) -> Path:
    file = folder / f"samples_mine_{DATE}.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    if results:
        (folder / f"results_{DATE}.json").write_text(json.dumps(RESULTS | results))
    return file


def words(number: int) -> str:
    """So many tokens."""
    return " a" * number


def test_a_document_is_counted_once_whatever_the_filters(tmp_path: Path) -> None:
    rows = [
        sample(doc, [f"question {doc}", {"until": []}], resps=[["yes"]], filter=name)
        for name in ("strict", "flexible")
        for doc in range(3)
    ]
    found = read_log(written(tmp_path, *rows))
    assert [request.prompt for request in found.requests] == [
        f"question {n}" for n in range(3)
    ]
    assert (found.positions, found.summary.documents, found.bad) == ([1, 2, 3], 3, [])


def test_repeats_and_choices_are_requests(tmp_path: Path) -> None:
    caps = {"max_gen_toks": True, "max_new_tokens": -1, "max_tokens": 9}
    generated = sample(0, ["q", {"until": []} | caps], resps=[["one", "two"]])
    chosen = sample(1, ["q", " A"], ["q", " B"])
    found = read_log(written(tmp_path, generated, chosen))
    kinds = [(r.kind, r.continuation, r.output, r.output_cap) for r in found.requests]
    expected = [("generate", "", text, 9) for text in ("one", "two")]
    assert kinds == [
        *expected,
        *(("likelihood", f" {label}", None, None) for label in "AB"),
    ]


def test_messages_are_a_list_that_holds_one_text(tmp_path: Path) -> None:
    said = {"user": "hi", "assistant": "The answer is"}
    messages = [{"role": role, "content": said[role], "type": "text"} for role in said]
    row = sample(0, [[json.dumps(messages)], {"until": []}], resps=[["4"]])
    (request,) = read_log(written(tmp_path, row)).requests
    assert [message["content"] for message in request.prompt.messages] == [
        "hi",
        "The answer is",
    ]


LOCAL = {"config": {"model": "vllm", "model_args": "pretrained=x,add_bos_token=False"}}
CUT = LOCAL | {"max_length": 100}
LONG = [sample(0, [words(200), " a"]), sample(1, [words(20) + " ", "a"])]
ANSWER = [
    sample(0, [words(200), {"until": [], "max_gen_toks": 30}], resps=[[words(4)]])
]
ROLLING = [sample(0, [words(25)]), sample(1, [words(4)])]
SHORT = [sample(0, [words(10), {"until": []}], resps=[["x"]])]


@pytest.mark.parametrize(
    ("rows", "run", "lengths"),
    [
        # acc_mutual_info sends every choice again, without its context: a prefix token
        # stands there
        ([sample(0, [words(10), " a"], ["", " a"])], {"lm": "x"}, {11: 1, 2: 1}),
        # likelihood requests are cut
        (LONG, CUT | {"lm_eval_version": "0.4.13"}, {99: 1, 21: 1}),
        (LONG, CUT | {"lm_eval_version": "0.4.9.2"}, {100: 1, 21: 1}),
        (LONG, CUT, {99: 1, 21: 1}),
        # generation leaves room for the answer
        (ANSWER, CUT, {70: 1}),
        # texts are sent in windows: each but the first begins with a token that was
        # scored before, the last reaches back
        (ROLLING, LOCAL | {"max_length": 12}, {11: 3, 5: 1}),
        # special tokens are left to the tokenizer since versions are logged
        (SHORT, {"lm_eval_version": "0.4.13", "config": {"model": "vllm"}}, {11: 1}),
        (SHORT, {"lm_eval_version": None, "config": {"model": "vllm"}}, {10: 1}),
    ],
)
def test_requests_are_as_long_as_that_run_sent_them(
    tmp_path, rows, run, lengths
) -> None:
    (dataset,) = analyze([written(tmp_path, *rows, **run)]).datasets
    assert dict(dataset.lengths.counts) == lengths
    assert dataset.log.requests == sum(lengths.values())
    assert dataset.log.documents == len(rows)
    if rows is ANSWER:
        assert dict(dataset.output_lengths.counts) == {4: 1}
        assert (dataset.log.output_caps, dataset.log.output_limit) == ({"30": 1}, 30)
        assert dataset.log.order == "longest first"


def test_other_results_are_another_count(tmp_path: Path) -> None:
    """What was counted before is not taken from the cache when the run's settings
    changed.
    """
    row = sample(0, [words(50), " a"])
    run = {"config": {"model": "vllm", "model_args": {"add_bos_token": False}}}
    for longest in (40, 30):
        profile = analyze([written(tmp_path, row, max_length=longest, **run)])
        assert dict(profile.datasets[0].lengths.counts) == {longest - 1: 1}


def test_each_run_in_a_folder_is_read_by_its_own_results(tmp_path: Path) -> None:
    for version, date in (("0.4.9.2", "2025-01-01T00-00-00.1"), ("0.4.13", DATE)):
        written(tmp_path, *LONG).rename(tmp_path / f"samples_mine_{date}.jsonl")
        results = RESULTS | CUT | {"lm_eval_version": version}
        (tmp_path / f"results_{date}.json").write_text(json.dumps(results))
    datasets = analyze([tmp_path]).datasets
    assert {(d.log.version, d.lengths.max) for d in datasets} == {
        ("0.4.9.2", 100),
        ("0.4.13", 99),
    }
    with pytest.raises(InputError, match=f"results_{DATE}.json"):
        analyze([tmp_path / f"results_{DATE}.json"])


def test_all_tasks_of_a_file_that_holds_several_count(tmp_path: Path) -> None:
    chosen = [sample(doc, [f"choose {doc}", " A"]) for doc in range(2)]
    generated = [
        sample(doc, [f"write {doc}", {"until": []}], resps=[["x"]]) for doc in (1, 2)
    ]
    found = read_log(written(tmp_path, *chosen, *generated))
    assert [request.kind for request in found.requests] == ["likelihood"] * 2 + [
        "generate"
    ] * 2
    assert (found.summary.documents, found.bad) == (4, [])


BAD = [
    {"arguments": {"other": 1}},
    {"arguments": [[], " A"]},
    sample(1, ["q", 5]),
    sample(1, [7, " A"]),
    sample(1, [["not json"], {}]),
    sample(1, []),
    {"resps": None},
    {"resps": []},
    {"resps": [[]]},
]


@pytest.mark.parametrize("change", BAD, ids=str)
def test_a_bad_row_has_its_line_and_the_others_count(
    tmp_path: Path, change: dict
) -> None:
    rows = [
        sample(0, ["first", " A"]),
        sample(1, ["q", " A"]) | change,
        sample(2, ["z", " A"]),
    ]
    found = read_log(written(tmp_path, *rows))
    assert [request.prompt for request in found.requests] == ["first", "z"]
    assert found.bad == [2]


@pytest.mark.parametrize("bos", [5, "<s>", ["<s>", "1"], [], None, {"a": 1}], ids=str)
def test_results_of_any_form_are_read(tmp_path: Path, bos: Any) -> None:
    """A number crashed, and of a text only the first letter was taken."""
    row = sample(0, ["<pad>" + words(10), {"until": []}], resps=[["x"]])
    run = {"lm_eval_version": "0.4.13", "tokenizer_bos_token": bos}
    (request,) = read_log(written(tmp_path, row, **run)).requests
    assert request.special_tokens
    chat = sample(0, ["<s>" + words(10), {"until": []}], resps=[["x"]])
    (request,) = read_log(written(tmp_path, chat, **run)).requests
    assert request.special_tokens is (bos not in ("<s>", ["<s>", "1"]))


def test_options_that_change_a_prompt_do_not_change_a_log(tmp_path: Path) -> None:
    (tmp_path / "shots.txt").write_text("Shots")
    options = AnalyzeOptions(
        select=SelectOptions(output_field="doc"),
        prefix_file=f"{tmp_path}/shots.txt",  # type: ignore[arg-type]
        apply_chat_template=True,
    )
    (dataset,) = analyze(
        [written(tmp_path, sample(0, ["q", " A"]))], options=options
    ).datasets
    assert codes(dataset.notes) == ["unused_with_log"] * 3
    options = [note.values["option"] for note in dataset.notes]
    assert options == ["--prefix-file", "--output-field", "--apply-chat-template"]
    chosen = SelectOptions(fields=("arguments.gen_args_0.arg_0",))
    (dataset,) = analyze(
        [tmp_path / "*.jsonl"], options=AnalyzeOptions(select=chosen)
    ).datasets
    assert dataset.log is None
