"""Scoring contexts once, tried on a real vLLM: it computes as many tokens as were predicted."""

import json

import pytest

import chunkscope
from chunkscope.planning.recommend import recommend
from chunkscope.tokenizers.tokenizer import Tokenizer

pytestmark = pytest.mark.real


def test_contexts_that_are_scored_once_are_computed_as_predicted(probe, shared):
    """MMLU with five shots, as lm-eval logged it: 30 questions of two subjects, four choices."""
    folder = str(shared / "tokenizers" / "qwen3")
    logs = shared / "data/harness_logs/lm-eval-0.4.13/mock__plain"
    files = sorted(logs.glob("samples_mini_mmlu_*.jsonl"))
    plan = recommend(
        chunkscope.analyze(files, tokenizer=folder), model="qwen3-8b", gpu="h200",
        vllm_version="0.28", entry="llm",
    )  # fmt: skip
    (saving,) = [one for one in plan.savings if one.code == "score_contexts_once"]
    assert saving.values["how"] == "generative_scoring"
    samples = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    pairs = [
        (sent["arg_0"], sent["arg_1"])
        for sample in samples
        for sent in sample["arguments"].values()
    ]
    tokenizer, texts = Tokenizer(folder), [context + choice for context, choice in pairs]
    scored = tokenizer.encode(texts, special_tokens=True)
    contexts = tokenizer.encode(list(dict(pairs)), special_tokens=True)
    labels = sorted({ids[-1] for ids in scored})
    engine = {
        name: getattr(plan.effective, name) for name in ("max_num_batched_tokens", "max_num_seqs")
    }
    runs = [
        {"prompts": scored, "output": 1, "prompt_logprobs": True},
        {"prompts": contexts, "output": 1, "labels": labels},
    ]
    engine |= {"max_model_len": 8_192, "block_size": 16}  # on a CPU vLLM's own is 128
    told = probe("cache_probe", [{"engine": engine, "runs": runs}])
    by_choice, once = told["answers"][0]["cached"]
    assert sum(map(len, scored)) - sum(by_choice) == plan.cost.input_tokens
    computed = sum(map(len, contexts)) - sum(once)
    assert computed == pytest.approx(plan.cost.input_tokens - saving.tokens, rel=0.02)
    assert computed < 0.3 * plan.cost.input_tokens
