"""Real prompts that share, from `analyze` to the simulator, beside vLLM's own
scheduler.

It is given the prompts' own token ids; the simulator has what the profile keeps of
them. Every step holds the same tokens, so the same are found in the cache, request for
request.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import chunkscope
from chunkscope.artefacts.artefact import Numbers
from chunkscope.prompts.chat import Conversation
from chunkscope.simulation.draw import draw_workload
from chunkscope.simulation.outputs import dataset_output, read_output
from chunkscope.simulation.run import simulate
from chunkscope.simulation.workload import Workload, single
from chunkscope.tokenizers.tokenizer import Tokenizer
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Task
from chunkscope.vllm.flags import release
from tests.benchmarks import corpora
from tests.prefixes.test_real_reuse import cached
from tests.simulation.common import STEP, parts_of
from tests.simulation.twin import trace

pytestmark = pytest.mark.real

Row = dict[str, Any]
Sent = tuple[Workload, list[list[int]]]
AMPLE = 1 << 16  # blocks


def few_shot_mmlu(shared: Path) -> Iterator[Row]:
    """Subjects mixed, so that a small cache has forgotten one when it comes again."""
    texts = [*corpora.mmlu(shared / "data")][:7_000:80]
    yield from ({"prompt": text} for text in random.Random(0).sample(texts, len(texts)))


def eight_shot_gsm8k(shared: Path) -> Iterator[Row]:
    yield from ({"prompt": text} for text in [*corpora.gsm8k(shared / "data")][::24])


def chats(shared: Path) -> Iterator[Row]:
    """Each turn is a request of its own, with all turns before it."""
    lines = (
        (shared / "data/mt_bench_101/mtbench101_messages.jsonl")
        .read_text()
        .splitlines()
    )
    for line in lines[::40]:
        messages = json.loads(line)["messages"]
        for turn, message in enumerate(messages):
            if message["role"] == "user":
                yield {"messages": messages[: turn + 1]}


def token_ids(rows: list[Row], tokenizer: Tokenizer) -> list[list[int]]:
    if "prompt" in rows[0]:
        return tokenizer.encode([row["prompt"] for row in rows], special_tokens=True)
    texts = [tokenizer.chat_text(Conversation(row["messages"])) for row in rows]
    return tokenizer.encode(texts, special_tokens=False)


def cases(longest: int) -> Iterator[dict[str, Any]]:
    """Room for two of the longest, for some more, and for everything; other blocks and
    requests."""
    for blocks in (2 * longest // 16, 6 * longest // 16, AMPLE):
        for likelihood in (False, True):
            yield {"num_blocks": blocks, "prompt_logprobs": likelihood}
    yield {"num_blocks": 4 * longest // 32, "block_size": 32}
    yield {"num_blocks": 3 * longest // 16, "max_num_seqs": 64, "output": 40}


def asked(
    workload: Workload, ids: list[list[int]], case: dict[str, Any]
) -> dict[str, Any]:
    case = {
        "block_size": 16,
        "max_num_seqs": 8,
        "output": 12,
        "prompt_logprobs": False,
    } | case
    one = {"comes_at": 0}
    one |= {name: case.pop(name) for name in ("output", "prompt_logprobs")}
    engine = {
        "max_num_batched_tokens": 1_000,
        "max_model_len": max(map(len, ids)) + one["output"],
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        "async_scheduling": False,
        **case,
    }
    requests = [
        {"prompt": len(prompt), "prompt_ids": prompt, "stretch": request.stretch, **one}
        for prompt, request in zip(ids, workload.requests, strict=True)
    ]
    stretches = [{"parent": s.parent, "tokens": s.tokens} for s in workload.stretches]
    return {"engine": engine, "requests": requests, "stretches": stretches}


def in_the_end(sent: Workload, question: dict[str, Any], vllm: str) -> int:
    """What `simulate` says that was cached."""
    engine = Engine(release=release(vllm))
    settings, pool, rules = parts_of(question["engine"], engine.release.rules)
    asked = question["requests"]
    sessions = []
    for request in sent.requests:
        stretch = request.stretch
        output = asked[0]["output"]
        sessions.append(single(request.prompt_tokens, output, stretch=stretch))
    scored = [n for n, request in enumerate(asked) if request["prompt_logprobs"]]
    workload = replace(sent, sessions=tuple(sessions), scored=Numbers(scored))
    run = simulate(
        workload,
        settings,
        engine,
        STEP,
        kv_pool=pool,
        async_scheduling=rules.async_scheduling,
    )
    return run.cached_tokens


@pytest.fixture(scope="module")
def sent(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sent]:
    """The requests of each dataset, as `simulate` would draw them, with their real
    token ids."""
    folder, made = str(shared / "tokenizers" / "qwen3"), {}
    for rows_of in (few_shot_mmlu, eight_shot_gsm8k, chats):
        rows = [*rows_of(shared)]
        data = tmp_path_factory.mktemp("data") / f"{rows_of.__name__}.jsonl"
        data.write_text("\n".join(map(json.dumps, rows)))
        profile = chunkscope.analyze(data, tokenizer=folder)
        outputs = []
        for dataset in profile.datasets:
            outputs.append(dataset_output(dataset, Task.GENERATE, read_output(1)))
        workload = draw_workload(profile.datasets, outputs, room=1 << 20)
        ids = token_ids(rows, Tokenizer(folder))
        assert [request.prompt_tokens for request in workload.requests] == list(
            map(len, ids)
        )
        made[rows_of.__name__] = workload, ids
    return made


def test_the_same_tokens_are_cached_request_for_request(
    probe: Any, sent: dict[str, Sent]
) -> None:
    asks = {
        name: [asked(workload, ids, case) for case in cases(max(map(len, ids)))]
        for name, (workload, ids) in sent.items()
    }
    told = probe(
        "scheduler_probe", [question for part in asks.values() for question in part]
    )
    answers = iter(told["answers"])
    for name, questions in asks.items():
        found = []
        for question, answer in zip(questions, answers, strict=False):
            real = [
                {**s, "tokens": {int(n): t for n, t in s["tokens"].items()}}
                for s in answer
            ]
            mine = trace(
                question["requests"],
                question["engine"],
                rules=release(told["vllm"]).rules,
                stretches=question["stretches"],
            )
            hits = cached(question, real)
            assert cached(question, mine) == hits
            assert mine == real
            # A hit is of whole blocks: other rests are of prompts preempted while they
            # were read.
            whole = sum(
                hit for hit in hits if hit % question["engine"]["block_size"] == 0
            )
            assert in_the_end(sent[name][0], question, told["vllm"]) == whole
            found.append(whole)
        tight, _, middle, _, ample, _, *_ = found
        assert 0 < tight <= middle <= ample
        assert tight < 0.9 * ample or name != "few_shot_mmlu"
        assert found[1] == found[3] == found[5] == 0, (
            "likelihoods are not read from the cache"
        )
