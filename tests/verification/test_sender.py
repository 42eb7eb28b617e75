"""How requests are sent, on an engine that is only played. test_real_verify.py has the real one."""

import asyncio
import sys
from collections.abc import AsyncIterator
from itertools import combinations
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from chunkscope.verification.process import INSIDE
from chunkscope.vllm.check import PROGRAM

REQUESTS = [(10, 3, 0.0, 0), (20, 2, 0.0, 1), (30, 1, 0.0, 2)]
TASK = {
    "seed": 0,
    "stretches": [],
    "ends": [-1] * 3,
    "scored": [],
    "requests": REQUESTS,
}


@pytest.fixture(autouse=True)
def _no_vllm_needed(monkeypatch):
    monkeypatch.syspath_prepend(str(INSIDE))
    params = ModuleType("vllm.sampling_params")
    params.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    vllm = ModuleType("vllm")
    vllm.SamplingParams = SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", params)


class Engine:
    """One token per request and turn; it begins when it is not paused."""

    def __init__(self, *, can_pause: bool = True, tells_tokens: bool = True) -> None:
        self.waiting: list[str] = []
        self.likelihoods: list[int | None] = []
        self.most = 0  # at the same time
        self.prompts: dict[str, list[int]] = {}
        self.running = asyncio.Event()
        self.running.set()
        self.waited_at_start = 0
        self._tells = tells_tokens
        self.engine_core = SimpleNamespace(
            **{"pause_scheduler_async": None} if can_pause else {}
        )
        self.output_processor = SimpleNamespace(
            process_outputs=lambda _: None,
            get_num_unfinished_requests=lambda: len(self.waiting),
        )

    async def pause_generation(self, *, mode: str, clear_cache: bool) -> None:
        assert (mode, clear_cache) == ("keep", False)
        self.running.clear()

    async def is_paused(self) -> bool:
        return not self.running.is_set()

    async def resume_generation(self) -> None:
        self.waited_at_start = len(self.waiting)
        self.running.set()

    async def generate(
        self, prompt: dict, params: SimpleNamespace, name: str
    ) -> AsyncIterator[SimpleNamespace]:
        if params.max_tokens > 100:
            raise ValueError("too long")
        self.waiting.append(name)
        self.most = max(self.most, len(self.waiting))
        self.prompts[name] = prompt["prompt_token_ids"]
        await self.running.wait()
        for _ in range(params.max_tokens):
            await asyncio.sleep(0)
            if self._tells:
                told = SimpleNamespace(request_id=f"{name}-abc", new_token_ids=[1])
                self.output_processor.process_outputs([told])
        self.likelihoods.append(params.prompt_logprobs)
        self.waiting.remove(name)
        part = SimpleNamespace(token_ids=list(range(params.max_tokens)))
        yield SimpleNamespace(outputs=[part], num_cached_tokens=0)


def sent(
    requests: list = REQUESTS,
    task: dict | None = None,
    most: int | None = None,
    **how: bool,
):
    """The engine, its sender and the answers, after a warm-up."""
    from chunkscope_sender import Sender

    async def go():
        engine = Engine(**how)
        ends = {"ends": [-1] * len(requests)}
        sender = Sender(engine, {**TASK, **ends, **(task or {})}, vocab=32_000)
        await sender.warm_up([(5, 2, 0.0, None)])
        engine.most = 0
        return engine, sender, await sender.send(requests, "0", most=most)

    return asyncio.run(go())


def test_all_wait_in_the_engine_when_the_clock_starts():
    engine, sender, answers = sent()
    assert sender.held
    assert engine.waited_at_start == 3
    assert [answer["sent"] for answer in answers] == [0.0] * 3
    assert [sum(answer["counts"]) for answer in answers] == [3, 2, 1]
    assert all(
        min(a["times"]) > 0 and a["times"] == sorted(a["times"]) for a in answers
    )
    assert sender.tokens_per_s > 0
    _, sender, answers = sent(can_pause=False)  # an older vLLM gets them as they come
    assert not sender.held
    assert [sum(answer["counts"]) for answer in answers] == [3, 2, 1]


def test_a_client_that_keeps_two_under_way_sends_the_next_when_one_ends():
    engine, sender, answers = sent([(10, 3, 0.0, n) for n in range(8)], most=2)
    assert (engine.most, sender.held) == (2, False)
    ends = [answer["times"][-1] for answer in answers]
    for place in range(2, 8):
        assert sum(end <= answers[place]["sent"] for end in ends) >= place - 1


def test_a_vllm_whose_tokens_cannot_be_seen_is_not_measured():
    with pytest.raises(RuntimeError, match="tokens"):
        sent(tells_tokens=False)


def test_a_warm_up_shares_as_the_workload_does_after_its_longest_prompt():
    warming = [(10, 1, 0.0, place) for place in (None, 0, 1, None)]
    tree = {"stretches": [(-1, 8)], "ends": [0, 0, -1]}
    engine, _, _ = sent(warming, tree)
    longest, first, second, other = (engine.prompts[f"0.{n}"] for n in range(4))
    assert alike(first, second) == 8
    assert alike(longest, first) == alike(longest, other) == 0
    engine, _, _ = sent(warming, {**tree, "prompts": [[7] * 10] * 3})
    assert engine.prompts["0.1"] == [7] * 10 != engine.prompts["0.0"]


def test_the_sample_of_outputs_is_sent_twice_in_other_batches_and_ends_where_the_context_does():
    """The prompts of the first repeat, all at once; then in the opposite order, half under way."""
    from chunkscope_sender import Sender

    async def go():
        engine, answers, most = Engine(), [], []
        outputs = {"places": [0, 1, 2], "tokens": 32}
        task = {**TASK, "scored": [0, 1, 2], "outputs": outputs}
        sender = Sender(engine, task, vocab=32_000)
        for again in (False, True):
            engine.most = 0
            answers.append(
                await sender.outputs(lambda: None, max_model_len=22, again=again)
            )
            most.append(engine.most)
        return engine, answers, most

    engine, (first, again), most = asyncio.run(go())
    assert first == again
    assert [len(tokens) for tokens in first] == [12, 2, 1]
    assert most == [3, 2]
    assert set(engine.likelihoods) == {
        None
    }  # of the prompts: only greedy answers are compared
    repeated, _, _ = sent(task={"scored": [0, 2]})
    # The longest prompt warms it up; then each request asks for what its dataset is for.
    assert sorted(repeated.likelihoods, key=str) == [1, 1, None, None]
    prompts = [engine.prompts[f"o.{n}"] for n in range(3)]
    assert prompts[::-1] == [repeated.prompts[f"0.{n}"] for n in range(3)]


# Two beginnings; the first goes on in two ways.
TREE = [(-1, 32), (0, 16), (0, 5), (-1, 40)]
ENDS = [0, 1, 1, 2, 2, 3, 3, -1, -1, 0]
DEPTHS = [32, 48, 37, 40]
FEW = (1, 12)  # so few that random ids would often go on alike


def alike(one: "list[int]", other: "list[int]") -> int:
    """How many tokens both begin with."""
    pairs = zip(one, other, strict=False)
    return next(
        (n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other))
    )


def tokens_shared(one: int, other: int) -> int:
    """By the tree alone: the depth of the deepest stretch that both are in."""

    def path(end: int) -> "set[int]":
        return {end, *path(TREE[end][0])} if end >= 0 else set()

    both = path(ENDS[one]) & path(ENDS[other])
    return max((DEPTHS[stretch] for stretch in both), default=0)


def test_prompts_share_their_stretches_and_not_one_token_more():
    from chunkscope_prompts import SharingIds

    made, others = SharingIds(TREE, ENDS, FEW), SharingIds(TREE, ENDS, FEW)
    for repeat in range(20):
        prompts = [made.prompt(f"0/{repeat}", place, 60) for place in range(len(ENDS))]
        assert prompts == [
            others.prompt(f"0/{repeat}", place, 60) for place in range(len(ENDS))
        ]
        for one, other in combinations(range(len(ENDS)), 2):
            assert alike(prompts[one], prompts[other]) == tokens_shared(one, other)
        assert all(FEW[0] <= token < FEW[1] for prompt in prompts for token in prompt)
    assert made.prompt("7/0", 0, 60) != made.prompt("7/1", 0, 60)


def test_what_a_killed_engine_never_answers_is_not_waited_for(monkeypatch):
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    import chunkscope_engine

    never: Any = {
        "collective_rpc": lambda _: asyncio.Event().wait(),
        "shutdown": lambda: None,
    }
    measurement = chunkscope_engine.Measurement({"entry": "serve"}, print)
    measurement._engine = SimpleNamespace(
        errored=True, dead_error=OSError("dead"), **never
    )
    monkeypatch.setattr(chunkscope_engine, "LOOK_S", 0.01)
    monkeypatch.setattr(measurement, "_start", lambda: None)
    with pytest.raises(OSError, match="dead"):
        asyncio.run(asyncio.wait_for(measurement.go(), 10))
