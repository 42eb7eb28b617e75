"""One way from a plan to a simulated run: recommend, simulate, verify and gate
agree."""

from dataclasses import replace

import pytest

from chunkscope.errors import InputError
from chunkscope.models import MODELS
from chunkscope.planning.drawing import draw
from chunkscope.planning.plan import Plan
from chunkscope.planning.predict import SimulateOptions, predict
from chunkscope.planning.simulator import Simulator
from chunkscope.verification.result import Machine
from chunkscope.verification.verify import with_prediction
from chunkscope.vllm.settings import Settings
from tests import build
from tests.build import MIXED, SHORT, advised, plan, profile

DATA = profile(data=MIXED)


def on_enough_gpus(model: str) -> Plan:
    for gpu, tp in (("b200", 1), ("b200", 4), ("b200", 8), ("b300", 8)):
        try:
            return advised(
                model=model, gpu=gpu, tp=tp, vllm_version="0.32", max_output=8
            )
        except InputError:
            continue
    raise AssertionError(f"{model} fits no machine")


@pytest.mark.parametrize("model", MODELS)
def test_recommend_simulate_verify_and_the_gate_give_the_same_figures_for_every_model(
    model,
):
    plan = on_enough_gpus(model)
    runs = predict(plan, DATA, SimulateOptions()).runs
    named = {name: run for run in runs for name in (run.setting, *run.same_as)}
    assert plan.run is not None
    assert named["plan"].figures == plan.run.figures
    assert named["default"].figures == plan.default_run.figures
    workload = draw(
        plan.request, plan.deployment, DATA.datasets, plan.effective.max_model_len
    )
    gate = Simulator(request=plan.request, engine=plan.deployment, workload=workload)
    assert gate.attempt(plan.effective).figures == plan.run.figures
    run = build.run("plan", settings=plan.settings, engine=plan.effective.given())
    machine = Machine(device="cuda", gpu=plan.gpu.title, vllm="0.32.0")
    sent = build.verification(machine=machine, workload=workload, slo=plan.request.slo)
    measured = with_prediction(run, plan.model, sent)
    assert measured.predicted_figures == plan.run.figures


@pytest.mark.parametrize(
    "options",
    [
        {"max_output": 40},
        {"task": "loglikelihood"},
        {"shared_prefix": 32},
        {"slo": "ttft_p95=20s", "arrivals": "8/s", "requests": 60},
        {"concurrency": 8},
        {"tp": 2, "kv_cache_dtype": "fp8"},
        {"max_model_len": 8_192, "entry": "llm"},
    ],
    ids=str,
)
def test_what_was_asked_of_the_plan_holds_for_its_simulation(options):
    plan = advised(MIXED, **options)
    simulation = predict(plan, DATA, SimulateOptions())
    assert simulation.runs[0].figures == plan.run.figures
    assert simulation.runs[0].slo == plan.run.slo


def test_a_setting_is_simulated_once_and_what_cannot_run_is_none():
    plan = advised(SHORT)
    workload = draw(plan.request, plan.deployment, DATA.datasets, 16_384)
    simulator = Simulator(
        request=plan.request, engine=plan.deployment, workload=workload
    )
    base = Settings(max_model_len=16_384)
    assert simulator.attempt(base) is simulator.attempt(base)
    assert (
        simulator.attempt(replace(base, max_num_batched_tokens=64, max_num_seqs=128))
        is None
    )
    assert simulator.attempt(replace(base, gpu_memory_utilization=0.1)) is None, (
        "no KV cache"
    )


def test_a_measured_kv_cache_or_another_setting_can_be_asked_for():
    asked = SimulateOptions(
        asked=Settings(max_num_batched_tokens=256), kv_cache_tokens=50_000
    )
    run = predict(advised(SHORT), profile(data=SHORT), asked).runs[0]
    assert (run.settings.step_tokens, run.pool.tokens) == (256, 50_000)
    assert (run.setting, run.settings.max_num_seqs) == ("asked", 256)


def test_the_client_keeps_as_few_in_flight_as_are_as_fast_as_more():
    """One prompt of 60,000 tokens fills every step; of short ones hundreds do."""
    long, short = advised([60_000] * 20, max_output=8), advised([100] * 800)
    assert 1 <= long.requests_in_flight < long.run.most_running
    assert 100 < short.requests_in_flight <= short.run.most_running
    assert plan(SHORT, gpu=None).requests_in_flight is None
