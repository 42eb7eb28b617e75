"""Logs of the other harnesses, as their documentation and source describe them."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chunkscope.lengths.analyze import analyze
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.harness.helm import STATE_NAME
from chunkscope.prompts.harness.log import SentRequest, as_count
from chunkscope.sources.base import DataError
from tests.prompts.helpers import ReadLog, lm_eval_sample, read_log

CHAT = [{"role": "user", "content": "2 + 2?"}]
ANSWERED = [*CHAT, {"role": "assistant", "content": "4"}]


@dataclass(frozen=True)
class Sent:
    """A request; of a chat, the prompt is its last message in a list."""

    prompt: Any
    kind: str = "generate"
    cap: int | None = None
    output: Any = None


def likelihood(prompt: Any) -> Sent:
    return Sent(prompt, kind="likelihood")


def sent_in(log: ReadLog) -> list[Sent]:
    return [sent_of(request) for request in log.requests]


def sent_of(request: SentRequest) -> Sent:
    prompt: Any = request.prompt
    if isinstance(prompt, Conversation):
        prompt = [prompt.messages[-1]["content"]]
    return Sent(prompt, request.kind, request.output_cap, request.output)


@dataclass(frozen=True)
class Case:
    """A document, or a list of lines; what was sent; which rows are bad; what the log
    says.
    """

    content: Any
    sent: list[Sent]
    bad: list[int] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)


def helm_state(number: int, request: dict, *texts: str) -> dict:
    completions = [{"text": text} for text in texts]
    result = {"success": True, "cached": False, "completions": completions}
    return {"instance": {"id": f"id{number}"}, "request": request, "result": result}


def lighteval_row(**response: Any) -> dict:
    doc = {"task_name": "lighteval|gsm8k|5", "generation_size": 9, "choices": ["a"]}
    empty: dict[str, Any] = {"input": None, "text": []}
    for name in ("input_tokens", "output_tokens", "logprobs"):
        empty[name] = []
    return {"doc": doc, "metric": {"acc": 1}, "model_response": empty | response}


TURNS = [{"role": "SYSTEM", "prompt": "be brief"}, {"role": "HUMAN", "prompt": "hi"}]
MORE_TURNS = [*TURNS, {"role": "BOT", "prompt": "yo"}, {"role": "HUMAN", "prompt": "?"}]
TO_BE_FILLED = [*TURNS, {"role": "BOT", "prompt": ""}]
LABELS = {
    "label: A": {"testing input": "", "prompt": "Q A"},
    "label: B": {"testing input": "", "prompt": "Q B"},
}
CHOSEN = {"testing input": "", "prompt": "Q", "choices": ["A", "B"], "pred_label": 0}
SCOPE = {"index": 0, "model": "m", "messages": ANSWERED, "metadata": {}}
HELM = {
    "adapter_spec": {"max_train_instances": 5},
    "request_states": [
        helm_state(1, {"prompt": "Q: 1", "max_tokens": 5, "num_completions": 1}, "A"),
        helm_state(1, {"prompt": "Q A", "max_tokens": 0, "echo_prompt": True}, "Q A"),
        helm_state(2, {"messages": CHAT, "max_tokens": 7}, "4"),
        helm_state(3, {"model": "no prompt"}),
        helm_state(4, {"prompt": "", "multimodal_prompt": {"media_objects": []}}),
    ],
}
CASES = {
    "HELM": Case(
        HELM,
        [
            Sent("Q: 1", cap=5, output="A"),
            likelihood("Q A"),
            Sent(["2 + 2?"], cap=7, output="4"),
        ],
        bad=[4, 5],
        about={"shots": 5, "documents": 2},
    ),
    "lighteval": Case(
        [
            lighteval_row(
                input_tokens=[5, 6, 7],
                output_tokens=[[1, -1], [1, 2]],
                logprobs=[-1.0, -2.0],
            ),
            lighteval_row(
                input_tokens=[[5, 6], [5, 6, 7]],
                output_tokens=[[6], [7]],
                logprobs=[-1.0, -2.0],
            ),
            lighteval_row(
                input_tokens=[5],
                output_tokens=[[1, 2]],
                logprobs=[-1.0, -2.0],
                text=["scored"],
            ),
            lighteval_row(input="What?", text=["yes"]),
            lighteval_row(input="", logprobs=[-1.0]),
        ],
        [
            likelihood(4),
            likelihood(5),
            likelihood(3),
            likelihood(4),
            Sent(1, cap=9, output=2),
            Sent("What?", cap=9),
        ],
        bad=[5],
        about={"task": "lighteval|gsm8k|5", "shots": 5},
    ),
    "OpenCompass": Case(
        {
            "0": {"origin_prompt": "Q: 1", "prediction": "A", "gold": "A"},
            "1": {"origin_prompt": TO_BE_FILLED, "prediction": "yo"},
            "2": {"origin_prompt": [TURNS, MORE_TURNS], "prediction": ["yo", "!"]},
            "3": {"origin_prompt": 5, "prediction": "A"},
            "4": LABELS,
            "5": CHOSEN,
            "6": {"origin_prompt": CHAT, "prediction": "4"},
        },
        [
            Sent("Q: 1", output="A"),
            Sent(["hi"], output="yo"),
            Sent(["hi"], output="yo"),
            Sent(["?"], output="!"),
            likelihood("Q A"),
            likelihood("Q B"),
            likelihood("Q"),
            Sent(["2 + 2?"], output="4"),
        ],
        bad=[4],
        about={"task": "log", "documents": 6},
    ),
    "OpenCompass, while it is written": Case(
        [LABELS | {"idx": 0}, LABELS | {"idx": 1}],
        [likelihood("Q A"), likelihood("Q B"), likelihood("Q A"), likelihood("Q B")],
    ),
    "evalscope": Case(
        [
            SCOPE
            | {"model_output": {"usage": {"input_tokens": 20, "output_tokens": 4}}},
            SCOPE | {"model_output": {"choices": [], "usage": None}},
        ],
        [Sent(20, output=4), Sent(["2 + 2?"], output="4")],
        about={"task": "log"},
    ),
}
# One of each, which tests/fuzz damages.
LOGS = {name: case.content for name, case in CASES.items()}
LOGS["lm-eval"] = [lm_eval_sample(0, ["q", {}], resps=[["a"]])]


def written(folder: Path, content: Any) -> Path:
    """A document, or a file of lines."""
    if isinstance(content, list):
        file = folder / "log.jsonl"
        file.write_text("\n".join(map(json.dumps, content)))
    else:
        file = folder / "log.json"
        file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize("name", CASES)
def test_a_log_is_read_as_the_requests_that_were_sent(tmp_path, name) -> None:
    case = CASES[name]
    log = read_log(written(tmp_path, case.content))
    assert log.summary.harness == name.partition(",")[0]
    assert sent_in(log) == case.sent
    assert log.bad == case.bad
    assert not {*log.positions} & {*case.bad}
    assert {key: getattr(log.summary, key) for key in case.about} == case.about


OLD_LIGHTEVAL = {"full_prompt": "Q", "input_tokens": [[1]], "cont_tokens": [[2]]}
OLD_LM_EVAL = {"doc_id": 0, "doc": {}, "arguments": [["Q", " A"]], "resps": [[-1.0]]}


@pytest.mark.parametrize(
    ("row", "version"),
    [
        pytest.param(OLD_LIGHTEVAL, "lighteval 0.10 or older", id="lighteval"),
        pytest.param(OLD_LM_EVAL, "lm-eval 0.4.2 or older", id="lm-eval"),
    ],
)
def test_an_older_log_is_refused_by_its_version(tmp_path, row, version) -> None:
    with pytest.raises(DataError, match=f"logs of {version} are not read") as raised:
        read_log(written(tmp_path, [row, row]))
    assert raised.value.hint


def test_rows_with_labels_are_no_log_of_opencompass(tmp_path) -> None:
    rows = [{"text": "Why so?", "labels": [3]}] * 3
    (tmp_path / "x.json").write_text(json.dumps(rows))
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
        (run / STATE_NAME).write_text(json.dumps(HELM | more))
        (dataset,) = analyze([tmp_path]).datasets
        log = dataset.log
        assert (log.harness, log.task, log.shots) == ("HELM", run.name, 5)
        assert (log.documents, log.requests, log.output_limit) == (2, 3, 7)


def test_ids_of_tokens_need_no_tokenizer(tmp_path: Path) -> None:
    row = lighteval_row(
        input_tokens=[5, 6, 7], output_tokens=[[1, 2, -1]], text=["yes"]
    )
    pq.write_table(pa.Table.from_pylist([row, row]), tmp_path / "details_task.parquet")
    profile = analyze([tmp_path])
    (dataset,) = profile.datasets
    assert profile.tokenizer.kind == "none"
    assert dict(dataset.lengths.counts) == {3: 2}
    assert dict(dataset.output_lengths.counts) == {2: 2}
    assert dataset.log.output_caps == {"9": 2}
