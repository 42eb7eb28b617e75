"""The examples of section 3 of the notes on vLLM, each run there on the real schedulers."""

import pytest

from chunkscope.vllm.flags import release
from tests.simulation.twin import trace

OLD, MIDDLE, GATED, NEW = "0.11.2", "0.16.0", "0.28.0", "0.32.0"
EVERY = ("0.10.2", OLD, MIDDLE, "0.20.0", "0.24.0", GATED, NEW)
OFF = {"max_num_batched_tokens": 100, "enable_chunked_prefill": False}
CAP = {"long_prefill_token_threshold": 64}
SIXTEENTH = {
    "long_prefill_token_threshold": 16,
    "long_prefill_token_threshold_adaptive": True,
}
SHARED = {"max_num_batched_tokens": 1_000, "enable_prefix_caching": True}  # 128 tokens
ALONE = {"max_num_seqs": 1}
# What is asked for (prompt and output of each), the setting, and by version the steps: of each
# request its tokens.
EXAMPLES = {
    "the budget is filled and decodes come first": (
        "1000+4 300+4 50+4", {},
        {EVERY: "0:256 | 0:256 | 0:256 | 0:232 1:24 | 0:1 1:255 | 0:1 1:21 2:50 | 0:1 1:1 2:1 | "
         "1:1 2:1 | 1:1 2:1"}),
    "a threshold wastes budget when few are there": (
        "300+1 300+1 50+3", CAP,
        {EVERY: "0:64 1:64 2:50 | 0:64 1:64 2:1 | 0:64 1:64 2:1 | 0:64 1:64 | 0:44 1:44"}),
    "a lone prompt is capped until 0.31": (
        "300+1", CAP,
        {(OLD, GATED): "0:64 | 0:64 | 0:64 | 0:64 | 0:44", (NEW,): "0:256 | 0:44"}),
    "the adaptive threshold shares the budget out": (
        "500+1 500+1", SIXTEENTH,
        {(NEW,): "0:128 1:128 | 0:128 1:128 | 0:128 1:128 | 0:116 1:116"}),
    "fewer are admitted than there are places": (
        "10+3 10+3 10+1", {"max_num_active_seqs": 2},
        {(NEW,): "0:10 1:10 | 0:1 1:1 | 0:1 1:1 | 2:10"}),
    "unchunked, a prompt over the budget stops the queue since 0.12": (
        "60+1 80+1 30+1", OFF,
        {(OLD,): "0:60 2:30 | 1:80", (MIDDLE, NEW): "0:60 | 1:80 | 2:30"}),
    "unchunked, the prompts that 0.11 skips come back in reverse": (
        "90+1 80+1 70+1 60+1", OFF, {(OLD,): "0:90 | 3:60 | 1:80 | 2:70"}),
    "unchunked with a threshold still chunks, but where 0.11.1 and 0.11.2 drop both": (
        "100+1", OFF | CAP,
        {(OLD,): "0:100", ("0.10.2", MIDDLE, GATED): "0:64 | 0:36"}),
    "they do not where prefixes are cached": (
        "100+1", OFF | CAP | {"enable_prefix_caching": True}, {(OLD,): "0:64 | 0:36"}),
    "a prefix is found within the same step": (
        "160+1 160+1 128+1", SHARED, {EVERY: "0:160 1:32 2:16"}),
    "a finished request keeps its place until its token is there": (
        "10+2 10+1", ALONE, {(GATED,): "0:10 | 0:1 | 1:10"}),
    "with async scheduling for one step more, which is empty": (
        "10+2 10+1", ALONE | {"async_scheduling": True}, {(GATED,): "0:10 | 0:1 | 1:10"}),
}  # fmt: skip


def steps_of(asked: str, version: str, **more):
    usual = {
        "max_num_batched_tokens": 256,
        "max_num_seqs": 8,
        "enable_prefix_caching": False,
    }
    pairs = [map(int, one.split("+")) for one in asked.split()]
    requests = [
        {"prompt": prompt, "output": output, "stretch": 0} for prompt, output in pairs
    ]
    shared = [{"parent": -1, "tokens": 128}]
    return trace(requests, usual | more, rules=release(version).rules, stretches=shared)


@pytest.mark.parametrize(
    ("asked", "setting", "expected"), EXAMPLES.values(), ids=EXAMPLES
)
def test_every_step_is_that_of_the_real_scheduler(asked, setting, expected):
    for versions, shown in expected.items():
        for version in versions:
            steps = [
                sorted(s["tokens"].items()) for s in steps_of(asked, version, **setting)
            ]
            assert (
                " | ".join(" ".join(f"{n}:{t}" for n, t in s) for s in steps) == shown
            ), version


@pytest.mark.parametrize("version", ["0.20.0", "0.24.0", GATED, NEW])
def test_admitted_prompts_are_not_reserved_for_so_one_is_preempted(version):
    """Two prompts of 400, 40 blocks, threshold 32: both pass the gate, one gives way at step 10."""
    tight = {"long_prefill_token_threshold": 32, "num_blocks": 40}
    steps = steps_of("400+1 400+1", version, **tight)
    assert [(n, s["preempted"]) for n, s in enumerate(steps) if s["preempted"]] == [
        (9, [1])
    ]


@pytest.mark.parametrize(
    ("version", "preempted"),
    [(MIDDLE, True), (GATED, False)],
    ids=["admitted", "made to wait"],
)
def test_a_prompt_that_does_not_fit_whole_waits_since_0_19(version, preempted):
    steps = steps_of("400+20 400+1", version, num_blocks=40)
    assert any(step["preempted"] for step in steps) is preempted
    assert (1 in steps[1]["tokens"]) is preempted
