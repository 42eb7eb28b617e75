"""Verbatim lines of vLLM's log, and what the reader makes of them."""

from chunkscope.vllm.log.failures import Failure
from chunkscope.vllm.log.reader import LogReader
from chunkscope.vllm.log.start import EngineStart

START = (
    "Initializing a V1 LLM engine (v{version}) with config: model='org/m', "
    "dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=2, "
    "enforce_eager=True, kv_cache_dtype=fp8, enable_prefix_caching=True, "
    "chunked_prefill_enabled=True, compilation_config={{'model': 'x'}}"
)
PERIODIC = (
    "Engine 000: Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: "
    "5.5 tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache "
    "usage: {kv}%, Prefix cache hit rate: 12.5%"
)
READY = "init engine (profile, create kv cache, warmup model) took 42.98 s"
LOADED = "Model loading took 14.9889 GiB and 2.345678 seconds"

# A message, and the facts that it says.
SAID = [
    (LOADED, {"weights_gib": 14.9889}),
    (
        "Model loading took 14.9889 GiB memory and 2.345678 seconds",
        {"weights_gib": 14.9889},
    ),
    ("Available KV cache memory: 112.28 GiB", {"kv_cache_gib": 112.28}),
    ("GPU KV cache size: 919,824 tokens", {"kv_cache_tokens": 919_824}),
    (
        "Maximum concurrency for 16,384 tokens per request: 56.14x",
        {"kv_concurrency": 56.14},
    ),
    (
        "CPU KV cache size: 1,024 tokens, Maximum concurrency for 64 tokens per "
        "request: 1,600.50x",
        {"kv_cache_tokens": 1_024, "kv_concurrency": 1600.5},
    ),
    ("GPU + host KV cache size: 2,048 tokens", {"kv_cache_tokens": 2_048}),
    ("Graph capturing finished in 5 secs, took 0.98 GiB", {"graphs_gib": 0.98}),
    (READY, {"init_s": 42.98}),
    (f"{READY} (compilation: 21.31 s)", {"init_s": 42.98}),
    (READY.replace(" s", " seconds"), {"init_s": 42.98}),
    (
        "Chunked prefill is enabled with max_num_batched_tokens=8192.",
        {"max_num_batched_tokens": 8192},
    ),
    ("Using max model len 16384", {"max_model_len": 16_384}),
    (
        "Auto-fit max_model_len: reduced from 131,072 to 40,960 to fit in available "
        "GPU memory (5.00 GiB available for KV cache)",
        {"max_model_len": 40_960},
    ),
    (
        "Free memory on device (138.5/139.8 GiB) on startup. Desired GPU memory "
        "utilization is (0.9, 125.82 GiB). Actual usage is 15.0 GiB for weight, 1.24 "
        "GiB for peak activation, 0.21 GiB for non-torch memory, and 0.98 GiB for "
        "CUDAGraph memory.",
        {"device_gib": 139.8, "gpu_memory_utilization": 0.9, "activation_gib": 1.24},
    ),
    (
        "Memory profiling takes 2.00 seconds. Total non KV cache memory: 17.1GiB; "
        "torch peak memory increase: 1.24GiB; non-torch forward increase memory: "
        "0.2GiB",
        {"activation_gib": 1.24},
    ),
]

OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.04 GiB. GPU 0 has "
    "a total capacity of 79.19 GiB of which 7.02 GiB is free."
)
SAMPLER = (
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy "
    "requests. Please try lowering `max_num_seqs`"
)
CONTEXT_TOO_LONG = (
    "ValueError: To serve at least one request with the models's max seq len (131072), "
    "(16.00 GiB KV cache is needed, which is larger than the available KV cache memory "
    "(5.40 GiB). Based on the available memory, the estimated maximum model length is "
    "44208."
)
FATAL = "EngineCore encountered a fatal error."
# What ended an engine, the line that says so, and its figures.
TROUBLES = [
    (
        Failure.NO_FREE_MEMORY,
        "ValueError: Free memory on device cuda:0 (12.5/139.8 GiB) on startup is less "
        "than desired GPU memory utilization (0.9, 125.82 GiB). Decrease GPU memory "
        "utilization",
        {"free_gib": 12.5},
    ),
    (
        Failure.NO_CACHE_BLOCKS,
        "ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine.",
        {},
    ),
    (
        Failure.CONTEXT_TOO_LONG,
        CONTEXT_TOO_LONG,
        {"needed_gib": 16.0, "available_gib": 5.4, "longest": 44_208},
    ),
    (Failure.OOM_SAMPLER, SAMPLER, {"requests": 1_024}),
    (Failure.OOM_START, OUT_OF_MEMORY, {"asked_gib": 7.04, "left_gib": 7.02}),
    (
        Failure.OOM_HOST,
        "RuntimeError: unable to mmap 4976 bytes: Cannot allocate memory (12)",
        {},
    ),
    (Failure.DIED, FATAL, {}),
]


def stamped(
    text: str,
    when: str = "10-23 10:51:24",
    process: str = "(EngineCore pid=7) ",
    level: str = "INFO",
) -> str:
    """A line as vLLM writes it."""
    return f"{process}{level} {when} [core.py:77] {text}"


def errors(*texts: str) -> list[str]:
    return [stamped(text, level="ERROR") for text in texts]


def periodic(
    when: str,
    *,
    prompt: float | str = 1.0,
    running: int | str = 1,
    waiting: int = 0,
    kv: float = 1.0,
) -> str:
    """The line that a server writes every ten seconds."""
    line = PERIODIC.format(prompt=prompt, running=running, waiting=waiting, kv=kv)
    return stamped(line, when, "(APIServer pid=1) ")


def read(*lines: str) -> LogReader:
    reader = LogReader()
    reader.feed("".join(f"{line}\n" for line in lines).encode())
    return reader


def starts(*lines: str) -> tuple[EngineStart, ...]:
    return read(*lines).starts()


def engine(*lines: str) -> EngineStart:
    """The only start in these lines."""
    (start,) = starts(*lines)
    return start


BEGUN = stamped(START.format(version="0.24.0"))
SERVING = periodic("10-23 10:52:00")
CACHE = stamped("GPU KV cache size: 919,824 tokens")
