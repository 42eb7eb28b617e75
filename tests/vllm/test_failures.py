"""What vLLM's log says, in the words of each version."""

import pytest

from chunkscope.vllm.log.failures import Status, cause_in, doing_in


@pytest.mark.parametrize(
    ("log", "text"),
    [
        pytest.param(
            "(EngineCore pid=9) ERROR [core.py:2] Traceback (most recent call last):\n"
            "(EngineCore pid=9) ERROR [core.py:2] AssertionError: Chunked prefill is required\n"
            "RuntimeError: Engine core initialization failed. See root cause above.",
            "AssertionError: Chunked prefill is required",
            id="the cause and not its consequence",
        ),
        pytest.param(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig\n"
            "  Value error, max_num_batched_tokens (16) must be greater than max_num_seqs (32). "
            "[type=value_error, input_value=ArgsKwargs((), {'runner_t...}), input_type=x]\n",
            "max_num_batched_tokens (16) must be greater than max_num_seqs (32).",
            id="in vLLM's own sentence",
        ),
    ],
)
def test_a_refusal_is_told_by_its_cause(log: str, text: str) -> None:
    assert cause_in(log, started=False) == (Status.REFUSED, text)


def test_an_assertion_in_the_middle_is_no_refusal_and_a_silent_log_says_nothing() -> None:
    assert cause_in("AssertionError: odd", started=True)[0] is Status.DIED
    assert cause_in("INFO 11-15 [core.py:1] GPU KV cache size: 8 tokens", started=True) is None


@pytest.mark.parametrize(
    ("line", "doing"),
    [
        ("[gpu_model_runner.py:4959] Starting to load model /m...", "loading weights"),
        ("Loading safetensors checkpoint shards:  50% Completed | 2/4", "loading weights"),
        ("[backends.py:1148] Dynamo bytecode transform time: 6.52 s", "compiling"),
        ("DeepGEMM warmup:  12%|#         | 120/1000 [00:10<01:10]", "building kernels"),
        ("[kernel_warmup.py:176] JIT kernel warmup starting.", "building kernels"),
        ("[autotuner.py:262] flashinfer.jit: [Autotuner]: Autotuning process starts ...",
         "autotuning kernels"),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   2%|1 | 1/51",
         "capturing CUDA graphs"),
        ("Enforce eager set, disabling torch.compile and CUDAGraphs.", None),
        ("Skipping FlashInfer autotune because it is disabled.", None),
        ("Graph capturing finished in 12 secs, took 0.46 GiB", None),
    ],
)  # fmt: skip
def test_a_line_tells_what_an_engine_is_doing(line, doing) -> None:
    assert doing_in(line) == doing
    assert doing_in(f"{line}\nINFO something else\n") == doing, "until another one tells"


def test_a_real_start_is_followed(shared) -> None:
    """As an H200 logged it: every phase in its turn."""
    text = (shared / "data/vllm_logs/vllm-0.24.0-h200-serve-bench.log").read_text()
    seen = dict.fromkeys(filter(None, map(doing_in, text.splitlines())))
    assert list(seen) == ["loading weights", "compiling", "capturing CUDA graphs"]
