"""Where step times come from: fitted to a calibration, or a labelled roofline."""

import random
import sys
from dataclasses import replace

import pytest

from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.calibration import (
    ALL_COLUMNS,
    Calibration,
    StepSamples,
    together,
)
from chunkscope.hardware.cost_model import (
    CostSource,
    calibrated_cost,
    check_calibration,
    roofline_cost,
)
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
HOST = assumed_host(find_model("llama-3.1-8b"), Runner.V1)
PRIOR = step_model(find_model("llama-3.1-8b"), find_gpu("h200"))
BESIDE = replace(
    TRUE,
    per_request_s=0.0,
    host=Host(
        fixed_s=1e-3, per_request_s=60e-6, per_prompt_s=0.1e-3, ungraphed_s=12e-3
    ),
)


def samples(true=TRUE, *, count=600, noise=0.02, longest=4_000) -> StepSamples:
    """Steps of a mixed workload, a little off; one in fifty takes thrice as long."""
    chance = random.Random(1)
    rows = []
    for _ in range(count):
        decodes = chance.choice([0, 1, 8, 64, 256])
        chunk = chance.choice([0, 0, 200, 2_000, 8_000])
        if not chunk and not decodes:
            chunk = 64
        context = chance.randint(0, 20_000)
        pairs = chunk * context + chunk * (chunk + 1) // 2
        held, prompts = decodes * chance.randint(50, longest), int(chunk > 0)
        host_s = sum(true.host_parts(chunk + decodes, decodes + prompts, prompts))
        gpu_s = true.gpu_s(chunk + decodes, pairs, held, decodes + prompts)
        took = max(gpu_s, host_s)
        if noise and chance.random() < 0.02:
            took *= 3
        took *= chance.gauss(1, noise)
        rows.append(("run", chunk, pairs, prompts, decodes, held, took))
    columns = zip(*rows, strict=True)
    return StepSamples(**dict(zip(ALL_COLUMNS, columns, strict=True)))


def only(steps: StepSamples, places: list[int]) -> StepSamples:
    columns = {}
    for name in ALL_COLUMNS:
        column = getattr(steps, name)
        columns[name] = tuple(column[place] for place in places)
    return StepSamples(**columns)


def calibration(model="llama-3.1-8b", gpu="h200", **changed) -> Calibration:
    found = Calibration(
        gpu=find_gpu(gpu).title,
        device="cuda",
        model=find_model(model),
        tp=1,
        vllm="0.28.0",
        eager=False,
        async_scheduling=True,
        steps=samples(count=200),
    )
    return replace(found, **changed)


# -- fitting ---------------------------------------------------------------------------


def test_too_few_steps_are_an_input_error():
    with pytest.raises(InputError, match="5 steps"):
        fit_steps(samples(count=5), PRIOR)


def test_steps_that_all_begin_a_repeat_are_too_few():
    """The host did other work than in any other step."""
    begun = only(replace(samples(), decode_requests=(0,) * 600), [0] * 30)
    repeats = tuple(str(number) for number in range(30))

    with pytest.raises(InputError, match="too few"):
        fit_steps(replace(begun, setting=repeats), PRIOR)


@pytest.mark.parametrize(("noise", "near"), [(0, 0.05), (0.05, 0.10)])
def test_both_the_gpu_and_the_host_are_found_in_steps_that_show_only_the_slower(
    noise, near
):
    steps = samples(BESIDE, count=4_000, noise=noise, longest=500)

    step = fit_steps(steps, PRIOR).step

    for tokens, pairs, held in (
        (8_192, 8_192 * 10_000, 0),
        (64, 0, 150_000),
        (256, 0, 20_000),
    ):
        true_s = BESIDE.gpu_s(tokens, pairs, held, 1)
        assert step.gpu_s(tokens, pairs, held, 1) == pytest.approx(true_s, rel=near)
    assert step.host.per_request_s == pytest.approx(60e-6, rel=near)


def test_what_the_steps_do_not_show_is_assumed():
    """One long prompt at a time: nobody waits for the host."""
    steps = samples(BESIDE, noise=0)
    places = []
    for place, decodes in enumerate(steps.decode_requests):
        if decodes < 2:
            places.append(place)

    step = fit_steps(only(steps, places), PRIOR).step

    assert step.host.per_request_s == pytest.approx(HOST.per_request_s, rel=0.1)


@pytest.mark.parametrize("changed", [{"async_scheduling": False}, {"device": "cpu"}])
def test_an_engine_that_does_not_schedule_ahead_is_refused(changed):
    with pytest.raises(InputError, match="one step after another"):
        calibrated_cost(calibration(**changed))


def test_steps_that_were_recorded_without_windows_are_simulated_without():
    """A probe counts all that is before a token: no window may be taken off again."""
    recorded = calibration("gemma-2-9b")

    assert calibrated_cost(recorded).step.window == AttentionWindow()


def test_several_calibrations_of_one_engine_are_fitted_together():
    assert len(together([calibration(), calibration()]).steps) == 400


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (calibration(vllm="0.24.0"), "vllm"),
        (calibration("qwen2.5-7b"), "model"),
    ],
)
def test_calibrations_of_different_engines_are_not_put_together(other, name):
    with pytest.raises(InputError, match=name):
        together([calibration(), other])


# -- which source ----------------------------------------------------------------------


def check(found, model="llama-3.1-8b", gpu="h200", vllm="0.28.0", tp=1):
    check_calibration(
        found,
        shape=find_model(model),
        gpu=find_gpu(gpu),
        vllm=vllm,
        parallel=Parallel(tensor=tp),
    )


@pytest.mark.parametrize("vllm", ["0.28.0", "0.28.1", "0.28.0+cpu"])
def test_a_calibration_serves_its_own_engine_and_patch_releases_of_it(vllm):
    check(calibration(vllm=vllm))


@pytest.mark.parametrize(
    ("wanted", "difference"),
    [
        ({"model": "qwen2.5-7b"}, "of llama-3.1-8b, not of qwen2.5-7b"),
        ({"gpu": "a100"}, "of NVIDIA H200, not of NVIDIA A100-SXM4-80GB"),
        ({"vllm": "0.32.0"}, "of vLLM 0.28.0, not of 0.32.0"),
        ({"tp": 2}, "of 1 GPUs, not of 2"),
    ],
)
def test_a_calibration_of_another_engine_is_refused(wanted, difference):
    with pytest.raises(InputError, match=difference) as error:
        check(calibration(), **wanted)

    assert "chunkscope verify" in error.value.hint


def test_a_calibration_is_labelled_with_what_it_was_measured_on():
    cost = calibrated_cost(calibration())

    assert cost.source is CostSource.CALIBRATED
    assert (cost.gpu, cost.model, cost.samples) == ("NVIDIA H200", "llama-3.1-8b", 200)


def test_without_a_calibration_it_is_a_roofline():
    cost = roofline_cost(find_model("llama-3.1-8b"), find_gpu("h200"), PRIOR)

    assert (cost.source, cost.step) == (CostSource.ROOFLINE, PRIOR)


@pytest.mark.parametrize(
    ("model", "gpu"), [(None, None), ("llama-3.1-8b", "80GiB")], ids=["none", "slow"]
)
def test_without_a_gpus_speed_step_times_are_missing(model, gpu):
    with pytest.raises(MissingError, match="not known"):
        roofline_cost(model and find_model(model), gpu and find_gpu(gpu), None)


def test_without_scipy_a_calibration_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "chunkscope.hardware.step_fit")
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)

    with pytest.raises(MissingError) as error:
        calibrated_cost(calibration())

    assert "pip install" in error.value.hint
