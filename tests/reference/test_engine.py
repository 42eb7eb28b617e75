"""The reference engine: chunks change nothing in the answers, and the steps are the simulator's."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from chunkscope.errors import InputError  # noqa: E402
from chunkscope.reference.batch import BatchPiece  # noqa: E402
from chunkscope.reference.engine import (  # noqa: E402
    ENGINE,
    ModelRunner,
    ReferenceRun,
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

MORE = 3  # tokens of an answer


def requests_of(
    lengths: Sequence[int], more: int = MORE, arrivals: Sequence[float] = ()
) -> list[TokenRequest]:
    times = arrivals or [0.0] * len(lengths)
    return [
        TokenRequest(prompt=prompt_of(n, seed), output_tokens=more, arrival_s=at)
        for seed, (n, at) in enumerate(zip(lengths, times, strict=True))
    ]


def check_equal(
    family: str, requests: Sequence[TokenRequest], found: ReferenceRun
) -> None:
    model = model_of(family)
    for request, logits, output in zip(
        requests, found.first_logits, found.outputs, strict=True
    ):
        expected = unchunked(model, request.prompt)
        assert torch.allclose(
            logits, expected, rtol=0, atol=rounding(model, expected)
        ), family
        assert output == greedy(model, request.prompt, request.output_tokens), family


@pytest.mark.parametrize("chunk", [1, 7, 32, 128, 512, None])
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_change_no_answer(family: str, chunk: int | None) -> None:
    lengths = (40, 9, 1) if chunk == 1 else (530, 45, 7, 1)
    requests = requests_of(lengths)
    model = model_of(family)
    found = generate(model, requests, settings_for(model, requests, chunk=chunk))
    check_equal(family, requests, found)
    assert found.run.figures.chunks_max == (
        1 if chunk is None else -(-lengths[0] // chunk)
    )


@settings(max_examples=15, derandomize=True)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=4),
    chunk=st.integers(0, 30),
    budget=st.integers(4, 70),
    late=st.booleans(),
)
def test_nor_does_any_mix_of_lengths_chunks_and_budgets(
    family, lengths, chunk, budget, late
):
    """`late`: the others come when the first is decoding, so that chunks stand beside decodes."""
    arrivals = [0.0] + [1e-9 if late else 0.0] * (len(lengths) - 1)
    requests = requests_of(lengths, arrivals=arrivals)
    model = model_of(family)
    args = settings_for(model, requests, chunk=chunk).at_budget(budget)
    check_equal(family, requests, generate(model, requests, args))


@pytest.mark.parametrize("family", ["Llama", "Mistral with a window", "GPT-2"])
def test_a_model_that_attends_eagerly_does_so_by_pieces(family: str) -> None:
    requests = requests_of((60, 9))
    model = model_of(family, "eager")
    found = generate(model, requests, settings_for(model, requests, chunk=7))
    assert model.config._attn_implementation == "eager", "as it was"
    check_equal(family, requests, found)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # on a CPU without bfloat16
def test_half_the_precision_is_equal_up_to_its_rounding() -> None:
    model = model_of("Llama").__class__(model_of("Llama").config)
    model.load_state_dict(model_of("Llama").state_dict())
    model = model.to(torch.bfloat16)
    requests = requests_of((300,), more=1)
    (logits,) = generate(
        model, requests, settings_for(model, requests, chunk=32)
    ).first_logits
    expected = unchunked(model, requests[0].prompt)
    few = 8 * torch.finfo(torch.bfloat16).eps * float(expected.abs().max())
    assert torch.allclose(logits, expected, rtol=0, atol=few)


def test_a_request_that_was_preempted_answers_the_same() -> None:
    requests = requests_of((60, 50, 40), more=12)
    model = model_of("Llama")
    settings = settings_for(model, requests, chunk=16)
    found = generate(model, requests, settings, kv_cache_tokens=16 * 11)
    assert found.run.figures.preemptions
    check_equal("Llama", requests, found)


def untimed(run: SimulatedRun) -> list[TimelineStep]:
    return [replace(step, start_s=0.0, duration_s=0.0) for step in run.timeline]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[BatchPiece]]:
    """What the model really was given."""
    batches: list[Sequence[BatchPiece]] = []
    forward = ModelRunner.forward

    def watched(self: ModelRunner, batch: Sequence[BatchPiece]) -> "torch.Tensor":
        batches.append(batch)
        return forward(self, batch)

    monkeypatch.setattr(ModelRunner, "forward", watched)
    return batches


@pytest.mark.parametrize("chunk", [64, 48, None])
@pytest.mark.parametrize(
    "arrivals", [(0.0,) * 5, (0.0, 0.0, 1e-9, 1e-9, 0.02)], ids=str
)
def test_the_steps_are_the_simulators_one_for_one(chunk, arrivals, computed) -> None:
    requests = requests_of((20, 9, 900, 200, 30), arrivals=arrivals)
    model = model_of("Llama")
    args = settings_for(model, requests, chunk=chunk).at_budget(700)
    found = generate(model, requests, args)
    durations = deque(step.duration_s for step in found.run.timeline)
    simulated = simulate(
        workload_of(requests),
        args,
        ENGINE,
        lambda _: StepSeconds(durations.popleft(), 0.0, 0.0, 0.0),
        timeline=10_000,
        kv_pool=KvPool(tokens=16_000),
        async_scheduling=False,
    )
    assert untimed(found.run) == untimed(simulated)
    assert len(simulated.timeline) == len(computed)
    for step, batch in zip(simulated.timeline, computed, strict=True):
        prompts = [p for p in batch if p.end <= p.request.prompt_tokens]
        expected = [(chunk.start, chunk.end) for chunk in step.chunks]
        assert [(piece.start, piece.end) for piece in prompts] == expected
        assert len(batch) - len(prompts) == step.decode_requests
    check_equal("Llama", requests, found)


def test_times_are_those_of_the_steps() -> None:
    requests = requests_of((9, 120), arrivals=(0.0, 1e-9))
    model = model_of("Llama")
    found = generate(model, requests, settings_for(model, requests, chunk=50))
    ends = [step.start_s + step.duration_s for step in found.run.timeline]
    assert all(step.duration_s > 0 for step in found.run.timeline)
    assert sum(bool(step.chunks) for step in found.run.timeline) == 4
    first, second = found.answers
    assert first.times == pytest.approx(ends[:MORE])
    assert second.times == pytest.approx(ends[3 : 3 + MORE])
    assert found.run.figures.itl_s.max == pytest.approx(
        max(*first.gaps_s, *second.gaps_s)
    )
    assert found.run.figures.makespan_s == pytest.approx(ends[-1])


def test_memory_is_measured() -> None:
    from chunkscope.verification.inside.chunkscope_probe import PeakMemory

    memory = PeakMemory()
    before = memory.peak_bytes()
    taken = torch.ones(64 * 2**20 // 4)  # 64 MiB
    del taken
    assert memory.peak_bytes() >= before + 50 * 2**20
    assert memory.beyond_bytes() >= 50 * 2**20


# -- bad input -----------------------------------------------------------------------------------


def test_a_prompt_longer_than_the_context_and_prefix_caching_are_refused() -> None:
    requests = requests_of((1_022,), more=4)
    model = model_of("GPT-2")
    args = settings_for(model, requests, chunk=32)
    with pytest.raises(InputError, match=r"1,026.*1,024"):
        generate(model, requests, args)
    with pytest.raises(InputError, match="prefix"):
        generate(model, requests, replace(args, enable_prefix_caching=True))


def test_a_model_that_attends_otherwise_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = requests_of((9,))
    model = model_of("Qwen2")
    monkeypatch.setattr(
        model.config, "layer_types", ["linear_attention", "full_attention"]
    )
    with pytest.raises(InputError, match=r"Qwen2ForCausalLM.*linear"):
        generate(model, requests, settings_for(model, requests, chunk=None))
    assert model.config._attn_implementation == "sdpa", "as it was"
