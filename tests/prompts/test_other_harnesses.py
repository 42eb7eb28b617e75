"""Logs of the other harnesses, as their documentation and source describe them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chunkscope.lengths.analyze import analyze
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.harness.log import as_count
from chunkscope.prompts.harness.small import HELM_STATE
from tests.prompts.helpers import ReadLog, lm_eval_sample, read_log

CHAT = [{"role": "user", "content": "2 + 2?"}]
ANSWERED = [*CHAT, {"role": "assistant", "content": "4"}]
Sent = tuple[str, Any, int | None, Any]


def said(log: ReadLog) -> list[Sent]:
    """Kind, prompt (of a chat, its last message in a list), output cap and output of each."""

    def shown(prompt: Any) -> Any:
        return (
            [prompt.messages[-1]["content"]]
            if isinstance(prompt, Conversation)
            else prompt
        )

    return [
        (one.kind, shown(one.prompt), one.output_cap, one.output)
        for one in log.requests
    ]


def state(number: int, request: dict, *texts: str) -> dict:
    result = {
        "success": True,
        "cached": False,
        "completions": [{"text": text} for text in texts],
    }
    return {"instance": {"id": f"id{number}"}, "request": request, "result": result}


def nested(**response: Any) -> dict:
    doc = {"task_name": "lighteval|gsm8k|5", "generation_size": 9, "choices": ["a"]}
    empty = {
        "input": None,
        "input_tokens": [],
        "output_tokens": [],
        "logprobs": [],
        "text": [],
    }
    return {"doc": doc, "metric": {"acc": 1}, "model_response": empty | response}


def event(kind: str, data: dict, sample: str = "s.1") -> dict:
    return {
        "run_id": "r",
        "event_id": 1,
        "sample_id": sample,
        "type": kind,
        "data": data,
    }


def result(number: int, raw: Any, provider: str, **response: Any) -> dict:
    return {"testIdx": number, "prompt": {"raw": raw, "label": "x"}, "vars": {},
            "provider": {"id": provider}, "response": response}  # fmt: skip


TURNS = [{"role": "SYSTEM", "prompt": "be brief"}, {"role": "HUMAN", "prompt": "hi"}]
MORE_TURNS = [*TURNS, {"role": "BOT", "prompt": "yo"}, {"role": "HUMAN", "prompt": "?"}]
LABELS = {
    f"label: {label}": {"testing input": "", "prompt": f"Q {label}"} for label in "AB"
}
CHOSEN = {"testing input": "", "prompt": "Q", "choices": ["A", "B"], "pred_label": 0}
SCOPE = {"index": 0, "model": "m", "messages": ANSWERED, "metadata": {}}
HELM = {
    "adapter_spec": {"max_train_instances": 5},
    "request_states": [
        state(1, {"prompt": "Q: 1", "max_tokens": 5, "num_completions": 1}, "A"),
        state(1, {"prompt": "Q: 1 A", "max_tokens": 0, "echo_prompt": True}, "Q: 1 A"),
        state(2, {"messages": CHAT, "max_tokens": 7}, "4"),
        state(3, {"model": "no prompt"}),
        state(4, {"prompt": "", "multimodal_prompt": {"media_objects": []}}),
    ],
}
# By name: a document or its lines, what was sent, which rows are bad, and what the log says.
CASES: dict[str, tuple[Any, list[Sent], list[int], dict[str, Any]]] = {
    "HELM": (
        HELM,
        [("generate", "Q: 1", 5, "A"), ("likelihood", "Q: 1 A", None, None),
         ("generate", ["2 + 2?"], 7, "4")],
        [4, 5], {"shots": 5, "documents": 2},
    ),
    "lighteval": (
        [nested(input_tokens=[5, 6, 7], output_tokens=[[1, -1], [1, 2]], logprobs=[-1.0, -2.0]),
         nested(input_tokens=[[5, 6], [5, 6, 7]], output_tokens=[[6], [7]], logprobs=[-1.0, -2.0]),
         nested(input_tokens=[5], output_tokens=[[1, 2]], logprobs=[-1.0, -2.0], text=["scored"]),
         nested(input="What?", text=["yes"]),
         nested(input="", logprobs=[-1.0])],
        [("likelihood", 4, None, None), ("likelihood", 5, None, None),
         ("likelihood", 3, None, None), ("likelihood", 4, None, None),
         ("generate", 1, 9, 2), ("generate", "What?", 9, None)],
        [5], {"task": "lighteval|gsm8k|5", "shots": 5},
    ),
    "OpenCompass": (
        {"0": {"origin_prompt": "Q: 1", "prediction": "A", "gold": "A"},
         "1": {"origin_prompt": [*TURNS, {"role": "BOT", "prompt": ""}], "prediction": "yo"},
         "2": {"origin_prompt": [TURNS, MORE_TURNS], "prediction": ["yo", "!"]},
         "3": {"origin_prompt": 5, "prediction": "A"},
         "4": LABELS, "5": CHOSEN, "6": {"origin_prompt": CHAT, "prediction": "4"}},
        [("generate", "Q: 1", None, "A"), ("generate", ["hi"], None, "yo"),
         ("generate", ["hi"], None, "yo"), ("generate", ["?"], None, "!"),
         ("likelihood", "Q A", None, None), ("likelihood", "Q B", None, None),
         ("likelihood", "Q", None, None), ("generate", ["2 + 2?"], None, "4")],
        [4], {"task": "log", "documents": 6},
    ),
    "OpenCompass, while it is written": (
        [LABELS | {"idx": 0}, LABELS | {"idx": 1}],
        [("likelihood", f"Q {label}", None, None) for label in "ABAB"], [], {},
    ),
    "OpenAI Evals": (
        [{"spec": {"eval_name": "arithmetic.dev", "completion_fns": ["m"]}},
         event("sampling", {"prompt": CHAT, "sampled": ["4"]}),
         event("match", {"correct": True}),
         event("sampling", {"prompt": "Q", "sampled": "A",
                            "usage": {"prompt_tokens": 12, "completion_tokens": 3}}, "s.2"),
         event("sampling", {"prompt": None}, "s.3"),
         {"final_report": {"accuracy": 1.0}}],
        [("generate", ["2 + 2?"], None, "4"), ("generate", 12, None, 3)],
        [5], {},
    ),
    "simple-evals": (
        {"score": 0.5, "metrics": {}, "htmls": ["<p>"] * 3, "convos": [ANSWERED, 7, ANSWERED]},
        [("generate", ["2 + 2?"], None, "4")] * 2, [2], {"documents": 2},
    ),
    "evalscope": (
        [SCOPE | {"model_output": {"usage": {"input_tokens": 20, "output_tokens": 4}}},
         SCOPE | {"model_output": {"choices": [], "usage": None}}],
        [("generate", 20, None, 4), ("generate", ["2 + 2?"], None, "4")], [], {"task": "log"},
    ),
    "promptfoo": (
        {"evalId": "e", "config": {},
         "results": {"version": 3, "results": [
             result(0, json.dumps(CHAT), "openai:chat:m", output="4"),
             result(0, "plain", "openai:m", output="4"),
             result(1, "plain", "openai:completion:m", output="4"),
             result(1, "plain", "openai:m", tokenUsage={"prompt": 11, "completion": 2}),
             result(1, "plain", "openai:m", output="4", cached=True),
             result(2, None, "openai:m")]}},
        [("generate", ["2 + 2?"], None, "4"), ("generate", ["plain"], None, "4"),
         ("generate", "plain", None, "4"), ("generate", 11, None, 2)],
        [6], {},
    ),
}  # fmt: skip
# One of each, which tests/fuzz damages.
LOGS = {name: case[0] for name, case in CASES.items()}
LOGS["lm-eval"] = [lm_eval_sample(0, ["q", {}], resps=[["a"]])]


@pytest.mark.parametrize("name", CASES)
def test_a_log_is_read_as_the_requests_that_were_sent(
    tmp_path: Path, name: str
) -> None:
    content, sent, bad, about = CASES[name]
    lines = content if isinstance(content, list) else [content]
    file = tmp_path / ("log.json" if lines[0] is content else "log.jsonl")
    file.write_text("\n".join(map(json.dumps, lines)))
    log = read_log(file)
    assert log.log.harness == name.partition(",")[0]
    assert said(log) == sent
    assert log.bad == bad
    assert not {*log.positions} & {*bad}
    assert {key: getattr(log.log, key) for key in about} == about


@pytest.mark.parametrize("key", ["labels", "convo"])
def test_a_key_that_a_log_has_alone_makes_no_log_of_rows_with_others(
    tmp_path: Path, key: str
):
    (tmp_path / "x.json").write_text(json.dumps([{"text": "Why so?", key: [3]}] * 3))
    assert analyze([tmp_path]).datasets[0].field == "text"


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (7, 7),
        (0, 0),
        ("7", 7),
        ("9" * 14, int("9" * 14)),
        *((odd, None) for odd in (-1, True, 7.0)),
    ]
    + [(odd, None) for odd in ("-1", "x", "9" * 15, 10**15, "٣", None, [3])],
)
def test_a_count_is_a_whole_number_that_may_be_written_as_text(
    value: Any, count: Any
) -> None:
    assert as_count(value) == count


def test_a_run_of_helm_is_its_state_and_none_of_the_files_beside_it(
    tmp_path: Path,
) -> None:
    run = tmp_path / "mmlu:subject=anatomy,model=org_model"
    run.mkdir()
    for other in ("instances.json", "display_requests.json", "run_spec.json"):
        (run / other).write_text('[{"prompt": "not to be counted"}]')
    for more in (
        {},
        {"annotator_specs": [{}]},
    ):  # a second list: then no list of rows is found
        (run / HELM_STATE).write_text(json.dumps(HELM | more))
        (dataset,) = analyze([tmp_path]).datasets
        log = dataset.log
        assert (log.harness, log.task, log.shots) == ("HELM", run.name, 5)
        assert (log.documents, log.requests, log.output_limit) == (2, 3, 7)


def test_ids_of_tokens_need_no_tokenizer(tmp_path: Path) -> None:
    row = nested(input_tokens=[5, 6, 7], output_tokens=[[1, 2, -1]], text=["yes"])
    pq.write_table(pa.Table.from_pylist([row, row]), tmp_path / "details_task.parquet")
    profile = analyze([tmp_path])
    (dataset,) = profile.datasets
    assert profile.tokenizer.kind == "none"
    assert dict(dataset.lengths.counts) == {3: 2}
    assert dict(dataset.output_lengths.counts) == {2: 2}
    assert dataset.log.output_caps == {"9": 2}
