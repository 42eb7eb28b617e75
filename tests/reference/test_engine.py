"""The reference engine: chunks change no answer, and its steps are the simulator's."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from chunkscope.errors import InputError  # noqa: E402
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
from chunkscope.simulation.result import SimulatedRun, TimelineStep  # noqa: E402
from chunkscope.simulation.run import StepSeconds, simulate  # noqa: E402
from chunkscope.vllm.settings import KvPool  # noqa: E402
from tests.reference.small_models import (  # noqa: E402
    FAMILIES,
    greedy,
    model_of,
    prompt_of,
    rounding,
    unchunked,
)

pytestmark = pytest.mark.real

OUTPUT_TOKENS = 3
SOON = 1e-9  # seconds: while the first step is computed


def requests_of(
    lengths: Sequence[int],
    output_tokens: int = OUTPUT_TOKENS,
    arrivals: Sequence[float] = (),
) -> list[TokenRequest]:
    requests = []
    for number, length in enumerate(lengths):
        request = TokenRequest(
            prompt=prompt_of(length, seed=number),
            output_tokens=output_tokens,
            arrival_s=arrivals[number] if arrivals else 0.0,
        )
        requests.append(request)
    return requests


def check_answers(
    family: str, requests: Sequence[TokenRequest], run: ReferenceRun
) -> None:
    """They are what the model says by one pass over all tokens, without a cache."""
    model = model_of(family)
    for number, request in enumerate(requests):
        expected = unchunked(model, request.prompt)
        torch.testing.assert_close(
            run.first_logits[number], expected, rtol=0, atol=rounding(model, expected)
        )
        answer = greedy(model, request.prompt, request.output_tokens)
        assert run.outputs[number] == answer


@pytest.mark.parametrize("chunk", [1, 7, 32, 128, 512, None])
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_change_no_answer(family: str, chunk: int | None) -> None:
    lengths = (40, 9, 1) if chunk == 1 else (530, 45, 7, 1)
    requests = requests_of(lengths)
    model = model_of(family)

    run = generate(model, requests, settings_for(model, requests, chunk=chunk))

    check_answers(family, requests, run)
    chunks = -(-lengths[0] // (chunk or lengths[0]))
    assert run.run.figures.chunks_max == chunks


@settings(max_examples=15, derandomize=True)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=4),
    chunk=st.integers(0, 30),
    budget=st.integers(4, 70),
    others_arrive_s=st.sampled_from([0.0, SOON]),
)
def test_no_mix_of_lengths_chunks_and_budgets_changes_an_answer(
    family, lengths, chunk, budget, others_arrive_s
) -> None:
    """Requests that come later are read beside the first one's decodes."""
    arrivals = [0.0] + [others_arrive_s] * (len(lengths) - 1)
    requests = requests_of(lengths, arrivals=arrivals)
    model = model_of(family)
    engine_settings = settings_for(model, requests, chunk=chunk).at_budget(budget)

    run = generate(model, requests, engine_settings)

    check_answers(family, requests, run)


@pytest.mark.parametrize("family", ["Llama", "Mistral with a window", "GPT-2"])
def test_a_model_that_attends_eagerly_does_so_by_pieces(family: str) -> None:
    requests = requests_of((60, 9))
    model = model_of(family, "eager")

    run = generate(model, requests, settings_for(model, requests, chunk=7))

    assert model.config._attn_implementation == "eager", "as it was"
    check_answers(family, requests, run)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # on a CPU without bfloat16
def test_half_the_precision_is_equal_up_to_its_rounding() -> None:
    model = model_of("Llama").__class__(model_of("Llama").config)
    model.load_state_dict(model_of("Llama").state_dict())
    model = model.to(torch.bfloat16)
    requests = requests_of((300,), output_tokens=1)

    run = generate(model, requests, settings_for(model, requests, chunk=32))

    expected = unchunked(model, requests[0].prompt)
    tolerance = 8 * torch.finfo(torch.bfloat16).eps * float(expected.abs().max())
    torch.testing.assert_close(run.first_logits[0], expected, rtol=0, atol=tolerance)


def test_a_request_that_was_preempted_answers_the_same() -> None:
    requests = requests_of((60, 50, 40), output_tokens=12)
    model = model_of("Llama")
    engine_settings = settings_for(model, requests, chunk=16)

    run = generate(model, requests, engine_settings, kv_cache_tokens=16 * 11)

    assert run.run.figures.preemptions
    check_answers("Llama", requests, run)


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


@pytest.mark.parametrize("chunk", [64, 48, None])
@pytest.mark.parametrize(
    "arrivals",
    [
        pytest.param((0.0,) * 5, id="all at once"),
        pytest.param((0.0, 0.0, SOON, SOON, 0.02), id="three come later"),
    ],
)
def test_the_steps_are_the_simulators_one_for_one(chunk, arrivals, computed) -> None:
    requests = requests_of((20, 9, 900, 200, 30), arrivals=arrivals)
    model = model_of("Llama")
    engine_settings = settings_for(model, requests, chunk=chunk).at_budget(700)

    run = generate(model, requests, engine_settings)

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
    check_answers("Llama", requests, run)


def test_times_are_those_of_the_steps() -> None:
    requests = requests_of((9, 120), arrivals=(0.0, SOON))
    model = model_of("Llama")

    run = generate(model, requests, settings_for(model, requests, chunk=50))

    ends = [step.start_s + step.duration_s for step in run.run.timeline]
    assert all(step.duration_s > 0 for step in run.run.timeline)
    assert sum(bool(step.chunks) for step in run.run.timeline) == 4
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


# -- bad input -----------------------------------------------------------------------


def test_a_prompt_longer_than_the_context_is_refused() -> None:
    requests = requests_of((1_022,), output_tokens=4)
    model = model_of("GPT-2")
    with pytest.raises(InputError, match=r"1,026.*1,024"):
        generate(model, requests, settings_for(model, requests, chunk=32))


def test_prefix_caching_is_refused() -> None:
    requests = requests_of((9,))
    model = model_of("GPT-2")
    usual = settings_for(model, requests, chunk=32)
    with pytest.raises(InputError, match="prefix"):
        generate(model, requests, replace(usual, enable_prefix_caching=True))


def test_a_model_whose_layers_keep_a_state_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = requests_of((9,))
    model = model_of("Qwen2")
    layer_types = ["linear_attention", "full_attention"]
    monkeypatch.setattr(model.config, "layer_types", layer_types)
    with pytest.raises(InputError, match=r"Qwen2ForCausalLM.*linear"):
        generate(model, requests, settings_for(model, requests, chunk=None))
    assert model.config._attn_implementation == "sdpa", "as it was"
