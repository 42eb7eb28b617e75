"""`chunkscope analyze` on Inspect's logs."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.commands.helpers import analyze, engines_loaded
from tests.prompts.inspect_logs import event, members, sample, write_eval, write_json, zipped

REAL = "data/harness_logs/inspect_ai-0.3.285"
SENTENCES = [
    "Inspect 0.3.285, task gsm8k_fewshot, 40 samples, 40 requests",
    "Inspect 0.3.285, task mmlu_choice, 15 samples, 15 requests",
    "Inspect 0.3.285, task gsm8k_agent, 10 samples, 30 requests",
]


def test_every_length_in_a_real_log_is_what_was_sent(tmp_path: Path, shared: Path) -> None:
    run = analyze(tmp_path, shared / REAL, "--exclude", "truth.jsonl")
    assert run.code == 0, run.err
    assert all(sentence in run.err for sentence in SENTENCES), run.err
    assert "Inspect's mock model" in run.err
    lines = (shared / REAL / "truth.jsonl").read_text().splitlines()
    truth = list(map(json.loads, lines))
    datasets = run.profile["datasets"]
    assert sum(dataset["log"]["requests"] for dataset in datasets) == len(truth)
    for dataset in datasets:
        sent = [request for request in truth if dataset["path"].endswith(request["log"])]
        # The mock counted words.
        words = Counter(
            str(sum(len(message["content"].split()) for message in request["messages"]))
            for request in sent
        )
        assert dataset["histogram"] == words
        assert dataset["log"]["order"] == "as sent"
    assert {dataset["name"] for dataset in datasets} == {
        *("gsm8k-fewshot", "mmlu-choice", "gsm8k-agent.eval", "gsm8k-agent.json")
    }
    fewshot = datasets[0]["log"]
    assert (fewshot["kinds"], fewshot["output_caps"]) == ({"generate": 40}, {"512": 40})


def test_a_tokenizer_counts_the_messages_when_they_are_asked_for(
    tmp_path: Path, shared: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = shared / "tokenizers" / "qwen3"
    reference = transformers.AutoTokenizer.from_pretrained(tokenizer)
    logs = sorted({*(shared / REAL).iterdir()} - {shared / REAL / "truth.jsonl"})
    assert len(logs) == 4
    for path in logs:
        run = analyze(tmp_path, path, "--tokenizer", tokenizer, "--field", "messages")
        assert run.code == 0, run.err
        lengths: Counter[str] = Counter()
        for line in (shared / REAL / "truth.jsonl").read_text().splitlines():
            sent = json.loads(line)
            if sent["log"] != path.name:
                continue
            for call in (c for m in sent["messages"] for c in m.get("tool_calls", ())):
                call["function"] = {"name": call["function"], "arguments": call.pop("arguments")}
            tools = [{"type": "function", "function": tool} for tool in sent["tools"]]
            text = reference.apply_chat_template(
                sent["messages"], tools=tools, add_generation_prompt=True, tokenize=False
            )
            lengths[str(len(reference.encode(text, add_special_tokens=False)))] += 1
        assert run.dataset["histogram"] == lengths


def test_what_a_server_counted_needs_no_tokenizer(tmp_path: Path) -> None:
    write_eval(tmp_path / "a.eval", *[sample(n, event("hi", usage=n)) for n in (10, 20)])
    write_json(tmp_path / "b.json", sample(1, event("hi", usage=30, config={})))
    assert engines_loaded(tmp_path, "analyze", "a.eval", "b.json") == set()
    first, second = analyze(tmp_path, "a.eval", "b.json").profile["datasets"]
    assert (first["histogram"], first["output_histogram"]) == ({"10": 1, "20": 1}, {"2": 2})
    assert (second["histogram"], second["log"]["output_caps"]) == ({"30": 1}, {})


def test_a_request_that_no_server_counted_is_counted_here(tmp_path: Path) -> None:
    write_eval(tmp_path / "a.eval", sample(1, event("hi", usage=500), event("hi", error="refused")))
    run = analyze(tmp_path, "a.eval")
    assert run.code == 0, run.err
    short, long = sorted(map(int, run.dataset["histogram"]))
    assert 0 < short < 20
    assert long == 500
    assert "Inspect 0.3.285, task sums, 1 sample, 2 requests" in run.err


def test_graders_count_and_are_said_to_be_of_another_model(tmp_path: Path) -> None:
    graded = event("graded", usage=30, model="openai/grader", role="grader", config={})
    asked = [event("hi", usage=9), graded]
    write_eval(tmp_path / "a.eval", sample(1, *asked), sample(2, asked[0]))
    run = analyze(tmp_path, "a.eval")
    assert run.dataset["histogram"] == {"9": 2, "30": 1}
    assert "its requests went to more than one model: vllm/m (2), openai/grader (1)" in run.err
    assert "3 requests (3 generate, 2 of them at most 64 tokens each; as sent)" in run.err


def test_tries_that_are_not_in_the_log_are_said_to_be_missing(tmp_path: Path) -> None:
    lost = sample(1, event("hi", usage=9), error_retries=[{"message": "timed out"}])
    write_eval(tmp_path / "a.eval", lost)
    said = "not in the log: what 1 failed and repeated try had sent"
    assert said in analyze(tmp_path, "a.eval").err


BAD = {
    "cut": "a.eval is cut off or damaged",
    "bomb": "a.eval sample 3: a.eval/samples/bomb_epoch_1.json unpacks to more than 1,000 times",
    "attachment": "a.eval sample 2: sample x epoch 1: attachment://gone points nowhere",
    "no events": "a.eval sample 2: sample x epoch 1 has no model events",
}


@pytest.mark.parametrize("what", BAD)
def test_bad_logs_are_said_in_a_sentence_and_the_rest_counts(tmp_path: Path, what: str) -> None:
    asked = [event("attachment://gone")] if what == "attachment" else []
    good = sample("good", event("hi", usage=7))
    held = members(good, sample("x", *asked), header=False)
    if what == "bomb":
        held |= members(good, sample("x", event("hi", usage=7)), header=False)
        held["samples/bomb_epoch_1.json"] = b'"' + b" " * (64 << 20)
    data = zipped(held)
    if what == "cut":
        data = data[: data.index(b"samples/x") + 20]
    (tmp_path / "a.eval").write_bytes(data)
    run = analyze(tmp_path, "a.eval")
    assert run.code == 3
    assert BAD[what] in run.err
    assert run.dataset["histogram"] == {"7": 2 if what == "bomb" else 1}
