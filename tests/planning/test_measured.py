"""What an engine's log measured goes before what the memory model predicts."""

from pathlib import Path

import pytest

from chunkscope.artefacts.note import Label
from chunkscope.errors import InputError, UsageError
from chunkscope.planning.plan import Plan
from chunkscope.planning.predict import SimulateOptions, predict
from chunkscope.vllm.settings import Settings
from tests.build import FITTING, LONG, advised, profile
from tests.vllm.log_lines import stamped

CONTEXT = 16_384
START = (
    "Initializing a V1 LLM engine (v{version}) with config: "
    "model='models/llama-3.1-8b', "
    "dtype=torch.bfloat16, max_seq_len=16384, tensor_parallel_size=1, "
    "data_parallel_size=1, "
    "enforce_eager=False, kv_cache_dtype=auto, device_config=cuda, "
    "enable_prefix_caching=True, "
    "enable_chunked_prefill=True"
)
# As one H200 said it (vLLM 0.24.0), but for the arguments.
FITTED = (
    "Model loading took 15.0 GiB and 1.607526 seconds",
    "Available KV cache memory: 112.28 GiB",
    "GPU KV cache size: 919,824 tokens",
    "Graph capturing finished in 5 secs, took 0.98 GiB",
)
ARGS = "non-default args: {'model': 'models/llama-3.1-8b', 'max_model_len': 16384"
OTHER_GPU = (
    "Free memory on device (78.1/79.2 GiB) on startup. Desired GPU memory "
    "utilization is (0.9, "
    "71.3 GiB). Actual usage is 15.0 GiB for weight, 1.2 GiB for peak activation. "
)
BUDGET = "Chunked prefill is enabled with max_num_batched_tokens=8192."


def written(folder: Path, *lines: str, args: str = "", version: str = "0.24.0") -> Path:
    start = START.format(version=version)
    path = folder / "vllm.log"
    said = (f"{ARGS}{args}}}", BUDGET, start, *lines)
    path.write_text("".join(f"{stamped(line)}\n" for line in said), encoding="utf-8")
    return path


def planned(log: Path, lengths=FITTING, **options) -> Plan:
    return advised(lengths, log=log, max_model_len=CONTEXT, **options)


def test_the_kv_cache_is_the_logs_at_its_own_setting(tmp_path: Path) -> None:
    plan = planned(written(tmp_path, *FITTED))
    assert plan.memory is not None
    assert plan.memory.kv_cache_tokens == 919_824
    assert plan.memory.kv_cache_label is Label.MEASURED
    assert plan.memory.line("correction").label is Label.MEASURED
    spent = sum(line.gib for line in plan.memory.lines if line.profiled)
    assert spent + plan.memory.kv_cache_gib == pytest.approx(
        plan.memory.requested_gib, abs=1e-6
    )
    (note,) = [note for note in plan.notes if note.code == "measured_in_log"]
    assert note.values["log"] == "vllm.log"


def test_a_size_that_was_given_is_no_measurement(tmp_path: Path) -> None:
    bill = planned(
        written(tmp_path, *FITTED, args=", 'kv_cache_memory_bytes': 1073741824")
    ).memory
    assert bill.kv_cache_label is None
    assert bill.kv_cache_tokens != 919_824


def test_elsewhere_the_model_is_off_by_as_much(tmp_path: Path) -> None:
    there = planned(written(tmp_path, *FITTED)).deployment
    predicting = advised(FITTING, max_model_len=CONTEXT).deployment

    def tokens(deployment, budget: int) -> int:
        bill = deployment.memory(
            Settings(max_num_batched_tokens=budget, max_model_len=CONTEXT)
        )
        assert bill is not None
        assert budget == 8_192 or bill.kv_cache_label is None
        return bill.kv_cache_tokens

    off = {
        size: tokens(predicting, size) - tokens(there, size)
        for size in (2_048, 8_192, 32_768)
    }
    assert off[8_192] != 0
    assert max(off.values()) - min(off.values()) <= 16  # a block


def test_a_start_that_failed_before_the_kv_cache_measured_nothing(
    tmp_path: Path,
) -> None:
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.04 GiB."
    with pytest.raises(InputError, match="how large the KV cache is"):
        planned(written(tmp_path, FITTED[0], oom))


def test_the_last_start_that_measured_counts(tmp_path: Path) -> None:
    failed = written(tmp_path, FITTED[0], "Killed").read_text(encoding="utf-8")
    log = written(tmp_path, *FITTED)
    with log.open("a", encoding="utf-8") as file:
        file.write(failed)
    assert planned(log).memory.kv_cache_tokens == 919_824


def test_what_would_have_fitted_is_a_measurement_too(tmp_path: Path) -> None:
    said = (
        "To serve at least one request with the model's max seq len (16384), "
        "(2.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (1.00 GiB). "
        "Based on the "
        "available memory, the estimated maximum model length is 8192."
    )
    plan = advised([100] * 50, log=written(tmp_path, said))
    memory = plan.deployment.memory(Settings(), longest=100)
    assert memory is not None
    assert memory.kv_cache_tokens == 8_192
    assert 7_000 < plan.settings.max_model_len < 8_192, "with some room"
    with pytest.raises(InputError, match="14,056"):
        advised(LONG, log=written(tmp_path, said), max_model_len=CONTEXT)


def test_the_plan_keeps_it_and_the_simulation_uses_it(tmp_path: Path) -> None:
    plan = planned(written(tmp_path, *FITTED))
    plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again.deployment.measured == plan.deployment.measured
    found = predict(again, profile(data=FITTING), SimulateOptions(requests=20))
    assert found.runs[0].pool.tokens == 919_824


def test_the_log_names_version_and_model(tmp_path: Path) -> None:
    log = written(tmp_path, *FITTED, version="0.20.1")
    plan = planned(log, model=None, vllm_version=None)
    assert (plan.deployment.release.version, plan.model.name) == (
        (0, 20, 1),
        "llama-3.1-8b",
    )


@pytest.mark.parametrize(
    ("old", "new", "options", "said"),
    [
        ("(v0.24.0)", "(v0.28.0)", {}, "0.28.0.*0.24.0"),
        ("15.0 GiB", "29.0 GiB", {}, "29.0 GiB"),
        ("", "", {"model": "qwen3-8b"}, "llama-3.1-8b"),  # which weighs as much
        ("tensor_parallel_size=1", "tensor_parallel_size=2", {}, "--tp 2"),
        ("device_config=cuda", "device_config=cpu", {}, "cpu"),
        ("kv_cache_dtype=auto", "kv_cache_dtype=fp8", {}, "kv_cache_dtype fp8"),
        ("", "", {"gpu": None}, "--log"),
        ("models/llama-3.1-8b", "models/mine", {"model": None}, "mine"),
        ("", "", {"gpu": "a100-40gb"}, r"127\.3 GiB.*A100"),
        ("Graph capturing", OTHER_GPU, {}, r"79\.2 GiB.*H200.*139\.8"),
    ],
)
def test_a_log_of_something_else_is_refused(tmp_path, old, new, options, said) -> None:
    log = written(tmp_path, *FITTED)
    log.write_text(log.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        planned(log, **options)


def test_a_log_without_the_start_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(stamped(FITTED[2]), encoding="utf-8")
    with pytest.raises(InputError, match=r"vllm\.log"):
        planned(path)
    with pytest.raises(InputError, match=r"vllm\.log"):
        planned(written(tmp_path))
