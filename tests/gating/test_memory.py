"""[gate.memory]: predicted and measured figures, each labelled and each against its own limit."""

import pytest

from chunkscope.errors import InputError
from chunkscope.verification.result import WorkerMemory
from chunkscope.vllm.enums import Task
from tests.gating.helpers import out_of_memory, run

PREDICTED = "[memory.predicted]\n"
MEASURED = "[memory.measured]\n"


def test_the_predicted_peaks_are_the_plans(place):
    plan = place.save_plan(place.save_profile())
    lines = {line.name: line.gib for line in plan.memory.lines}
    step = lines["activation"] + lines["sampler"]
    # vLLM 0.24 captures CUDA graphs of this model outside its budget.
    device = plan.memory.requested_gib + lines["cuda_graphs"]
    for key, peak in (("activation_peak", step), ("device_peak", device)):
        mib = peak * 1024
        kept = place.one(f'{PREDICTED}{key} = "{mib + 0.001:.6f}MiB"')
        assert kept.kept
        assert kept.found.endswith("(predicted)")
        assert not place.one(f'{PREDICTED}{key} = "{mib - 0.001:.6f}MiB"').kept


def test_the_logits_of_a_likelihood_eval_are_part_of_the_predicted_peak(place):
    found = place.save_profile(data=[3000] * 20)
    plan = place.save_plan(found, task=Task.LOGLIKELIHOOD, model="qwen2.5-7b")
    peak = place.one(f'{PREDICTED}activation_peak = "1MiB"').found_value
    assert plan.memory.unprofiled_gib > 0
    assert peak >= plan.memory.line("activation").gib + plan.memory.unprofiled_gib


def test_the_predicted_kv_cache_holds_so_many_requests(place):
    plan = place.save_plan(place.save_profile())
    held = plan.capacity.p95
    assert place.one(f"{PREDICTED}kv_requests_of_p95 = {held}").kept
    broken = place.one(f"{PREDICTED}kv_requests_of_p95 = {held + 1}")
    assert (broken.kept, broken.subject) == (False, "plan")


@pytest.mark.parametrize("key", ["activation_peak", "device_peak"])
def test_a_plan_without_a_model_predicts_nothing_and_breaks_the_promise(place, key):
    place.save_plan(place.save_profile(), model=None, gpu=None)
    broken = place.one(f'{PREDICTED}{key} = "9TiB"')
    assert (broken.kept, broken.found) == (False, "not predicted")
    assert "without a model" in broken.note
    assert not place.one(f"{PREDICTED}kv_requests_of_p95 = 1").kept


@pytest.mark.parametrize(("key", "peak"), [("activation_peak", 0.84), ("device_peak", 129)])
def test_the_measured_peaks_are_the_runs(place, key, peak):
    place.save_verification()
    kept = place.one(f'{MEASURED}{key} = "{peak}GiB"')
    assert kept.kept
    assert kept.found == f"{peak} GiB (measured)"
    assert not place.one(f'{MEASURED}{key} = "{peak - 0.01}GiB"').kept


def test_the_measured_kv_cache_is_counted_in_whole_blocks(place):
    place.save_profile(data=[784])  # and 256 for the output: 1040 tokens are 65 blocks of 16
    place.save_verification(run(kv_cache_tokens=65 * 16 * 10))
    assert place.one(f"{MEASURED}kv_requests_of_p95 = 10").kept
    assert not place.one(f"{MEASURED}kv_requests_of_p95 = 11").kept
    place.save_verification(run(kv_cache_tokens=65 * 16 * 10 - 1))
    assert not place.one(f"{MEASURED}kv_requests_of_p95 = 10").kept


@pytest.mark.parametrize(
    "impossible",
    [
        {"workers": (WorkerMemory(rank=0, activation_peak_gib=-1.0, device_peak_gib=129.0),)},
        {"workers": (WorkerMemory(rank=0, activation_peak_gib=0.8, device_peak_gib=0.0),)},
        {"workers": (WorkerMemory(rank=0, activation_peak_gib=0.8, device_peak_gib=140.0),)},
        {"engine": {"num_gpu_blocks": 1000, "block_size": 16}, "kv_cache_tokens": 16_001},
        {"engine": {"num_gpu_blocks": 1000, "block_size": 16}, "kv_cache_tokens": -16},
    ],
)
def test_what_no_gpu_shows_is_no_evidence(place, impossible):
    place.save_profile(data=[784])
    place.save_verification(run(**impossible))
    budget = f'{MEASURED}activation_peak = "9TiB"\ndevice_peak = "9TiB"\nkv_requests_of_p95 = 1'
    verdicts = place.gate(budget).verdicts
    assert [v.kept for v in verdicts] == [False] * 3
    assert all("contradicts itself" in v.note for v in verdicts)


def test_what_was_never_measured_breaks_its_promise(place):
    place.save_profile(data=[784])
    place.save_verification(run(workers=(), kv_cache_tokens=None))
    budget = f'{MEASURED}activation_peak = "9TiB"\ndevice_peak = "9TiB"\nkv_requests_of_p95 = 1'
    verdicts = place.gate(budget).verdicts
    assert [(v.kept, v.found) for v in verdicts] == [(False, "not measured")] * 3


def test_a_run_that_ran_out_of_memory_breaks_every_promise_and_says_why(place):
    place.save_verification(out_of_memory())
    broken = place.one(f'{MEASURED}device_peak = "9TiB"')
    assert not broken.kept
    assert "out_of_memory: out of memory at 32768 tokens" in broken.note


def test_another_row_can_be_named(place):
    place.save_verification(run("default"), out_of_memory("off"))
    assert place.one(
        '[memory]\nsetting = "default"\n[memory.measured]\ndevice_peak = "129GiB"'
    ).kept
    broken = place.one('[memory]\nsetting = "plam"\n[memory.measured]\ndevice_peak = "129GiB"')
    assert "no run is called plam; there are: default, off" in broken.note


@pytest.mark.parametrize(
    ("budget", "missing"),
    [
        (f'{PREDICTED}device_peak = "1GiB"', "plan.json"),
        (f'{MEASURED}device_peak = "1GiB"', "verify.json"),
    ],
)
def test_a_missing_artefact_is_an_error(place, budget, missing):
    place.save_profile()
    with pytest.raises(InputError, match=missing) as error:
        place.gate(budget)
    assert error.value.exit_code == 3
