"""Where step times come from: fitted, scaled or a roofline, and always labelled."""

import dataclasses
import random

import pytest

from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.calibration import Calibration, StepSamples, together
from chunkscope.hardware.cost_model import CostSource, CostTarget, cost_model
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.step_fit import fit_steps
from chunkscope.hardware.step_time import (
    ASSUMED_HOST,
    NO_WINDOW,
    Host,
    StepModel,
    model_work,
    roofline,
)
from chunkscope.models import find_model
from chunkscope.verification.calibrate import COLUMNS, bursts_for, joined, timed_steps

TRUE = StepModel(
    fixed_s=5e-3,
    per_token_s=18e-6,
    per_prefill_pair_s=1.1e-9,
    per_decode_context_s=38e-9,
    per_request_s=2e-6,
    free_tokens=128,
    origin="made up",
)


def samples(
    true: StepModel = TRUE, *, count: int = 600, noise: float = 0.02, longest: int = 4_000
) -> StepSamples:
    """Steps of a mixed workload, each a little off; one in fifty takes thrice as long."""
    chance = random.Random(1)
    rows = []
    for _ in range(count):
        decodes = chance.choice([0, 1, 8, 64, 256])
        chunk = chance.choice([0, 0, 200, 2_000, 8_000]) or (0 if decodes else 64)
        context = chance.randint(0, 20_000)
        pairs = chunk * context + chunk * (chunk + 1) // 2
        held = decodes * chance.randint(50, longest)
        requests = decodes + (1 if chunk else 0)
        exact = true.of(chunk + decodes, pairs, held, requests, int(chunk > 0))
        hiccup = 3 if noise and chance.random() < 0.02 else 1
        took = exact * chance.gauss(1, noise) * hiccup
        rows.append(("run", chunk, pairs, int(chunk > 0), decodes, held, took))
    columns = zip(*rows, strict=True)
    names = [field.name for field in dataclasses.fields(StepSamples)]
    return StepSamples(**dict(zip(names, map(tuple, columns), strict=True)))


def calibration(model: str = "llama-3.1-8b", gpu: str = "h200", **more: object) -> Calibration:
    facts = {
        "gpu": find_gpu(gpu).title,
        "gpu_memory_gib": 139.8,
        "device": "cuda",
        "model": model_work(find_model(model)),
        "tp": 1,
        "vllm": "0.28.0",
        "torch": "2.11.0",
        "eager": False,
        "async_scheduling": False,
        "method": "made up",
        "steps": samples(),
    }
    return Calibration(**{**facts, **more})


def target(model: str = "llama-3.1-8b", gpu: str = "h200", vllm: str = "0.28.0") -> CostTarget:
    card = find_gpu(gpu)
    return CostTarget(work=model_work(find_model(model)), gpu=card, tp=1, vllm=vllm)


# -- fitting -----------------------------------------------------------------------------------


def test_exact_steps_give_their_model_back():
    fit = fit_steps(samples(noise=0), "test")
    for name in ("fixed_s", "per_token_s", "per_prefill_pair_s", "per_decode_context_s"):
        assert getattr(fit.step, name) == pytest.approx(getattr(TRUE, name), rel=1e-3), name
    assert fit.step.free_tokens == 128
    assert fit.error < 1e-6


def test_noise_and_hiccups_hardly_move_the_fit():
    fit = fit_steps(samples(), "test")
    assert fit.step.per_token_s == pytest.approx(TRUE.per_token_s, rel=0.03)
    assert fit.step.fixed_s == pytest.approx(TRUE.fixed_s, rel=0.1)
    assert fit.error < 0.02
    for tokens, pairs, held in ((64, 0, 100_000), (8_192, 8_192 * 10_000, 0)):
        assert fit.step.of(tokens, pairs, held) == pytest.approx(
            TRUE.of(tokens, pairs, held), rel=0.05
        )


def test_no_coefficient_is_ever_negative():
    """Durations that fall with the context: the best that can be said is that it costs nothing."""
    steps = samples(noise=0)
    falling = tuple(1.0 - 1e-9 * pairs / 100 for pairs in steps.prefill_pairs)
    fit = fit_steps(dataclasses.replace(steps, duration_s=falling), "test")
    assert fit.step.per_prefill_pair_s == 0
    assert min(fit.step.fixed_s, fit.step.per_token_s, fit.step.per_decode_context_s) >= 0


def test_too_few_steps_are_an_input_error():
    with pytest.raises(InputError, match="too few"):
        fit_steps(samples(count=5), "test")


def test_steps_that_only_begin_a_run_are_too_few_as_well():
    rows = samples(count=1)
    names = [field.name for field in dataclasses.fields(StepSamples)]
    reading = {"prefill_tokens": 64, "prefill_requests": 1, "decode_requests": 0}
    steps = StepSamples(
        **{
            n: tuple(
                f"run {k}" if n == "setting" else reading.get(n, getattr(rows, n)[0])
                for k in range(30)
            )
            for n in names
        }
    )
    with pytest.raises(InputError, match="too few"):
        fit_steps(steps, "test", prior=PRIOR, host=ASSUMED_HOST)


# -- host and GPU ------------------------------------------------------------------------------

WORK, H200 = model_work(find_model("llama-3.1-8b")), find_gpu("h200")
PRIOR = roofline(WORK, H200)
BESIDE = dataclasses.replace(
    TRUE,
    per_request_s=0.0,
    host=Host(fixed_s=1e-3, per_request_s=60e-6, per_prompt_s=0.1e-3, ungraphed_s=12e-3),
)


@pytest.mark.parametrize("noise", [0, 0.05])
def test_both_the_gpu_and_the_host_are_found_in_steps_that_show_only_the_slower(noise):
    steps = samples(BESIDE, count=4_000, noise=noise, longest=500)
    fit = fit_steps(steps, "test", prior=PRIOR, host=ASSUMED_HOST)
    near = 0.05 if not noise else 0.10
    for tokens, pairs, held in ((8_192, 8_192 * 10_000, 0), (64, 0, 150_000), (256, 0, 20_000)):
        found, true = (one.gpu_s(tokens, pairs, held, 1) for one in (fit.step, BESIDE))
        assert found == pytest.approx(true, rel=near)
    assert fit.step.host.per_request_s == pytest.approx(60e-6, rel=near)
    assert 0 < fit.host_steps < len(steps)


def test_what_the_steps_do_not_show_is_assumed_and_named():
    """One long prompt at a time: nobody waits for the host."""
    steps = dataclasses.replace(samples(BESIDE, noise=0))
    lone = [n for n, many in enumerate(steps.decode_requests) if many < 2]
    names = [field.name for field in dataclasses.fields(StepSamples)]
    alone = StepSamples(**{n: tuple(getattr(steps, n)[k] for k in lone) for n in names})
    fit = fit_steps(alone, "test", prior=PRIOR, host=ASSUMED_HOST)
    assert fit.step.host.per_request_s == pytest.approx(ASSUMED_HOST.per_request_s, rel=0.1)
    assert "host.per_request_s" in fit.assumed
    assert "per_token_s" not in fit.assumed


@pytest.mark.parametrize("count", [20, 25, 60])
@pytest.mark.parametrize("took", [1e-6, 0.01, 900.0])
def test_few_or_odd_steps_still_give_a_sane_model(count, took):
    steps = dataclasses.replace(samples(count=count), duration_s=(took,) * count)
    for more in ({}, {"host": ASSUMED_HOST}, {"host": ASSUMED_HOST, "prior": PRIOR}):
        step = fit_steps(steps, "test", **more).step
        plain = dataclasses.asdict(step)
        host = plain.pop("host")
        numbers = [v for v in (*plain.values(), *host.values()) if isinstance(v, float)]
        assert all(0 <= number < 1e4 for number in numbers)
        assert 0 < step.of(100, 5_000, 1_000, 10, 1) < 1e5


def test_only_an_engine_that_schedules_ahead_hides_its_host():
    assert cost_model(None, calibration()).step.host == Host()
    ahead = cost_model(None, calibration(async_scheduling=True))
    assert ahead.step.host != Host()
    assert cost_model(None, calibration(async_scheduling=True, device="cpu")).step.host == Host()


def test_several_calibrations_of_one_engine_are_fitted_together():
    both = together([calibration(), calibration()])
    assert len(both.steps) == 1_200
    assert {name[0] for name in both.steps.setting} == {"1", "2"}
    assert together([calibration()]).steps == calibration().steps
    with pytest.raises(InputError, match=r"vllm is 0\.28\.0 in one, 0\.24\.0"):
        together([calibration(), calibration(vllm="0.24.0")])
    with pytest.raises(InputError, match=r"model is llama-3\.1-8b"):
        together([calibration(), calibration("qwen2.5-7b")])


# -- which source ------------------------------------------------------------------------------


def test_a_calibration_of_the_same_engine_is_used_as_it_is():
    cost = cost_model(target(), calibration())
    assert cost.source is CostSource.CALIBRATED
    assert not cost.warnings
    assert (cost.gpu, cost.model, cost.vllm) == ("NVIDIA H200", "llama-3.1-8b", "0.28.0")
    assert cost.samples == 600


@pytest.mark.parametrize("vllm", ["0.28.1", "0.28.0+cpu"])
def test_a_patch_release_is_the_same_engine(vllm):
    assert cost_model(target(), calibration(vllm=vllm)).source is CostSource.CALIBRATED


@pytest.mark.parametrize(
    ("made_for", "said"),
    [
        pytest.param({"model": "qwen2.5-7b"}, "of llama-3.1-8b, not qwen2.5-7b", id="the model"),
        pytest.param({"gpu": "a100"}, "of NVIDIA H200, not NVIDIA A100", id="the GPU"),
        pytest.param({"vllm": "0.32.0"}, "of vLLM 0.28.0, not 0.32.0", id="the version"),
    ],
)
def test_one_of_another_engine_is_scaled_and_says_so(made_for, said):
    cost = cost_model(target(**made_for), calibration())
    assert cost.source is CostSource.SCALED
    assert said in cost.warnings[0]
    assert cost.step.origin.startswith("scaled from")


def test_scaling_follows_flops_bytes_and_bandwidth():
    here = cost_model(target(), calibration()).step
    slower = cost_model(target(gpu="a100"), calibration()).step
    assert slower.per_token_s / here.per_token_s == pytest.approx(989 / 312)
    assert slower.per_decode_context_s / here.per_decode_context_s == pytest.approx(4800 / 2039)
    assert slower.fixed_s > 1.9 * here.fixed_s
    larger = cost_model(target("llama-3.1-70b"), calibration()).step
    assert 8 < larger.per_token_s / here.per_token_s < 10


def test_a_gpu_of_unknown_speed_cannot_be_scaled_from():
    with pytest.raises(InputError, match="cannot be scaled"):
        cost_model(target(), dataclasses.replace(calibration(), gpu="cpu"))


def test_without_a_plan_a_calibration_stands_for_itself():
    assert cost_model(None, calibration()).source is CostSource.CALIBRATED


def test_without_a_calibration_it_is_a_roofline():
    cost = cost_model(target(), None)
    assert cost.source is CostSource.ROOFLINE
    assert "not measured" in cost.warnings[0]


def test_with_neither_something_is_missing():
    with pytest.raises(MissingError, match="how long a step takes"):
        cost_model(None, None)
    unknown = dataclasses.replace(target(), gpu=find_gpu(None, memory="80GiB"))
    with pytest.raises(MissingError, match="not known"):
        cost_model(unknown, None)


# -- the file ----------------------------------------------------------------------------------


def test_a_calibration_comes_back_from_its_file(tmp_path):
    made = calibration(version="0.1.0")
    made.save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path / "calibration.json") == made


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"tp": 0}, "tp", id="no GPU"),
        pytest.param({"extra": 1}, "extra", id="a field nobody knows"),
        pytest.param({"schema": "chunkscope/plan/2"}, "is a plan file", id="another artefact"),
        pytest.param({"schema": "chunkscope/calibration/2"}, "schema", id="another version"),
        pytest.param({"model": None}, "model", id="no model"),
    ],
)
def test_a_damaged_calibration_is_an_input_error(tmp_path, change, said):
    import json

    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({**calibration().to_json(), **change}))
    with pytest.raises(InputError, match=said):
        Calibration.load(path)


def test_columns_that_differ_in_length_are_damage():
    document = calibration().to_json()
    document["steps"]["duration_s"].pop()
    with pytest.raises(InputError, match="differ in length"):
        Calibration.from_json(document)
    document["steps"]["duration_s"].append(float("nan"))
    with pytest.raises(InputError, match="duration_s"):
        Calibration.from_json(document)


def test_very_many_steps_are_thinned():
    many = {name: list(range(1, 5_001)) for name in COLUMNS}
    kept = [row[0] for row in timed_steps([many, many])]
    assert 2_000 < len(kept) <= 3_000
    assert kept[0] == 1
    assert kept[-1] > 4_990


def test_bursts_fit_into_any_context():
    for longest in (2, 16, 100, 512, 4_096, 131_072):
        bursts = bursts_for(longest)
        assert all(p >= 1 and o >= 1 and p + o <= longest for _, p, o in bursts)
    assert max(p for _, p, _ in bursts_for(131_072)) == 32_768


def test_steps_of_rows_that_were_kept_join_those_measured_later():
    one = calibration()
    both = joined(one, calibration())
    assert both.steps.duration_s == one.steps.duration_s * 2
    other = calibration(vllm="0.24.0")
    assert joined(other, one) is one


def test_context_that_neighbours_share_counts_as_much_as_it_takes():
    repeat = {name: [1, 2] for name in COLUMNS} | {
        "decode_context_tokens": [1_000, 2_000],
        "duration_s": [0.01, 0.02],
    }
    rows = timed_steps([repeat], context_weight=0.62)
    assert [row[COLUMNS.index("decode_context_tokens")] for row in rows] == [620, 1_240]
    assert [row[COLUMNS.index("duration_s")] for row in rows] == [0.01, 0.02]


def test_steps_that_were_recorded_without_windows_are_simulated_without():
    """A probe counts all that is before a token: a window must not be taken off once more."""
    work = model_work(find_model("gemma-2-9b"))
    assert work.other.reach.window == 4_096
    fit = fit_steps(calibration().steps, "test", work=work)
    assert fit.step.reach == NO_WINDOW
