"""How requests are sent, on an engine that is only played. test_real_verify.py has the real one."""

import asyncio
import sys
from collections.abc import AsyncIterator
from types import ModuleType, SimpleNamespace

import pytest

from chunkscope.verification.process import INSIDE

TASK = {"seed": 0, "shared_prefix": 0, "task": "generate"}


@pytest.fixture(autouse=True)
def _no_vllm_needed(monkeypatch):
    monkeypatch.syspath_prepend(str(INSIDE))
    params = ModuleType("vllm.sampling_params")
    params.RequestOutputKind = SimpleNamespace(DELTA="delta", FINAL_ONLY="final")
    vllm = ModuleType("vllm")
    vllm.SamplingParams = SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", params)


class Engine:
    """One token per request and turn; it begins when it is not paused."""

    def __init__(self, *, can_pause: bool = True, tells_tokens: bool | str = True) -> None:
        self.waiting: list[str] = []
        self.kinds: list[str] = []
        self.prompts: dict[str, list[int]] = {}
        self.running = asyncio.Event()
        self.running.set()
        self.waited_at_start = 0
        self._tells = tells_tokens
        self.engine_core = SimpleNamespace(**{"pause_scheduler_async": None} if can_pause else {})
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
        self.kinds.append(params.output_kind)
        self.prompts[name] = prompt["prompt_token_ids"]
        await self.running.wait()
        for n in range(params.max_tokens):
            await asyncio.sleep(0)
            if self._tells is True or (self._tells == "the first" and n == 0):
                told = SimpleNamespace(request_id=f"{name}-abc", new_token_ids=[1])
                self.output_processor.process_outputs([told])
            if params.output_kind == "delta" or n + 1 == params.max_tokens:
                yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=[1])], num_cached_tokens=0)
        self.waiting.remove(name)


def sent(engine_options: dict, requests: list, *, warm_up: bool = True, task: dict | None = None):
    from chunkscope_sender import Sender

    async def go():
        engine = Engine(**engine_options)
        sender = Sender(engine, {**TASK, **(task or {})}, vocab=32_000)
        if warm_up:
            await sender.warm_up([(5, 2, 0.0)])
        return engine, sender, await sender.send(requests, "0")

    return asyncio.run(go())


REQUESTS = [(10, 3, 0.0), (20, 2, 0.0), (30, 1, 0.0)]


def test_all_wait_in_the_engine_when_the_clock_starts():
    engine, sender, answers = sent({}, REQUESTS)
    assert sender.held
    assert engine.waited_at_start == 3
    assert [answer["sent"] for answer in answers] == [0.0] * 3
    assert [sum(answer["counts"]) for answer in answers] == [3, 2, 1]
    assert all(min(a["times"]) > 0 and a["times"] == sorted(a["times"]) for a in answers)
    assert set(engine.kinds) == {"final"}  # nobody is woken up for a single token
    assert sender.tokens_per_s > 0


def test_an_older_vllm_gets_them_as_they_come():
    _, sender, answers = sent({"can_pause": False}, REQUESTS)
    assert not sender.held
    assert all(answer["sent"] >= 0 for answer in answers)
    assert [sum(answer["counts"]) for answer in answers] == [3, 2, 1]


def test_requests_with_times_of_their_own_are_not_held():
    _, sender, answers = sent({}, [(10, 1, 0.0), (10, 1, 0.05)])
    assert not sender.held
    assert answers[1]["sent"] == pytest.approx(0.05, abs=0.04)


def test_tokens_that_cannot_be_seen_are_asked_for_one_by_one():
    engine, _, answers = sent({"tells_tokens": False}, REQUESTS)
    assert engine.kinds == ["final", "delta", "delta", "delta"]
    assert [answer["counts"] for answer in answers] == [[1, 1, 1], [1, 1], [1]]


def test_tokens_that_are_seen_only_in_part_are_not_counted_twice():
    engine, _, answers = sent({"tells_tokens": "the first"}, REQUESTS)
    assert engine.kinds == ["final", "delta", "delta", "delta"]
    assert [answer["counts"] for answer in answers] == [[1, 1, 1], [1, 1], [1]]


def test_a_request_that_is_refused_ends_the_waiting():
    with pytest.raises(ValueError, match="too long"):
        sent({}, [(10, 1, 0.0), (10, 101, 0.0)])


def test_only_what_is_measured_gets_the_given_prompts_and_the_shared_prefix():
    task = {"prompts": [[7, 7, 7]], "shared_prefix": 2}
    engine, _, _ = sent({}, [(3, 1, 0.0)], task=task)
    warm, real = engine.prompts["w.0"], engine.prompts["0.0"]
    assert len(warm) == 5
    assert real[2] == 7
    assert real[:2] != [7, 7]
    assert warm[:2] != real[:2]
