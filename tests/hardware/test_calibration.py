"""Where step times come from: fitted, scaled or a roofline, and always labelled."""

import random
import sys
from dataclasses import asdict, fields, replace

import pytest

from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.calibration import Calibration, StepSamples, together
from chunkscope.hardware.cost_model import GPU_TIMES, CostSource, CostTarget, cost_model
from chunkscope.hardware.gpus import Parallel, find_gpu
from chunkscope.hardware.step_time import (
    AttentionWindow,
    Host,
    Runner,
    StepModel,
    assumed_host,
    step_model,
)
from chunkscope.models import find_model

pytest.importorskip("scipy")
from chunkscope.hardware.step_fit import fit_steps

TRUE = StepModel(
    fixed_s=5e-3,
    per_token_s=18e-6,
    per_prefill_pair_s=1.1e-9,
    per_decode_context_s=38e-9,
    per_request_s=2e-6,
    free_tokens=128,
)
COLUMNS = [field.name for field in fields(StepSamples)]
HOST = assumed_host(find_model("llama-3.1-8b"), Runner.V1)
PRIOR = step_model(find_model("llama-3.1-8b"), find_gpu("h200"))
BESIDE = replace(
    TRUE,
    per_request_s=0.0,
    host=Host(
        fixed_s=1e-3, per_request_s=60e-6, per_prompt_s=0.1e-3, ungraphed_s=12e-3
    ),
)


def samples(
    true: StepModel = TRUE,
    *,
    count: int = 600,
    noise: float = 0.02,
    longest: int = 4_000,
) -> StepSamples:
    """Steps of a mixed workload, each a little off; one in fifty takes thrice as long."""
    chance = random.Random(1)
    rows = []
    for _ in range(count):
        decodes = chance.choice([0, 1, 8, 64, 256])
        chunk = chance.choice([0, 0, 200, 2_000, 8_000]) or (0 if decodes else 64)
        context = chance.randint(0, 20_000)
        pairs = chunk * context + chunk * (chunk + 1) // 2
        held, prompts = decodes * chance.randint(50, longest), int(chunk > 0)
        host_s = sum(true.host_parts(chunk + decodes, decodes + prompts, prompts))
        exact = max(true.gpu_s(chunk + decodes, pairs, held, decodes + prompts), host_s)
        hiccup = 3 if noise and chance.random() < 0.02 else 1
        took = exact * chance.gauss(1, noise) * hiccup
        rows.append(("run", chunk, pairs, prompts, decodes, held, took))
    return StepSamples(
        **dict(zip(COLUMNS, map(tuple, zip(*rows, strict=True)), strict=True))
    )


def only(steps: StepSamples, places: list[int]) -> StepSamples:
    return StepSamples(
        **{n: tuple(getattr(steps, n)[k] for k in places) for n in COLUMNS}
    )


def calibration(
    model: str = "llama-3.1-8b", gpu: str = "h200", **more: object
) -> Calibration:
    facts = {
        "gpu": find_gpu(gpu).title,
        "device": "cuda",
        "model": find_model(model),
        "tp": 1,
        "vllm": "0.28.0",
        "eager": False,
        "async_scheduling": False,
        "steps": samples(count=200),
    }
    return Calibration(**{**facts, **more})


def target(model="llama-3.1-8b", gpu="h200", vllm="0.28.0", tp=1) -> CostTarget:
    shape, parallel = find_model(model), Parallel(tensor=tp)
    return CostTarget(shape=shape, gpu=find_gpu(gpu), vllm=vllm, parallel=parallel)


# -- fitting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "true", [TRUE, replace(TRUE, experts_s=8e-3, expert_share=0.05)]
)
@pytest.mark.parametrize(
    ("noise", "near", "most"), [(0, 1e-3, 1e-4), (0.02, 0.1, 0.02)]
)
def test_steps_give_their_model_back_and_noise_and_hiccups_hardly_move_it(
    true, noise, near, most
):
    step, error = fit_steps(samples(true, noise=noise), expert_share=true.expert_share)
    for name in GPU_TIMES:
        assert getattr(step, name) == pytest.approx(getattr(true, name), rel=near), name
    assert noise or step.free_tokens == 128
    assert error < most


def test_too_few_steps_are_an_input_error():
    with pytest.raises(InputError):
        fit_steps(samples(count=5))
    begun = only(replace(samples(), decode_requests=(0,) * 600), [0] * 30)
    with pytest.raises(InputError):
        fit_steps(replace(begun, setting=tuple(map(str, range(30)))), prior=PRIOR)


@pytest.mark.parametrize(("noise", "near"), [(0, 0.05), (0.05, 0.10)])
def test_both_the_gpu_and_the_host_are_found_in_steps_that_show_only_the_slower(
    noise, near
):
    steps = samples(BESIDE, count=4_000, noise=noise, longest=500)
    step, _ = fit_steps(steps, prior=PRIOR)
    for tokens, pairs, held in (
        (8_192, 8_192 * 10_000, 0),
        (64, 0, 150_000),
        (256, 0, 20_000),
    ):
        fitted, true = (one.gpu_s(tokens, pairs, held, 1) for one in (step, BESIDE))
        assert fitted == pytest.approx(true, rel=near)
    assert step.host.per_request_s == pytest.approx(60e-6, rel=near)


def test_what_the_steps_do_not_show_is_assumed():
    """One long prompt at a time: nobody waits for the host."""
    steps = samples(BESIDE, noise=0)
    alone = only(steps, [n for n, many in enumerate(steps.decode_requests) if many < 2])
    step, _ = fit_steps(alone, prior=PRIOR)
    assert step.host.per_request_s == pytest.approx(HOST.per_request_s, rel=0.1)


@pytest.mark.parametrize("took", [1e-6, 0.01, 900.0])
def test_few_or_odd_steps_still_give_a_sane_model(took):
    steps = replace(samples(count=25), duration_s=(took,) * 25)
    for prior in (None, StepModel(host=HOST), PRIOR):
        step = asdict(fit_steps(steps, prior=prior)[0])
        times = [
            v for v in (*step.values(), *step["host"].values()) if isinstance(v, float)
        ]
        assert all(0 <= time < 1e4 for time in times)


def test_only_an_engine_that_schedules_ahead_hides_its_host():
    assert cost_model(None, calibration()).step.host == Host()
    assert cost_model(None, calibration(async_scheduling=True)).step.host != Host()
    assert (
        cost_model(None, calibration(async_scheduling=True, device="cpu")).step.host
        == Host()
    )


def test_steps_that_were_recorded_without_windows_are_simulated_without():
    """A probe counts all that is before a token: a window must not be taken off once more."""
    recorded = calibration("gemma-2-9b")
    assert step_model(recorded.model, find_gpu("h200")).window.tokens == 4_096
    assert cost_model(None, recorded).step.window == AttentionWindow()
    assert (
        cost_model(target("gemma-2-9b", gpu="h100"), recorded).step.window
        == AttentionWindow()
    )


def test_several_calibrations_of_one_engine_are_fitted_together():
    assert len(together([calibration(), calibration()]).steps) == 400
    for other in (calibration(vllm="0.24.0"), calibration("qwen2.5-7b")):
        with pytest.raises(InputError, match=r"vllm|model"):
            together([calibration(), other])


# -- which source ------------------------------------------------------------------------------


@pytest.mark.parametrize("vllm", ["0.28.0", "0.28.1", "0.28.0+cpu"])
def test_a_calibration_of_the_same_engine_is_used_as_it_is(vllm):
    cost = cost_model(target(), calibration(vllm=vllm))
    assert (cost.source, cost.notes) == (CostSource.CALIBRATED, ())
    assert (cost.gpu, cost.model, cost.samples) == ("NVIDIA H200", "llama-3.1-8b", 200)
    assert cost.step.expert_share == 0


@pytest.mark.parametrize(
    ("made_for", "differing"),
    [
        ({"model": "qwen2.5-7b"}, {"model": ["llama-3.1-8b", "qwen2.5-7b"]}),
        ({"gpu": "a100"}, {"gpu": ["NVIDIA H200", "NVIDIA A100-SXM4-80GB"]}),
        ({"vllm": "0.32.0"}, {"vllm": ["vLLM 0.28.0", "0.32.0"]}),
        ({"tp": 2}, {"gpus": ["1 GPUs", "2"]}),
    ],
)
def test_one_of_another_engine_is_scaled_and_says_why(made_for, differing):
    cost = cost_model(target(**made_for), calibration())
    assert cost.source is CostSource.SCALED
    assert [(note.code, note.values) for note in cost.notes] == [
        ("scaled_steps", differing)
    ]


SCALED = {
    "a slower GPU": ({"gpu": "a100"}, (1.9573, 3.1699, 3.1699, 2.3541, 95)),
    "eight GPUs, which communicate": ({"tp": 8}, (0.51161, 0.26368, 0.125, 0.125, 128)),
    "over PCIe": ({"tp": 8, "gpu": "h100-pcie"}, (0.83067, 2.2437, 0.16353, 0.3, 234)),
}  # fmt: skip


@pytest.mark.parametrize(("made_for", "times"), SCALED.values(), ids=SCALED)
def test_scaling_follows_flops_bytes_and_bandwidth(made_for, times):
    """How many times as long, by coefficient; and the tokens that hide."""
    here = cost_model(target(), calibration()).step
    step = cost_model(target(**made_for), calibration()).step
    scaled = [getattr(step, name) / getattr(here, name) for name in GPU_TIMES[:4]]
    assert (*scaled, step.free_tokens) == pytest.approx(times, rel=1e-3)


def test_of_another_model_only_the_host_carries_over():
    """It launched 12 ms of steps for which 18.5 are assumed: so the other one is launched, too."""
    times = {
        "per_token_s": 1e-6,
        "per_prefill_pair_s": 1e-11,
        "per_decode_context_s": 1e-9,
    }
    recorded = calibration(
        async_scheduling=True, steps=samples(replace(BESIDE, **times))
    )
    step, larger = (
        cost_model(target("qwen3-30b-a3b"), recorded).step,
        find_model("qwen3-30b-a3b"),
    )
    roofline = step_model(larger, find_gpu("h200"))
    assert replace(step, host=roofline.host) == roofline
    times = step.host.ungraphed_s / roofline.host.ungraphed_s
    assert times == pytest.approx(12 / 18.5, rel=0.05)
    without_a_host = cost_model(target("qwen3-30b-a3b"), calibration()).step
    assert without_a_host == roofline


def test_a_gpu_of_unknown_speed_cannot_be_scaled_from():
    with pytest.raises(InputError, match="cpu"):
        cost_model(target(), replace(calibration(), gpu="cpu"))


def test_without_a_calibration_it_is_a_roofline_or_something_is_missing():
    cost = cost_model(target(), None)
    assert cost.source is CostSource.ROOFLINE
    for nothing in (None, replace(target(), gpu=find_gpu("80GiB"))):
        with pytest.raises(MissingError):
            cost_model(nothing, None)


def test_without_scipy_a_calibration_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "chunkscope.hardware.step_fit")
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingError) as error:
        cost_model(None, calibration())
    assert "pip install" in error.value.hint
