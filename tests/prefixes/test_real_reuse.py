"""Prefix reuse beside vLLM's own scheduler: the same tokens are cached, request for
request."""

import random
from typing import Any

import pytest

from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.benchmarks import corpora
from tests.prefixes.test_reuse import Prompt, brute_ideal, tree_of

pytestmark = pytest.mark.real

AMPLE = 1 << 16


def family(seed: int) -> list[Prompt]:
    """Few-shot prompts of a few subjects, with chats among them that grow turn by
    turn."""
    chance = random.Random(seed)
    prompts: list[Prompt] = []
    for number in range(chance.randint(2, 30)):
        earlier = chance.choice(prompts) if prompts else []
        kept = earlier[
            : chance.choice([0, len(earlier), chance.randint(0, len(earlier))])
        ]
        # Never a prompt that is all in another: vLLM then has its last block twice.
        prompts.append([*kept, *[1_000 + number] * chance.randint(1, 90)])
    return prompts


def asked(
    prompts: list[Prompt],
    kv_blocks: int,
    running: int = 1,
    output: int = 1,
    **kwargs: Any,
) -> dict[str, Any]:
    """One request at a time unless told otherwise."""
    engine = {
        "max_num_batched_tokens": 8192,
        "max_num_seqs": running,
        "max_model_len": 8192,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "block_size": 16,
        "num_blocks": kv_blocks + 1,  # vLLM keeps one for itself
    }
    one = {
        "output": output,
        "priority": 0,
        "comes_at": 0,
        "prompt_logprobs": False,
    } | kwargs
    requests = [{"prompt": len(ids), "prompt_ids": ids, **one} for ids in prompts]
    return {"engine": engine, "requests": requests, "stretches": []}


def cached(workload: dict[str, Any], steps: list[dict[str, Any]]) -> list[int]:
    """What was not computed of each prompt, when it ran for the first time."""
    left = [request["prompt"] for request in workload["requests"]]
    was_read: set[int] = set()
    for step in steps:
        for place, tokens in (
            (int(name), tokens) for name, tokens in step["tokens"].items()
        ):
            if tokens == 1 and left[place] < workload["requests"][place]["prompt"]:
                was_read.add(place)  # a step of its answer
            left[place] -= 0 if place in was_read else tokens
        was_read.update(step["preempted"])
    return left


def expected(prompts: list[Prompt], reads: list[bool] | None = None) -> list[int]:
    return brute_ideal(prompts, reads or [True] * len(prompts))


def test_generated_prompts_find_what_vllm_finds_and_likelihood_requests_only_write(
    probe,
):
    families = [family(seed) for seed in range(120)]
    prompts = [[7] * 100, [7] * 120, [7] * 100 + [8] * 30]
    scored = asked(prompts, AMPLE)
    scored["requests"][1]["prompt_logprobs"] = True
    workloads = [asked(prompts, AMPLE) for prompts in families]
    *answers, steps = probe("scheduler_probe", [*workloads, scored])["answers"]
    reads = [True, False, True]
    assert cached(scored, steps) == expected(prompts, reads) == [0, 0, 96]
    for prompts, workload, steps in zip(families, workloads, answers, strict=True):
        found = cached(workload, steps)
        assert found == expected(prompts)
        assert sum(found) == tree_of(prompts).cached(range(len(prompts)))


def test_real_few_shot_prompts_find_what_vllm_finds(probe, shared):
    data = shared / "data"
    tokenizer = Tokenizer(str(shared / "tokenizers" / "qwen3"))
    cases = []
    for texts in ([*corpora.mmlu(data)][::100], [*corpora.gsm8k(data)][::20]):
        prompts = tokenizer.encode(texts, special_tokens=True)
        cases += [prompts, random.Random(0).sample(prompts, len(prompts))]
    workloads = [asked(prompts, AMPLE) for prompts in cases]
    answers = probe("scheduler_probe", workloads)["answers"]
    for prompts, workload, steps in zip(cases, workloads, answers, strict=True):
        found = sum(cached(workload, steps))
        assert found == tree_of(prompts).cached(range(len(prompts))) > 0
