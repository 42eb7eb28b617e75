"""Prefix reuse beside vLLM's own scheduler: the same tokens are cached, request for
request."""

import random
from typing import Any

import pytest
from chunkscope.prefixes.cache_curve import lru_cached_tokens

from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.benchmarks import corpora
from tests.prefixes.test_reuse import Prompt, tree_of

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


def expected(prompts: list[Prompt], *limits: int) -> list[int]:
    return lru_cached_tokens(tree_of(prompts), *limits).tolist()


def test_generated_prompts_find_what_vllm_finds_and_likelihood_requests_only_write(
    probe,
):
    cases = []
    for seed in range(120):
        prompts = family(seed)
        longest = max(-(-len(prompt) // 16) for prompt in prompts)
        cases += [(prompts, longest + extra) for extra in (0, 1, seed % 30, 1000)]
    workloads = [asked(*case) for case in cases]
    prompts = [[7] * 100, [7] * 120, [7] * 100 + [8] * 30]
    scored = asked(prompts, AMPLE)
    scored["requests"][1]["prompt_logprobs"] = True
    *answers, steps = probe("scheduler_probe", [*workloads, scored])["answers"]
    tree = tree_of(prompts, [True, False, True])
    assert cached(scored, steps) == tree.ideal.tolist() == [0, 0, 96]
    wrong = [
        case
        for case, workload, steps in zip(cases, workloads, answers, strict=True)
        if cached(workload, steps) != expected(*case)
    ]
    assert not wrong, f"{len(wrong)} of {len(cases)}: {wrong[0]}"
    tight = sum(expected(*case) != expected(case[0], AMPLE) for case in cases)
    assert tight > 60


def test_real_few_shot_prompts_find_what_vllm_finds(probe, shared):
    """One by one exactly; requests that run together nearly, as answers take their room
    at once and the first to come is the first to end in the model of them: within half
    a point where vLLM preempts nobody; where it does, up to two points too low. """
    data = shared / "data"
    tokenizer = Tokenizer(str(shared / "tokenizers" / "qwen3"))
    alone = []
    for texts in ([*corpora.mmlu(data)][::100], [*corpora.gsm8k(data)][::20]):
        prompts = tokenizer.encode(texts, special_tokens=True)
        mixed = random.Random(0).sample(prompts, len(prompts))
        alone += [
            (prompts, AMPLE),
            (prompts, 300),
            (mixed, AMPLE),
            (mixed, 300),
            (mixed, 1_500),
        ]
    many = tokenizer.encode([*corpora.mmlu(data)][::50], special_tokens=True)
    mixed = random.Random(0).sample(many, len(many))
    loads = [(8, 16), (64, 1), (64, 64)]  # requests that run, tokens of an answer
    together = [
        (mixed, blocks, *load) for blocks in (1_000, 2_000, 4_000) for load in loads
    ]
    workloads = [asked(*case) for case in (*alone, *together)]
    answers = probe("scheduler_probe", workloads)["answers"]
    found = [cached(*pair) for pair in zip(workloads, answers, strict=True)]
    assert found[: len(alone)] == [expected(*case) for case in alone]
    assert all(map(sum, found[: len(alone)]))
    tokens, shares = sum(map(len, mixed)), []
    for case, real, steps in zip(
        together, found[len(alone) :], answers[len(alone) :], strict=True
    ):
        model = sum(expected(*case))
        preempted = any(step["preempted"] for step in steps)
        assert abs(sum(real) - model) < (0.02 if preempted else 0.005) * tokens, case[
            1:
        ]
        shares.append(model / tokens)
    assert max(shares) - min(shares) > 0.2
