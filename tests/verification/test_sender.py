"""How requests are sent, on an engine that is only played.

test_real_verify.py has real ones.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import combinations
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from chunkscope.verification.process import INSIDE
from chunkscope.vllm.check import PROGRAM

SIZES = [(10, 3), (20, 2), (30, 1)]  # tokens of each prompt and its answer


@pytest.fixture(autouse=True)
def _no_vllm_needed(monkeypatch):
    monkeypatch.syspath_prepend(str(INSIDE))
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
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
        self.most_waiting = 0
        self.prompts: dict[str, list[int]] = {}
        self.running = asyncio.Event()
        self.running.set()
        self.waited_at_start = 0
        self.tells_tokens = tells_tokens
        self.engine_core = SimpleNamespace()
        if can_pause:
            self.engine_core.pause_scheduler_async = None
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
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        self.prompts[name] = prompt["prompt_token_ids"]
        await self.running.wait()
        for _ in range(params.max_tokens):
            await asyncio.sleep(0)
            if self.tells_tokens:
                token = SimpleNamespace(request_id=f"{name}-abc", new_token_ids=[1])
                self.output_processor.process_outputs([token])
        self.likelihoods.append(params.prompt_logprobs)
        self.waiting.remove(name)
        part = SimpleNamespace(token_ids=list(range(params.max_tokens)))
        yield SimpleNamespace(outputs=[part], num_cached_tokens=0)


def requests(sizes=SIZES, scored=()) -> list[Any]:
    from chunkscope_sender import Request

    made = []
    for place, (prompt, output) in enumerate(sizes):
        is_scored = place in scored
        request = Request(prompt, output, place=place, is_scored=is_scored)
        made.append(request)
    return made


def sender_of(engine: Engine, count: int = 3, prompts=None) -> Any:
    from chunkscope_sender import Sender

    task = {"seed": 0, "stretches": [], "ends": [-1] * count, "prompts": prompts}
    return Sender(engine, task, vocab=32_000)


@dataclass
class Played:
    engine: Engine
    sender: Any
    round: Any

    @property
    def answers(self) -> list[dict[str, Any]]:
        return self.round.told()

    @property
    def counts(self) -> list[int]:
        return [sum(answer["counts"]) for answer in self.answers]


def send(wanted=None, concurrency: int | None = None, **how: bool) -> Played:
    """One round, after a warm-up."""
    wanted = wanted or requests()

    async def play() -> Played:
        engine = Engine(**how)
        sender = sender_of(engine, len(wanted))
        await sender.warm_up(requests([(5, 2)]))
        engine.most_waiting = 0
        return Played(engine, sender, await sender.send(wanted, "0", concurrency))

    return asyncio.run(play())


def test_all_wait_in_the_engine_when_the_clock_starts():
    played = send()
    assert played.round.held
    assert played.engine.waited_at_start == 3
    assert [answer["sent"] for answer in played.answers] == [0.0] * 3
    assert played.counts == [3, 2, 1]
    for answer in played.answers:
        assert min(answer["times"]) > 0
        assert answer["times"] == sorted(answer["times"])
    assert played.sender.fastest > 0


def test_an_older_vllm_gets_them_as_they_come():
    played = send(can_pause=False)
    assert not played.round.held
    assert played.counts == [3, 2, 1]


def test_a_client_that_keeps_two_under_way_sends_the_next_when_one_ends():
    played = send(requests([(10, 3)] * 8), concurrency=2)
    assert (played.engine.most_waiting, played.round.held) == (2, False)
    ends = [answer["times"][-1] for answer in played.answers]
    for place in range(2, 8):
        ended = [end for end in ends if end <= played.answers[place]["sent"]]
        assert len(ended) >= place - 1


def test_requests_at_times_of_their_own_are_not_held():
    late = requests()
    late[2].arrival_s = 0.05
    played = send(late)
    assert not played.round.held
    assert played.answers[2]["sent"] >= 0.05


def test_a_request_that_the_engine_refuses_ends_the_round():
    with pytest.raises(ValueError, match="too long"):
        send(requests([(10, 3), (10, 101)]))


def test_a_vllm_whose_tokens_cannot_be_seen_is_no_measurement():
    with pytest.raises(RuntimeError, match="cannot see the tokens"):
        send(tells_tokens=False)


def test_each_round_has_prompts_of_its_own_unless_they_are_given():
    async def play(prompts) -> Engine:
        engine = Engine()
        sender = sender_of(engine, prompts=prompts)
        await sender.send(requests(), "0")
        await sender.send(requests(), "1")
        return engine

    engine = asyncio.run(play(None))
    assert [len(engine.prompts[f"0.{n}"]) for n in range(3)] == [10, 20, 30]
    assert engine.prompts["0.0"] != engine.prompts["1.0"]
    engine = asyncio.run(play([[7] * 10, [8] * 20, [9] * 30]))
    assert engine.prompts["0.2"] == engine.prompts["1.2"] == [9] * 30


def test_requests_share_as_the_workload_does_and_nothing_without_a_place():
    from chunkscope_sender import Request, Sender

    task = {"seed": 0, "stretches": [(-1, 8)], "ends": [0, 0, -1], "prompts": None}

    async def play(task) -> list[list[int]]:
        engine = Engine()
        sender = Sender(engine, task, vocab=32_000)
        wanted = [Request(10, 1, place=place) for place in (None, 0, 1, None)]
        await sender.send(wanted, "0")
        return [engine.prompts[f"0.{number}"] for number in range(4)]

    longest, first, second, other = asyncio.run(play(task))
    assert alike(first, second) == 8
    assert alike(longest, first) == alike(longest, other) == 0
    real = asyncio.run(play({**task, "prompts": [[7] * 10] * 3}))
    assert real[1] == real[2] == [7] * 10
    assert real[0] != real[3] != real[1]


def test_a_request_asks_for_what_its_dataset_is_for():
    engine = send(requests(scored=[0, 2])).engine
    # The warm-up asks for no likelihood.
    assert sorted(engine.likelihoods, key=str) == [1, 1, None, None]


@pytest.mark.parametrize(("again", "most_waiting"), [(False, 3), (True, 2)])
def test_answers_that_are_compared_are_batched_otherwise_the_second_time(
    again, most_waiting
):
    """All at once; then in the opposite order, half under way.

    The prompts are the same.
    """

    async def play():
        engine = Engine()
        sender = sender_of(engine)
        return engine, await sender.outputs(requests(), again=again)

    engine, answers = asyncio.run(play())
    assert [len(tokens) for tokens in answers] == [3, 2, 1]
    assert engine.most_waiting == most_waiting
    assert engine.likelihoods == [None] * 3
    first = send().engine
    sent = [engine.prompts[f"o.{number}"] for number in range(3)]
    if again:
        sent.reverse()
    assert sent == [first.prompts[f"0.{number}"] for number in range(3)]


def test_answers_that_are_compared_end_where_the_context_does():
    import chunkscope_engine

    sample = requests([(10, 32), (20, 32), (30, 32)])
    chunkscope_engine._shorten(sample, 22)
    assert [request.output_tokens for request in sample] == [12, 2, 1]


def test_a_burst_is_as_large_as_what_runs_at_once():
    import chunkscope_engine

    running = {"block_size": 16, "num_gpu_blocks": 100, "max_num_seqs": 64}
    assert chunkscope_engine._fitting(1_024, 20, running) == 44
    assert chunkscope_engine._fitting(1_024, 4, running) == 64
    assert chunkscope_engine._fitting(8, 20, running) == 8
    assert chunkscope_engine._fitting(8, 5_000, running) == 1


def test_what_a_killed_engine_never_answers_is_not_waited_for(monkeypatch):
    import chunkscope_engine

    measurement = chunkscope_engine.Measurement({"entry": "serve"}, print)
    measurement._engine = SimpleNamespace(
        errored=True,
        dead_error=OSError("dead"),
        collective_rpc=lambda _: asyncio.Event().wait(),
        shutdown=lambda: None,
    )
    monkeypatch.setattr(chunkscope_engine, "LOOK_S", 0.01)
    monkeypatch.setattr(measurement, "_start", lambda: None)
    with pytest.raises(OSError, match="dead"):
        asyncio.run(asyncio.wait_for(measurement.go(), 10))


# -- what prompts share ----------------------------------------------------------------

# Two beginnings; the first goes on in two ways.
TREE = [(-1, 32), (0, 16), (0, 5), (-1, 40)]
ENDS = [0, 1, 1, 2, 2, 3, 3, -1, -1, 0]
DEPTHS = [32, 48, 37, 40]
FEW = (1, 12)  # so few ids that random ones would often go on alike


def alike(one: list[int], other: list[int]) -> int:
    """How many tokens both begin with."""
    for number, (token, its) in enumerate(zip(one, other, strict=False)):
        if token != its:
            return number
    return min(len(one), len(other))


def path(end: int) -> set[int]:
    """The stretches of a prompt that ends in one."""
    return {end, *path(TREE[end][0])} if end >= 0 else set()


def tokens_shared(one: int, other: int) -> int:
    """By the tree alone: the depth of the deepest stretch that both are in."""
    shared = path(ENDS[one]) & path(ENDS[other])
    return max((DEPTHS[stretch] for stretch in shared), default=0)


def test_prompts_share_their_stretches_and_not_one_token_more():
    from chunkscope_prompts import SharingIds

    sharing = SharingIds(TREE, ENDS, FEW)
    for repeat in range(20):
        prompts = [sharing.prompt(f"0/{repeat}", place, 60) for place in range(10)]
        for one, other in combinations(range(10), 2):
            assert alike(prompts[one], prompts[other]) == tokens_shared(one, other)
        for prompt in prompts:
            assert len(prompt) == 60
            assert all(FEW[0] <= token < FEW[1] for token in prompt)


def test_the_same_seed_makes_the_same_prompts_and_another_others():
    from chunkscope_prompts import SharingIds

    sharing = SharingIds(TREE, ENDS, FEW)
    again = SharingIds(TREE, ENDS, FEW)
    assert again.prompt("7/0", 1, 60) == sharing.prompt("7/0", 1, 60)
    assert sharing.prompt("7/0", 0, 60) != sharing.prompt("7/1", 0, 60)


def test_a_prompt_that_is_shorter_than_its_stretches_ends_in_them():
    from chunkscope_prompts import SharingIds

    sharing = SharingIds(TREE, ENDS, FEW)
    assert sharing.prompt("0", 1, 40) == sharing.prompt("0", 1, 60)[:40]
