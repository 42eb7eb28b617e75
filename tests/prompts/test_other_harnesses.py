"""Logs of the other harnesses, as their documentation and source describe them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chunkscope.lengths.analyze import analyze
from chunkscope.prompts.harness.small import HELM_STATE
from tests.prompts.helpers import ReadLog, lm_eval_sample, read_log

CHAT = [{"role": "user", "content": "2 + 2?"}]
ANSWERED = [*CHAT, {"role": "assistant", "content": "4"}]


def document(folder: Path, value: Any, name: str = "log.json") -> ReadLog:
    file = folder / name
    file.write_text(json.dumps(value))
    return read_log(file)


def lines(folder: Path, *rows: Any) -> ReadLog:
    file = folder / "log.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return read_log(file)


def table(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "details_task.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows)), file)
    return file


def said(found: ReadLog) -> list[tuple]:
    """Kind, prompt (of a chat, its last message), output cap and output of each request."""
    return [
        (
            request.kind,
            getattr(request.prompt, "messages", [{"content": request.prompt}])[-1]["content"],
            request.output_cap,
            request.output,
        )
        for request in found.requests
    ]


def state(number: int, request: dict, *texts: str, **more: Any) -> dict:
    made = {"success": True, "cached": False, "completions": [{"text": text} for text in texts]}
    return {"instance": {"id": f"id{number}"}, "request": request, "result": made, **more}


def test_helm(tmp_path: Path) -> None:
    run = tmp_path / "mmlu:subject=anatomy,model=org_model"
    run.mkdir()
    for other in ("instances.json", "display_requests.json", "run_spec.json"):
        (run / other).write_text('[{"prompt": "not to be counted"}]')
    states = [
        state(1, {"prompt": "Q: 1", "max_tokens": 5, "num_completions": 1}, "A"),
        state(1, {"prompt": "Q: 1 A", "max_tokens": 0, "echo_prompt": True}, "Q: 1 A"),
        state(2, {"messages": CHAT, "max_tokens": 7}, "4"),
        state(3, {"model": "no prompt"}),
    ]
    spec = {"adapter_spec": {"max_train_instances": 5}, "request_states": states}
    found = document(run, spec, HELM_STATE)
    assert said(found) == [
        ("generate", "Q: 1", 5, "A"),
        ("likelihood", "Q: 1 A", None, None),
        ("generate", "2 + 2?", 7, "4"),
    ]
    assert found.bad == [4]
    assert len(document(run, spec | {"annotator_specs": [{}]}, HELM_STATE).requests) == 3
    (dataset,) = analyze([tmp_path]).datasets
    log = dataset.log
    assert (log.harness, log.task, log.shots) == ("HELM", run.name, 5)
    assert (log.documents, log.requests, log.output_limit) == (2, 3, 7)


# --- lighteval -------------------------------------------------------------------------------

FLAT = {"full_prompt": "Q", "num_effective_few_shots": 2, "example": "Q"}


def test_lighteval_with_flat_columns(tmp_path: Path) -> None:
    generated = {"input_tokens": [[0, 0, 5, 6, 7]], "padded": [2], "predictions": ["text"]}
    found = read_log(table(tmp_path, FLAT | generated))
    assert said(found) == [("generate", 3, None, None)]
    assert found.log.shots == 2
    scored = {"input_tokens": [[5, 6, 7], [5, 8, 0]], "padded": [0, 1]}
    found = read_log(table(tmp_path, FLAT | scored | {"predictions": [-1.0, -2.0]}))
    assert said(found) == [("likelihood", 3, None, None), ("likelihood", 2, None, None)]


def nested(**response: Any) -> dict:
    doc = {"task_name": "lighteval|gsm8k|5", "generation_size": 9, "choices": ["a"]}
    empty = {"input": None, "input_tokens": [], "output_tokens": [], "logprobs": [], "text": []}
    return {"doc": doc, "metric": {"acc": 1}, "model_response": empty | response}


def test_lighteval_with_nested_columns_needs_no_tokenizer(tmp_path: Path) -> None:
    row = nested(input_tokens=[5, 6, 7], output_tokens=[[1, 2, -1]], text=["yes"])
    profile = analyze([table(tmp_path, row, row)])
    (dataset,) = profile.datasets
    assert profile.tokenizer.kind == "none"
    assert dict(dataset.lengths.counts) == {3: 2}
    assert dict(dataset.output_lengths.counts) == {2: 2}
    assert dataset.log.output_caps == {"9": 2}
    assert (dataset.log.task, dataset.log.shots) == ("lighteval|gsm8k|5", 5)
    assert (dataset.log.documents, dataset.log.requests) == (2, 2)


def test_lighteval_sends_one_context_with_each_choice(tmp_path: Path) -> None:
    row = nested(input_tokens=[5, 6, 7], output_tokens=[[1, -1], [1, 2]], logprobs=[-1.0, -2.0])
    found = read_log(table(tmp_path, row))
    assert said(found) == [("likelihood", 4, None, None), ("likelihood", 5, None, None)]
    row = nested(input_tokens=[[5, 6], [5, 6, 7]], output_tokens=[[6], [7]], logprobs=[-1.0, -2.0])
    found = read_log(table(tmp_path, row))
    assert said(found) == [("likelihood", 3, None, None), ("likelihood", 4, None, None)]
    generated = nested(
        input_tokens=[5], output_tokens=[[1, 2]], logprobs=[-1.0, -2.0], text=["its own scores"]
    )
    assert said(read_log(table(tmp_path, generated))) == [("generate", 1, 9, 2)]


def test_lighteval_without_ids_has_the_text_or_says_so(tmp_path: Path) -> None:
    unknown = nested(input="", logprobs=[-1.0])
    found = read_log(table(tmp_path, nested(input="What?", text=["yes"]), unknown))
    assert said(found) == [("generate", "What?", 9, None)]
    assert found.bad == [2]


def test_open_compass(tmp_path: Path) -> None:
    turns = [{"role": "SYSTEM", "prompt": "be brief"}, {"role": "HUMAN", "prompt": "hi"}]
    rounds = [[*turns], [*turns, {"role": "BOT", "prompt": "yo"}, {"role": "HUMAN", "prompt": "?"}]]
    entries = {
        "0": {"origin_prompt": "Q: 1", "prediction": "A", "gold": "A"},
        "1": {"origin_prompt": [*turns, {"role": "BOT", "prompt": ""}], "prediction": "yo"},
        "2": {"origin_prompt": rounds, "prediction": ["yo", "!"]},
        "3": {"origin_prompt": 5, "prediction": "A"},
    }
    found = document(tmp_path, entries)
    assert said(found) == [
        ("generate", "Q: 1", None, "A"),
        ("generate", "hi", None, "yo"),
        ("generate", "hi", None, "yo"),
        ("generate", "?", None, "!"),
    ]
    assert found.positions == [1, 2, 3, 3]
    assert found.bad == [4]
    assert (found.log.task, found.log.documents) == ("log", 3)


def test_open_compass_by_perplexity_sends_a_prompt_for_each_label(tmp_path: Path) -> None:
    labels = {
        f"label: {label}": {"testing input": "", "prompt": f"Q {label}", "PPL": 1.5}
        for label in "AB"
    }
    found = document(tmp_path, {"0": labels, "1": labels})
    assert said(found) == [("likelihood", f"Q {label}", None, None) for label in "ABAB"]
    chosen = {"testing input": "", "prompt": "Q", "choices": ["A", "B"], "pred_label": 0}
    found = document(tmp_path, {"0": chosen, "1": chosen})
    assert said(found) == [("likelihood", "Q", None, None)] * 2


def event(kind: str, data: dict, sample: str = "s.1") -> dict:
    return {"run_id": "r", "event_id": 1, "sample_id": sample, "type": kind, "data": data}


def test_openai_evals(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 3}
    found = lines(
        tmp_path,
        {"spec": {"eval_name": "arithmetic.dev", "completion_fns": ["m"]}},
        event("sampling", {"prompt": CHAT, "sampled": ["4"]}),
        event("match", {"correct": True}),
        event("sampling", {"prompt": "Q", "sampled": "A", "usage": usage}, "s.2"),
        event("cond_logp", {"prompt": "Q", "completion": " A"}, "s.2"),
        event("sampling", {"prompt": None}, "s.3"),
        {"final_report": {"accuracy": 1.0}},
    )
    assert said(found) == [
        ("generate", "2 + 2?", None, "4"),
        ("generate", 12, None, 3),
        ("likelihood", "Q", None, None),
    ]
    assert found.bad == [6]
    assert found.log.task == "arithmetic.dev"


def test_simple_evals(tmp_path: Path) -> None:
    log = {"score": 0.5, "metrics": {}, "htmls": ["<p>"] * 3, "convos": [ANSWERED, 7, ANSWERED]}
    found = document(tmp_path, log)
    assert said(found) == [("generate", "2 + 2?", None, "4")] * 2
    assert found.positions == [1, 3]
    assert found.bad == [2]


def test_evalscope(tmp_path: Path) -> None:
    usage = {"input_tokens": 20, "output_tokens": 4}
    row = {"index": 0, "model": "m", "messages": ANSWERED, "metadata": {}}
    found = lines(
        tmp_path,
        row | {"model_output": {"choices": [], "usage": usage}},
        row | {"model_output": {"choices": [], "usage": None}},
    )
    assert said(found) == [("generate", 20, None, 4), ("generate", "2 + 2?", None, "4")]


def test_promptfoo(tmp_path: Path) -> None:
    def result(number: int, raw: Any, provider: str, **response: Any) -> dict:
        prompt = {"raw": raw, "label": "x"}
        return {"testIdx": number, "prompt": prompt, "vars": {}, "provider": {"id": provider},
                "response": response}  # fmt: skip

    usage = {"prompt": 11, "completion": 2, "total": 13}
    results = [
        result(0, json.dumps(CHAT), "openai:chat:m", output="4"),
        result(0, "plain", "openai:m", output="4"),
        result(1, "plain", "openai:completion:m", output="4"),
        result(1, "plain", "openai:m", output="4", tokenUsage=usage),
        result(1, "plain", "openai:m", output="4", cached=True),
        result(2, None, "openai:m"),
    ]
    log = {"evalId": "e", "results": {"version": 3, "results": results}, "config": {},
           "metadata": {"promptfooVersion": "0.118.0"}}  # fmt: skip
    found = document(tmp_path, log)
    assert said(found) == [
        ("generate", "2 + 2?", None, "4"),
        ("generate", "plain", None, "4"),
        ("generate", "plain", None, "4"),
        ("generate", 11, None, 2),
    ]
    assert [isinstance(r.prompt, str) for r in found.requests] == [False, False, True, False]
    assert found.bad == [6]
    assert found.log.version == "0.118.0"


# --- one of each, which tests/fuzz damages --------------------------------------------------------

USAGE = {"usage": {"input_tokens": 1, "output_tokens": 1, "prompt_tokens": 1}}
LOGS = {
    "lm-eval": [lm_eval_sample(0, ["q", {}], resps=[["a"]])],
    "HELM": {
        "adapter_spec": {"max_train_instances": 1},
        "request_states": [state(1, {"prompt": "q", "messages": CHAT, "max_tokens": 1}, "a")],
    },
    "lighteval": [nested(input_tokens=[[1]], output_tokens=[[1]], logprobs=[-1.0])],
    "lighteval, flat": [FLAT | {"input_tokens": [[1]], "padded": [0], "predictions": ["x"]}],
    "OpenCompass": {
        "0": {"origin_prompt": [{"role": "HUMAN", "prompt": "hi"}], "prediction": "x"},
        "1": {"label: A": {"prompt": "q"}},
    },
    "OpenAI Evals": [
        {"spec": {"eval_name": "e"}},
        event("sampling", {"prompt": CHAT, "sampled": ["4"], **USAGE}),
        event("cond_logp", {"prompt": "q", "completion": "a"}),
    ],
    "simple-evals": {"score": 1, "htmls": [], "convos": [ANSWERED]},
    "evalscope": [{"index": 0, "messages": ANSWERED, "model_output": USAGE}],
    "promptfoo": {
        "results": {
            "results": [{"prompt": {"raw": "q"}, "vars": {}, "provider": {"id": "m"},
                         "response": {"output": "a", "tokenUsage": {"prompt": 1}}}]
        },
        "metadata": {"promptfooVersion": "1"},
    },
}  # fmt: skip
