"""`chunkscope analyze` on Inspect's logs: every request as it was sent."""

import json
from collections import Counter
from pathlib import Path

import pytest

from chunkscope import Profile
from tests.commands.helpers import analyze
from tests.prompts.inspect_logs import event, sample, write_eval, write_json

REAL = "data/harness_logs/inspect_ai-0.3.285"


def counted(place: Path, *words: str | Path, code: int = 0) -> Profile:
    run = analyze(place, *words)
    assert run.code == code, run.err
    return Profile.load(place / "reports" / "profile.json")


def counts(profile: Profile) -> dict[int, int]:
    (dataset,) = profile.datasets
    return dict(dataset.lengths.counts)


def test_a_tokenizer_counts_the_messages_when_they_are_asked_for(
    tmp_path: Path, shared: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = shared / "tokenizers" / "qwen3"
    reference = transformers.AutoTokenizer.from_pretrained(tokenizer)
    logs = sorted({*(shared / REAL).iterdir()} - {shared / REAL / "truth.jsonl"})
    assert len(logs) == 4
    for path in logs:
        lengths: Counter[int] = Counter()
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
            lengths[len(reference.encode(text, add_special_tokens=False))] += 1
        words = (path, "--tokenizer", tokenizer, "--field", "messages")
        assert counts(counted(tmp_path, *words)) == lengths


def test_what_a_server_counted_needs_no_tokenizer(tmp_path: Path) -> None:
    write_eval(tmp_path / "a.eval", *[sample(n, event("hi", usage=n)) for n in (10, 20)])
    write_json(tmp_path / "b.json", sample(1, event("hi", usage=30, config={})))
    profile = counted(tmp_path, "a.eval", "b.json")
    assert profile.tokenizer.kind == "none"
    first, second = profile.datasets
    assert dict(first.lengths.counts) == {10: 1, 20: 1}
    assert first.output_lengths is not None
    assert dict(first.output_lengths.counts) == {2: 2}
    assert dict(second.lengths.counts) == {30: 1}


def test_a_request_that_no_server_counted_is_counted_here(tmp_path: Path) -> None:
    write_eval(tmp_path / "a.eval", sample(1, event("hi", usage=500), event("hi", error="refused")))
    short, long = sorted(counts(counted(tmp_path, "a.eval")))
    assert 0 < short < 20
    assert long == 500
