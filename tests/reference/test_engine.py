"""The reference engine: chunks change no answer, and its steps are the simulator's."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from chunkscope.reference.engine import (  # noqa: E402
    ENGINE,
    ModelRunner,
    ReferenceRun,
    ScheduledTokens,
    TokenRequest,
    generate,
    settings_for,
    workload_of,
)
from chunkscope.reference.model import random_model  # noqa: E402
from chunkscope.simulation.result import SimulatedRun, TimelineStep  # noqa: E402
from chunkscope.simulation.run import StepSeconds, simulate  # noqa: E402
from chunkscope.vllm.settings import KvPool  # noqa: E402
from tests.reference.small_models import (  # noqa: E402
    greedy,
    prompt_of,
    rounding,
    unchunked,
)

pytestmark = pytest.mark.real

OUTPUT_TOKENS = 3
SOON = 1e-9  # seconds: while the first step is computed


@pytest.fixture(scope="module")
def models():
    """The demo's model, and the same one with the attention of transformers."""
    by_piece, usual = random_model(), random_model()
    usual.set_attn_implementation("sdpa")
    return by_piece, usual


def requests_of(
    lengths: Sequence[int], arrivals: Sequence[float] = ()
) -> list[TokenRequest]:
    requests = []
    for number, length in enumerate(lengths):
        request = TokenRequest(
            prompt=prompt_of(length, seed=number),
            output_tokens=OUTPUT_TOKENS,
            arrival_s=arrivals[number] if arrivals else 0.0,
        )
        requests.append(request)
    return requests


def check_answers(usual, requests: Sequence[TokenRequest], run: ReferenceRun) -> None:
    """They are what the model says by one pass over all tokens, without a cache."""
    for number, request in enumerate(requests):
        expected = unchunked(usual, request.prompt)
        torch.testing.assert_close(
            run.first_logits[number], expected, rtol=0, atol=rounding(usual, expected)
        )
        answer = greedy(usual, request.prompt, request.output_tokens)
        assert run.outputs[number] == answer


@pytest.mark.parametrize("chunk", [1, 7, 128, None])
def test_chunks_change_no_answer(models, chunk: int | None) -> None:
    lengths = (40, 9, 1) if chunk == 1 else (530, 45, 7, 1)
    requests = requests_of(lengths)
    model, usual = models

    run = generate(model, requests, settings_for(requests, chunk=chunk))

    check_answers(usual, requests, run)
    assert run.run.figures.chunks_max == -(-lengths[0] // (chunk or lengths[0]))


@settings(max_examples=8, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=4),
    chunk=st.integers(0, 30),
    budget=st.integers(4, 70),
    others_arrive_s=st.sampled_from([0.0, SOON]),
)
def test_no_mix_of_lengths_chunks_and_budgets_changes_an_answer(
    models, lengths, chunk, budget, others_arrive_s
) -> None:
    """Requests that come later are read beside the first one's decodes."""
    arrivals = [0.0] + [others_arrive_s] * (len(lengths) - 1)
    requests = requests_of(lengths, arrivals)
    model, usual = models
    engine_settings = settings_for(requests, chunk=chunk).at_budget(budget)

    run = generate(model, requests, engine_settings)

    check_answers(usual, requests, run)


def untimed(run: SimulatedRun) -> list[TimelineStep]:
    return [replace(step, start_s=0.0, duration_s=0.0) for step in run.timeline]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[ScheduledTokens]]:
    """What the model really computes, step by step."""
    batches: list[Sequence[ScheduledTokens]] = []
    forward = ModelRunner.forward

    def watched(self: ModelRunner, batch: Sequence[ScheduledTokens]) -> "torch.Tensor":
        batches.append(batch)
        return forward(self, batch)

    monkeypatch.setattr(ModelRunner, "forward", watched)
    return batches


@pytest.mark.parametrize("chunk", [64, None])
@pytest.mark.parametrize(
    "arrivals",
    [
        pytest.param((0.0,) * 5, id="all at once"),
        pytest.param((0.0, 0.0, SOON, SOON, 0.02), id="three come later"),
    ],
)
def test_the_steps_are_the_simulators_one_for_one(
    models, chunk, arrivals, computed
) -> None:
    requests = requests_of((20, 9, 900, 200, 30), arrivals)
    engine_settings = settings_for(requests, chunk=chunk).at_budget(700)

    run = generate(models[0], requests, engine_settings)

    durations = deque(step.duration_s for step in run.run.timeline)
    simulated = simulate(
        workload_of(requests),
        engine_settings,
        ENGINE,
        lambda _: StepSeconds(durations.popleft(), 0.0, 0.0, 0.0),
        timeline=10_000,
        kv_pool=KvPool(tokens=16_000),
        async_scheduling=False,
    )
    assert untimed(run.run) == untimed(simulated)
    for step, batch in zip(simulated.timeline, computed, strict=True):
        pieces = []
        for scheduled in batch:
            if scheduled.piece.end <= scheduled.request.prompt_tokens:
                pieces.append((scheduled.piece.start, scheduled.piece.end))
        assert pieces == [(chunk.start, chunk.end) for chunk in step.chunks]
        assert len(batch) - len(pieces) == step.decode_requests


def test_times_are_those_of_the_steps(models) -> None:
    requests = requests_of((9, 120), arrivals=(0.0, SOON))

    run = generate(models[0], requests, settings_for(requests, chunk=50))

    ends = [step.start_s + step.duration_s for step in run.run.timeline]
    first, second = run.answers
    assert first.times == pytest.approx(ends[:OUTPUT_TOKENS])
    assert second.times == pytest.approx(ends[3 : 3 + OUTPUT_TOKENS])
    longest_gap = max(*first.gaps_s, *second.gaps_s)
    assert run.run.figures.itl_s.max == pytest.approx(longest_gap)
    assert run.run.figures.makespan_s == pytest.approx(ends[-1])


def test_memory_is_measured() -> None:
    from chunkscope.verification.inside.chunkscope_probe import PeakMemory

    memory = PeakMemory()
    before = memory.peak_bytes()
    taken = torch.ones(64 * 2**20 // 4)  # 64 MiB
    del taken
    assert memory.peak_bytes() >= before + 50 * 2**20
    assert memory.beyond_bytes() >= 50 * 2**20
