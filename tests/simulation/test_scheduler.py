"""The scheduler's rules by example, each run on the real schedulers; and that it
decides the same however it gets there."""

from itertools import product
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chunkscope.simulation.scheduler import Scheduler
from chunkscope.vllm.flags import release
from chunkscope.vllm.rules import Rules
from tests.simulation.common import simulate
from tests.simulation.generated import KINDS, Workload
from tests.simulation.twin import Seen, trace

OLD, MIDDLE, GATED, NEW = "0.12.0", "0.16.0", "0.28.0", "0.32.0"
VERSIONS = (OLD, MIDDLE, "0.19.1", "0.20.0", "0.24.0", GATED, NEW)
OFF = {"max_num_batched_tokens": 100, "enable_chunked_prefill": False}
CAP = {"long_prefill_token_threshold": 64}
SIXTEENTH = {
    "long_prefill_token_threshold": 16,
    "long_prefill_token_threshold_adaptive": True,
}
SHARED = {"max_num_batched_tokens": 1_000, "enable_prefix_caching": True}  # 128 tokens
ALONE = {"max_num_seqs": 1}


def steps_of(asked: str, version: str, **changed: Any) -> list[Seen]:
    """Of "1000+4 300+1": the prompt and the answer of each request."""
    requests = []
    for one in asked.split():
        prompt, output = map(int, one.split("+"))
        requests.append({"prompt": prompt, "output": output, "stretch": 0})
    engine = {
        "max_num_batched_tokens": 256,
        "max_num_seqs": 8,
        "enable_prefix_caching": False,
        **changed,
    }
    stretches = [{"parent": -1, "tokens": 128}]
    rules = release(version).rules
    return trace(requests, engine, rules=rules, stretches=stretches)


def shown(steps: list[Seen]) -> str:
    """Each step: of each request its tokens."""
    texts = []
    for step in steps:
        tokens = sorted(step["tokens"].items())
        texts.append(" ".join(f"{place}:{count}" for place, count in tokens))
    return " | ".join(texts)


# Section 3 of the notes on vLLM.
@pytest.mark.parametrize(
    ("asked", "changed", "versions", "steps"),
    [
        pytest.param(
            "1000+4 300+4 50+4",
            {},
            VERSIONS,
            "0:256 | 0:256 | 0:256 | 0:232 1:24 | 0:1 1:255 | 0:1 1:21 2:50 | "
            "0:1 1:1 2:1 | 1:1 2:1 | 1:1 2:1",
            id="the budget is filled and decodes come first",
        ),
        pytest.param(
            "300+1 300+1 50+3",
            CAP,
            VERSIONS,
            "0:64 1:64 2:50 | 0:64 1:64 2:1 | 0:64 1:64 2:1 | 0:64 1:64 | 0:44 1:44",
            id="a threshold wastes budget when few are there",
        ),
        pytest.param(
            "300+1",
            CAP,
            (OLD, GATED),
            "0:64 | 0:64 | 0:64 | 0:64 | 0:44",
            id="a lone prompt is capped",
        ),
        pytest.param(
            "300+1",
            CAP,
            (NEW,),
            "0:256 | 0:44",
            id="a lone prompt is not capped since 0.31",
        ),
        pytest.param(
            "500+1 500+1",
            SIXTEENTH,
            (NEW,),
            "0:128 1:128 | 0:128 1:128 | 0:128 1:128 | 0:116 1:116",
            id="the adaptive threshold shares the budget out",
        ),
        pytest.param(
            "10+3 10+3 10+1",
            {"max_num_active_seqs": 2},
            (NEW,),
            "0:10 1:10 | 0:1 1:1 | 0:1 1:1 | 2:10",
            id="fewer are admitted than there are places",
        ),
        pytest.param(
            "60+1 80+1 30+1",
            OFF,
            VERSIONS,
            "0:60 | 1:80 | 2:30",
            id="unchunked, a prompt over the budget stops the queue",
        ),
        pytest.param(
            "100+1",
            OFF | CAP,
            (OLD, MIDDLE, GATED),
            "0:64 | 0:36",
            id="unchunked with a threshold still chunks",
        ),
        pytest.param(
            "160+1 160+1 128+1",
            SHARED,
            VERSIONS,
            "0:160 1:32 2:16",
            id="a prefix is found within the same step",
        ),
        pytest.param(
            "10+2 10+1",
            ALONE,
            VERSIONS,
            "0:10 | 0:1 | 1:10",
            id="a finished request keeps its place until its token is there",
        ),
        pytest.param(
            "10+2 10+1",
            ALONE | {"async_scheduling": True},
            (GATED,),
            "0:10 | 0:1 | 1:10",
            id="with async scheduling for one step more, which is empty",
        ),
    ],
)
def test_every_step_is_that_of_the_real_scheduler(asked, changed, versions, steps):
    found = {
        version: shown(steps_of(asked, version, **changed)) for version in versions
    }

    assert found == dict.fromkeys(versions, steps)


@pytest.mark.parametrize("version", ["0.20.0", "0.24.0", GATED, NEW])
def test_admitted_prompts_are_not_reserved_for_so_one_is_preempted(version):
    """Two prompts of 400, 40 blocks, threshold 32: both pass the gate, one gives way at
    step 10."""
    tight = {"long_prefill_token_threshold": 32, "num_blocks": 40}

    steps = steps_of("400+1 400+1", version, **tight)

    preempting = {number: step["preempted"] for number, step in enumerate(steps)}
    assert {n: places for n, places in preempting.items() if places} == {9: [1]}


@pytest.mark.parametrize(
    ("version", "preempts"),
    [
        pytest.param(MIDDLE, True, id="admitted"),
        pytest.param(GATED, False, id="made to wait"),
    ],
)
def test_a_prompt_that_does_not_fit_whole_waits_since_0_19(version, preempts):
    steps = steps_of("400+20 400+1", version, num_blocks=40)

    assert any(step["preempted"] for step in steps) is preempts
    assert (1 in steps[1]["tokens"]) is preempts


# -- one by one, or together ---------------------------------------------------


def known(engine: dict[str, Any], rules: Rules) -> dict[str, Any]:
    """Without what this version knows nothing of."""
    unknown = ()
    if rules.lone_request_is_capped:
        unknown = ("long_prefill_token_threshold_adaptive", "max_num_active_seqs")
    return {name: value for name, value in engine.items() if name not in unknown}


def traced(asked: Workload, version: str) -> list[Seen]:
    rules = release(version).rules
    return trace(
        asked["requests"],
        known(asked["engine"], rules),
        rules=rules,
        stretches=asked["stretches"],
        concurrency=asked.get("concurrency"),
        with_free=True,
    )


def one_by_one(asked: Workload, version: str) -> list[Seen]:
    """As if blocks or the budget ran short in every step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "_blocks_of_decodes", lambda *_: 0)
        patch.setattr(Scheduler, "_tokens_if_all_get_theirs", lambda *_: None)
        return traced(asked, version)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32), version=st.sampled_from(VERSIONS))
@example(seed=165, version="0.24.0")  # the last gives way to several that decode
@example(seed=719, version=GATED)  # a prompt that is read keeps all of its last chunk
def test_it_makes_no_difference_whether_requests_are_asked_one_by_one(
    kind, seed, version
):
    draw, _ = KINDS[kind]
    asked = draw(seed)

    assert traced(asked, version) == one_by_one(asked, version)


def test_most_steps_of_a_full_cache_ask_nobody_in_turn(monkeypatch):
    """Even where some give way and others wait for room."""
    in_turn, plain = [], Scheduler._schedule_in_turn

    def counted(self, step):
        in_turn.append(step)
        return plain(self, step)

    monkeypatch.setattr(Scheduler, "_schedule_in_turn", counted)
    small = {"max_num_batched_tokens": 256, "max_num_seqs": 64}
    run = simulate([(100, 200)] * 60, small | {"kv_cache_tokens": 4_000})

    assert run.figures.preemptions > 20
    assert run.figures.steps > 500
    assert len(in_turn) < 40


# Of 20 workloads in each of the versions: who got how many tokens in which step, as
# vLLM's own scheduler has it. test_scheduler_twin.py compares these workloads and
# others with it.
CHECKSUMS = {
    "plain": "db1595a8",
    "async": "eebb74f1",
    "closed loop": "193a600d",
    "windows": "667ca5f1",
    "cached windows": "63a8d3b4",
    "sessions": "489b6f1b",
}


@pytest.mark.parametrize("kind", CHECKSUMS)
def test_the_steps_are_those_that_were_compared_with_vllms(kind):
    draw, seeds = KINDS[kind]
    checksum = 0
    for version, seed in product(VERSIONS, seeds[:20]):
        for step in traced(draw(seed), version):
            row = sorted(step["tokens"].items()), step["preempted"]
            checksum = crc32(repr(row).encode(), checksum)

    assert f"{checksum:08x}" == CHECKSUMS[kind]
