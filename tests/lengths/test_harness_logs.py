"""Logs of real harnesses: the requests found are those that were sent, no more and no
fewer.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from chunkscope.lengths.analyze import analyze
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.prompts.chat import Conversation
from chunkscope.sources.base import ReadOptions
from chunkscope.sources.find import discover
from tests.prompts.helpers import read_log

LM_EVAL = ("lm-eval-0.4.5", "lm-eval-0.4.13")
RUNS = ("mock__plain", "mock__chat", "mock__api")


def requests_in(folder: Path) -> dict[str, list]:
    """What a log is said to have sent, by task."""
    found = defaultdict(list)
    for source in discover([str(folder)], options=ReadOptions())[0]:
        log = read_log(source)
        assert not log.bad
        found[log.summary.task] += log.requests
    return found


def truth_of(folder: Path, run: str) -> dict[str, list]:
    sent = defaultdict(list)
    for line in (folder / "truth.jsonl").read_text().splitlines():
        request = json.loads(line)
        if request["run"] == run:
            sent[request["task"]].append(request)
    return sent


@pytest.mark.parametrize("version", LM_EVAL)
@pytest.mark.parametrize("run", RUNS)
def test_lm_eval_sent_what_its_log_is_said_to_hold(
    shared: Path, version: str, run: str
) -> None:
    folder = shared / "data" / "harness_logs" / version
    found, sent = requests_in(folder / run), truth_of(folder, run)
    assert found.keys() == sent.keys()
    for task, requests in found.items():
        assert Counter(map(_as_found, requests)) == Counter(
            map(_as_sent, sent[task])
        ), task


def _as_found(request) -> tuple:
    if isinstance(request.prompt, Conversation):
        text = json.dumps(request.prompt.messages)
    else:
        text = request.prompt + request.continuation
    return request.kind, text, request.output_cap


def _as_sent(request: dict) -> tuple:
    if "messages" in request:
        said = [
            {"role": m["role"], "content": m["content"]} for m in request["messages"]
        ]
        return "generate", json.dumps(said), request["gen_kwargs"]["max_tokens"]
    if "gen_kwargs" in request:
        return (
            "generate",
            request["context"],
            request["gen_kwargs"].get("max_gen_toks", 256),
        )
    return "likelihood", request["context"] + request.get("continuation", ""), None


@pytest.mark.parametrize("version", LM_EVAL)
@pytest.mark.parametrize("run", RUNS)
def test_every_length_is_the_reference_tokenizers(
    shared: Path, version: str, run: str
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer_folder = shared / "tokenizers" / "qwen3"
    reference = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    folder = shared / "data" / "harness_logs" / version
    profile = analyze(
        [folder / run], options=AnalyzeOptions(tokenizer=str(tokenizer_folder))
    )
    lengths = {d.log.task: dict(d.lengths.counts) for d in profile.datasets if d.log}
    for task, requests in truth_of(folder, run).items():
        sent = Counter(_length(request, reference) for request in requests)
        assert lengths.pop(task) == sent, task
    assert not lengths
    assert not profile.skipped
    assert not profile.failures


def _length(request: dict, reference) -> int:
    if "messages" not in request:
        return len(
            reference.encode(request["context"] + request.get("continuation", ""))
        )
    made = reference.apply_chat_template(
        request["messages"], add_generation_prompt=True, tokenize=False
    )
    return len(reference.encode(made, add_special_tokens=False))
