"""How sessions are sent, on an engine that is only played.

test_real_verify.py has real ones.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from chunkscope.verification.process import INSIDE
from chunkscope.vllm.check import PROGRAM

SIZES = [(10, 3), (20, 2), (30, 1)]  # tokens of each prompt and its answer
TASK = {"seed": 0, "stretches": [], "ends": [-1] * 99}


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

    def __init__(
        self,
        *,
        can_pause: bool = True,
        tells_tokens: bool = True,
        token_s: float = 0.0,
    ) -> None:
        self.waiting: list[str] = []
        self.likelihoods: list[int | None] = []
        self.most_waiting = 0
        self.prompts: dict[str, list[int]] = {}
        self.running = asyncio.Event()
        self.running.set()
        self.waited_at_start = 0
        self.tells_tokens = tells_tokens
        self.token_s = token_s
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
            await asyncio.sleep(self.token_s)
            if self.tells_tokens:
                token = SimpleNamespace(request_id=f"{name}-abc", new_token_ids=[1])
                self.output_processor.process_outputs([token])
        self.likelihoods.append(params.prompt_logprobs)
        self.waiting.remove(name)
        part = SimpleNamespace(token_ids=list(range(params.max_tokens)))
        yield SimpleNamespace(outputs=[part], num_cached_tokens=0)


def single_turns(sizes=SIZES) -> list[Any]:
    from chunkscope_sessions import SentSession, SentTurn

    sessions = []
    for place, (prompt, output) in enumerate(sizes):
        sessions.append(SentSession([SentTurn(prompt, output)], place=place))
    return sessions


@dataclass
class Played:
    engine: Engine
    sender: Any
    sent: Any

    @property
    def answers(self) -> list[Any]:
        return self.sent.answers

    @property
    def prompts(self) -> dict[str, list[int]]:
        return self.engine.prompts


def send(sessions=None, *, engine=None, task=TASK, **client: float) -> Played:
    """One round."""
    from chunkscope_sender import Sender
    from chunkscope_sessions import Client

    async def play() -> Played:
        played = Engine(**(engine or {}))
        sender = Sender(played, task, vocab=32_000)
        sent = await sender.send(sessions or single_turns(), "0", Client(**client))
        return Played(played, sender, sent)

    return asyncio.run(play())


def test_all_wait_in_the_engine_when_the_clock_starts():
    played = send()
    assert played.sent.held
    assert played.engine.waited_at_start == 3
    assert [answer.sent for answer in played.answers] == [0.0] * 3
    assert [answer.tokens for answer in played.answers] == [3, 2, 1]
    for answer in played.answers:
        assert min(answer.times) > 0
        assert answer.times == sorted(answer.times)


def test_an_older_vllm_gets_them_as_they_come():
    played = send(engine={"can_pause": False})
    assert not played.sent.held
    assert [answer.tokens for answer in played.answers] == [3, 2, 1]


@pytest.mark.parametrize("limit", ["samples_at_once", "concurrency"])
def test_a_client_that_keeps_two_under_way_sends_the_next_when_one_ends(limit):
    played = send(single_turns([(10, 3)] * 8), **{limit: 2})
    assert (played.engine.most_waiting, played.sent.held) == (2, False)
    ends = [answer.times[-1] for answer in played.answers]
    for place in range(2, 8):
        ended = [end for end in ends if end <= played.answers[place].sent]
        assert len(ended) >= place - 1


def test_sessions_at_times_of_their_own_are_not_held():
    late = single_turns()
    late[2].arrival_s = 0.05
    played = send(late)
    assert not played.sent.held
    assert played.answers[2].sent >= 0.05


def test_a_request_that_the_engine_refuses_ends_the_round():
    with pytest.raises(ValueError, match="too long"):
        send(single_turns([(10, 3), (10, 101)]))


def test_the_fastest_rate_counts_what_was_computed():
    assert send().sender.fastest > 0


def test_a_vllm_whose_tokens_cannot_be_seen_is_no_measurement():
    from chunkscope_sender import Sender

    async def warm_up():
        sender = Sender(Engine(tells_tokens=False), TASK, vocab=32_000)
        await sender.warm_up(single_turns())

    with pytest.raises(RuntimeError, match="cannot see the tokens"):
        asyncio.run(warm_up())


# -- turns -----------------------------------------------------------------------------


def chats(count: int = 1) -> list[Any]:
    from chunkscope_sessions import SentSession, SentTurn

    turns = [
        SentTurn(10, 3),
        SentTurn(20, 2, kept_tokens=13, think_s=0.02),
        SentTurn(15, 1, kept_tokens=10),
    ]
    return [SentSession(turns, place=place) for place in range(count)]


def test_a_turn_goes_on_from_what_it_keeps_and_the_answer_before():
    prompts = send(chats()).prompts
    first, second, third = [prompts[f"0.0.{turn}"] for turn in range(3)]
    assert second[:13] == [*first, 0, 1, 2]
    assert third[:10] == first
    assert [len(first), len(second), len(third)] == [10, 20, 15]


def test_a_turn_is_sent_when_the_answer_before_was_thought_about():
    first, second, third = send(chats()).answers
    assert second.sent >= first.times[-1] + 0.02
    assert third.sent >= second.times[-1]


def test_answers_are_in_the_order_of_sessions_and_turns():
    places = [(answer.session, answer.turn) for answer in send(chats(2)).answers]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_samples_at_once_are_sessions_and_concurrency_is_requests():
    serial = send(chats(3), samples_at_once=1).answers
    assert serial[3].sent >= serial[2].times[-1]
    thinking = send(chats(3), concurrency=1).answers
    assert thinking[3].sent < thinking[1].sent  # another begins while the first thinks


def test_what_has_not_ended_in_time_is_given_up():
    played = send(chats(2), engine={"token_s": 0.03}, samples_at_once=1, limit_s=0.13)
    assert [(answer.session, answer.turn) for answer in played.answers] == [(0, 0)]


# -- prompts ---------------------------------------------------------------------------


def test_each_round_has_prompts_of_its_own_unless_they_are_given():
    from chunkscope_sender import Sender
    from chunkscope_sessions import Client

    async def play(prompts) -> Engine:
        engine = Engine()
        sender = Sender(engine, {**TASK, "prompts": prompts}, vocab=32_000)
        await sender.send(single_turns(), "0", Client())
        await sender.send(single_turns(), "1", Client())
        return engine

    engine = asyncio.run(play(None))
    assert [len(engine.prompts[f"0.{n}.0"]) for n in range(3)] == [10, 20, 30]
    assert engine.prompts["0.0.0"] != engine.prompts["1.0.0"]
    engine = asyncio.run(play([[7] * 10, [8] * 20, [9] * 30]))
    assert engine.prompts["0.2.0"] == engine.prompts["1.2.0"] == [9] * 30


@pytest.fixture
def sharing():
    """Prompts without a place, two that begin alike, and another without a place."""
    from chunkscope_sessions import SentSession, SentTurn

    places = (None, 0, 1, None)
    sessions = [SentSession([SentTurn(10, 1)], place=place) for place in places]
    task = {"seed": 0, "stretches": [(-1, 8)], "ends": [0, 0, -1]}
    prompts = send(sessions, task=task).prompts
    return [prompts[f"0.{number}.0"] for number in range(4)]


def test_prompts_share_as_the_workload_does_and_nothing_without_a_place(sharing):
    longest, first, second, last = sharing
    assert first[:8] == second[:8]
    assert first[8] != second[8]
    assert longest[0] != first[0]
    assert longest[0] != last[0]


def test_a_request_asks_for_what_its_dataset_is_for():
    sessions = single_turns()
    sessions[0].turns[0].is_scored = True
    assert sorted(send(sessions).engine.likelihoods, key=str) == [1, None, None]


@pytest.mark.parametrize(("again", "most_waiting"), [(False, 3), (True, 2)])
def test_answers_that_are_compared_are_batched_otherwise_the_second_time(
    again, most_waiting
):
    """All at once; then in the opposite order, half under way.

    The prompts are the same.
    """
    from chunkscope_sender import Sender
    from chunkscope_sessions import nobody_is_told

    async def play():
        engine = Engine()
        sender = Sender(engine, TASK, vocab=32_000)
        answers = await sender.outputs(single_turns(), nobody_is_told, again=again)
        return engine, answers

    engine, answers = asyncio.run(play())
    assert [len(tokens) for tokens in answers] == [3, 2, 1]
    assert engine.most_waiting == most_waiting
    prompts = list(engine.prompts.values())
    if again:
        prompts.reverse()
    assert prompts == list(send().prompts.values())


# -- the engine's program --------------------------------------------------------------


def test_answers_that_are_compared_end_where_the_context_does():
    import chunkscope_engine

    sample = single_turns([(10, 32), (20, 32), (30, 32)])
    chunkscope_engine.shorten(sample, 22)
    assert [session.turns[0].output_tokens for session in sample] == [12, 2, 1]


@pytest.mark.parametrize(
    ("count", "tokens", "fitting"),
    [
        pytest.param(1_024, 20, 44, id="as the KV cache holds"),
        pytest.param(1_024, 4, 64, id="as may run"),
        pytest.param(8, 20, 8, id="all"),
        pytest.param(8, 5_000, 1, id="one at least"),
    ],
)
def test_a_burst_is_as_large_as_what_runs_at_once(count, tokens, fitting):
    import chunkscope_engine

    running = {"block_size": 16, "num_gpu_blocks": 100, "max_num_seqs": 64}
    assert chunkscope_engine.fitting(count, tokens, running) == fitting


def test_what_a_killed_engine_never_answers_is_not_waited_for(monkeypatch):
    import chunkscope_engine

    async def wait() -> None:
        never = asyncio.create_task(asyncio.Event().wait())
        dead = SimpleNamespace(errored=True, dead_error=OSError("dead"))
        await asyncio.wait_for(chunkscope_engine.lives_until(never, dead), 10)

    monkeypatch.setattr(chunkscope_engine, "LOOK_S", 0.01)
    with pytest.raises(OSError, match="dead"):
        asyncio.run(wait())
