"""The fast scheduler beside the plain one: the same steps, the same times, to the last bit."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkscope.costs.step_time import Host, StepModel
from chunkscope.engine.choices import ChunkPolicy
from chunkscope.engine.flags import release
from chunkscope.engine.rules import rules_of
from chunkscope.engine.settings import EngineArgs
from chunkscope.simulation.loop import Circumstances, run_setting
from chunkscope.simulation.workload import Request
from tests.simulation.twin import trace

VERSIONS = ["0.10.2", "0.11.2", "0.16.0", "0.20.0", "0.24.0", "0.28.0", "0.32.0"]
EVERY_STEP = 1_000_000
STEP = StepModel(
    fixed_s=1.0,
    per_token_s=1e-3,
    per_prefill_pair_s=1e-6,
    per_decode_context_s=1e-5,
    per_request_s=1e-4,
    host=Host(fixed_s=0.3, per_request_s=0.2, per_prompt_s=0.1, ungraphed_s=0.7),
    origin="test",
)


@st.composite
def engines(draw: st.DrawFn, longest: int, version: str, *, by_priority: bool) -> dict[str, Any]:
    """A setting that vLLM would start with, for requests of up to `longest` tokens."""
    rules = rules_of(release(version))
    size = draw(st.sampled_from([2, 4, 16]))
    least = -(-longest // size) + 1
    chunked = draw(st.booleans())
    budget = draw(st.sampled_from([8, 16, 100, 512, 4_096]))
    budget = budget if chunked else max(budget, longest)
    threshold = draw(st.sampled_from([0, 0, 5, 40]))
    return {
        "max_num_batched_tokens": budget,
        "max_num_seqs": min(budget, draw(st.sampled_from([1, 3, 8, 64]))),
        "long_prefill_token_threshold": threshold,
        "long_prefill_token_threshold_adaptive": bool(threshold)
        and rules.has_adaptive_threshold
        and draw(st.booleans()),
        "enable_chunked_prefill": chunked,
        "enable_prefix_caching": draw(st.booleans()),
        "async_scheduling": draw(st.booleans()),
        "watermark": draw(st.sampled_from([0.0, 0.2])) if rules.has_watermark else 0.0,
        "block_size": size,
        "num_blocks": draw(st.sampled_from([least, least + 1, least * 2, least * 20])),
        **({"policy": draw(st.sampled_from(["fcfs", "priority"]))} if by_priority else {}),
    }


lengths = st.tuples(st.integers(1, 120), st.integers(1, 60))
shared = st.sampled_from([0, 30, 120])


@settings(max_examples=300, deadline=None)
@given(
    asked=st.lists(st.tuples(lengths, st.integers(0, 4), st.integers(0, 2)), min_size=1),
    version=st.sampled_from(VERSIONS),
    shared_prefix=shared,
    data=st.data(),
)
def test_every_step_holds_the_same_tokens(asked, version, shared_prefix, data):
    comes_at, requests = 0, []
    for (prompt, output), pause, priority in asked:
        comes_at += pause
        requests.append(
            {"prompt": prompt, "output": output, "comes_at": comes_at, "priority": priority}
        )
    engine = data.draw(engines(180, version, by_priority=True))
    plain, fast = (
        trace(
            requests,
            engine,
            rules=rules_of(release(version)),
            shared_prefix=shared_prefix,
            fast=fast,
        )
        for fast in (False, True)
    )
    assert fast == plain


@settings(max_examples=300, deadline=None)
@given(
    asked=st.lists(st.tuples(lengths, st.sampled_from([0.0, 0.3, 1.0, 7.5])), min_size=1),
    version=st.sampled_from(VERSIONS),
    policy=st.sampled_from(ChunkPolicy),
    shared_prefix=shared,
    prompt_logprobs=st.booleans(),
    data=st.data(),
)
def test_every_time_and_every_request_is_the_same(
    asked, version, policy, shared_prefix, prompt_logprobs, data
):
    arrival_s, requests = 0.0, []
    for (prompt, output), pause in asked:
        arrival_s += pause
        requests.append(Request(prompt_tokens=prompt, output_tokens=output, arrival_s=arrival_s))
    engine = data.draw(engines(180, version, by_priority=False))
    blocks, size = engine.pop("num_blocks"), engine["block_size"]
    if policy is ChunkPolicy.BY_LENGTH and not engine["enable_chunked_prefill"]:
        engine["enable_chunked_prefill"] = True
    circumstances = Circumstances(
        requests=tuple(requests),
        rules=rules_of(release(version)),
        step=STEP,
        shared_prefix=shared_prefix,
        prompt_logprobs=prompt_logprobs,
        policy=policy,
    )
    args = EngineArgs(kv_cache_tokens=blocks * size, **engine)
    plain, fast = (
        run_setting(circumstances, args, watch=watch, fast=fast)
        for watch, fast in ((EVERY_STEP, False), (EVERY_STEP, True))
    )
    assert fast == plain


def test_a_thousand_that_decode_are_one_to_the_fast_scheduler(monkeypatch):
    """What the fast path is for: requests that only decode are not asked one by one."""
    from chunkscope.simulation.scheduler import Scheduler

    asked = []
    plain = Scheduler._num_new_tokens
    monkeypatch.setattr(
        Scheduler,
        "_num_new_tokens",
        lambda self, request: asked.append(request) or plain(self, request),
    )
    requests = [{"prompt": 4, "output": 100} for _ in range(50)]
    engine = {"max_num_batched_tokens": 1_000, "max_num_seqs": 64}
    counts = []
    for fast in (True, False):
        asked.clear()
        trace(requests, engine, fast=fast)
        counts.append(len(asked))
    assert counts[0] == 50
    assert counts[1] == pytest.approx(50 * 100)
