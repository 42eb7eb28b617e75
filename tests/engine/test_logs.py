"""What vLLM's log says, in the words of each version."""

import pytest

from chunkscope.engine.logs import Status, cause_in, is_compiling, sizes_in

V24 = """
(EngineCore pid=1) INFO 11-15 05:48:35 [gpu_model_runner.py:5255] Model loading took 3.02 GiB memory and 0.677729 seconds
(EngineCore pid=1) INFO 11-15 05:49:07 [gpu_worker.py:508] Available KV cache memory: 122.81 GiB
(EngineCore pid=1) INFO 11-15 05:49:07 [kv_cache_utils.py:2146] GPU KV cache size: 4,599,264 tokens
(EngineCore pid=1) INFO 11-15 05:49:07 [kv_cache_utils.py:2147] Maximum concurrency for 2,560 tokens per request: 1796.59x
(EngineCore pid=1) INFO 11-15 05:49:13 [gpu_model_runner.py:6656] Graph capturing finished in 6 secs, took 0.42 GiB
"""  # noqa: E501
V28 = "[kv_cache_utils.py:1869] GPU KV cache size: 262,144 tokens, Maximum concurrency for 4,096 tokens per request: 64.00x"  # noqa: E501
V10 = "Model loading took 14.9889 GiB and 1.234567 seconds"


def test_sizes_of_0_24_stand_on_lines_of_their_own() -> None:
    found = sizes_in(V24)
    assert (found.kv_cache_tokens, found.kv_concurrency) == (4_599_264, 1796.59)
    assert (found.weights_gib, found.kv_cache_gib, found.cuda_graphs_gib) == (3.02, 122.81, 0.42)


def test_sizes_of_0_28_share_a_line() -> None:
    found = sizes_in(V28)
    assert (found.kv_cache_tokens, found.kv_concurrency) == (262_144, 64.0)
    assert found.weights_gib is None


def test_weights_of_0_10_have_four_decimals() -> None:
    assert sizes_in(V10).weights_gib == 14.9889


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utiliz",
        "ValueError: To serve at least one request with the model's max seq len (32768), (4.00 GiB "
        "KV cache is needed, which is larger than the available KV cache memory (1.00 GiB).",
        "ValueError: Free memory on device (3.1/79.1 GiB) on startup is less than desired GPU "
        "memory utilization (0.9, 71.2 GiB).",
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to",
    ],
)
def test_every_way_to_run_out_of_memory_is_one(line) -> None:
    log = f"(EngineCore pid=1) ERROR 11-15 [core.py:1] {line}\nRuntimeError: Engine core init"
    found = cause_in(log, started=False)
    assert found.status is Status.OUT_OF_MEMORY
    assert found.text.partition(" ")[0] in line


def test_the_cause_is_named_and_not_its_consequence() -> None:
    log = (
        "(EngineCore pid=9) ERROR [core.py:2] Traceback (most recent call last):\n"
        "(EngineCore pid=9) ERROR [core.py:2] AssertionError: Chunked prefill is required\n"
        "RuntimeError: Engine core initialization failed. See root cause above."
    )
    found = cause_in(log, started=False)
    assert found.status is Status.REFUSED
    assert found.text == "AssertionError: Chunked prefill is required"


def test_a_refused_argument_is_told_in_vllms_own_sentence() -> None:
    log = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig\n"
        "  Value error, max_num_batched_tokens (16) must be greater than or equal to max_num_seqs "
        "(32). [type=value_error, input_value=ArgsKwargs((), {'runner_t...}), input_type=x]\n"
    )
    found = cause_in(log, started=False)
    assert found.status is Status.REFUSED
    assert found.text.endswith("equal to max_num_seqs (32).")


def test_an_assertion_in_the_middle_is_no_refusal() -> None:
    assert cause_in("AssertionError: odd", started=True).status is Status.DIED


def test_a_silent_log_says_nothing() -> None:
    assert cause_in(V24, started=True) is None


def test_an_eager_engine_does_not_compile() -> None:
    assert not is_compiling("Enforce eager set, disabling torch.compile and CUDAGraphs.")
    assert is_compiling("[backends.py:1148] Dynamo bytecode transform time: 6.52 s")
