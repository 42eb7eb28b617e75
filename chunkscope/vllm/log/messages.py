"""What vLLM says of itself in its log: each message by the words that no other line has.

The names of a pattern's groups are the names of facts. Read in the sources of 0.10.2 to 0.27.0 and
the wheels of 0.28.0 to 0.32.0.
"""

import re

from chunkscope.vllm.log import failures

# Those with readers of their own; the first comes every ten seconds.
PERIODIC = "Avg prompt throughput: "
STEP = "context requests, "
STARTED = "LLM engine (v"
ARGUMENTS = "non-default args: "
BANNER = "█  version "
PREEMPTED = "total_num_cumulative_preemption="
REFUSED_PROMPT, REFUSED_REQUEST = "decoder prompt (length", "maximum context length is "
FAILURE, ERROR = "failure", "error"  # an error says little before an engine is known

_BACKEND = r"Using (?:AttentionBackendEnum\.)?(?P<attention_backend>[\w ]+?) (?:attention )?backend"
_GIB = r"[\d.]+"
MESSAGES = {  # of a line with several, the first counts
    PERIODIC: r"Avg prompt throughput: (?P<prompt_tokens_per_s>[\d.]+) tokens/s, "
    r"Avg generation throughput: (?P<output_tokens_per_s>[\d.]+) tokens/s, "
    r"Running: (?P<running>\d+) reqs, "
    r"(?:Swapped: \d+ reqs, Pending|Waiting): (?P<waiting>\d+) reqs"
    r"(?:, Preemptions: (?P<preemptions>\d+))?"
    r"(?:, Deferred: (?P<deferred>\d+) reqs)?.*?"
    r"KV cache usage: (?P<kv_use>[\d.]+)%"
    r"(?:, Prefix cache hit rate: (?P<hit_rate>[\d.]+)%)?",
    STEP: r"Iteration\(\d+\): (?P<prefills>\d+) context requests, "
    r"(?P<prompt_tokens>\d+) context tokens, (?P<decodes>\d+) generation requests, "
    r"\d+ generation tokens, iteration elapsed time: (?P<ms>[\d.]+) ms",
    STARTED: r"engine \(v(?P<version>[^)\s]+)\) with config: (?P<config>.*)",
    ARGUMENTS: r"args: (?P<arguments>.*)",
    "Using max model len ": r"model len (?P<max_model_len>\d+)",
    "Chunked prefill is enabled with": r"max_num_batched_tokens=(?P<max_num_batched_tokens>\d+)",
    "Asynchronous scheduling is ": r"scheduling is (?P<async_scheduling>enabled|disabled)",
    BANNER: r"█  version (?P<version>\d\S+)",
    "█  model   ": r"█  model   (?P<model>\S.*)",
    "attention backend": _BACKEND,
    "Using Flash Attention backend": _BACKEND,
    "Auto-fit max_model_len: reduced": r"from (?P<fitted_from>[\d,]+) to (?P<fitted_to>[\d,]+)",
    "Model loading took ": rf"took (?P<weights_gib>{_GIB}) GiB (?:memory )?"
    r"and (?P<load_s>[\d.]+) s",
    "torch.compile t": r"torch\.compile (?:took|takes) (?P<compile_s>[\d.]+) s",
    "Available KV cache memory: ": rf"memory: (?P<kv_cache_gib>{_GIB}) GiB",
    "KV cache size: ": r"KV cache size: (?P<kv_cache_tokens>[\d,]+) tokens"
    r"(?:, Maximum concurrency for [\d,]+ tokens per request: (?P<kv_concurrency>[\d.,]+)x)?",
    "Maximum concurrency for ": r"request: (?P<kv_concurrency>[\d.,]+)x",
    "Graph capturing finished in ": rf"finished in (?P<graphs_s>\d+) secs, "
    rf"took (?P<graphs_gib>-?{_GIB}) GiB",
    "CUDA graph pool memory: ": rf"memory: (?P<graph_pool_gib>{_GIB}) GiB \(actual\), "
    rf"(?P<graph_estimate_gib>{_GIB}) GiB \(estimated\)",
    "init engine (profile, create kv cache, warmup model) took ": r"took (?P<init_s>[\d.]+) s",
    "Desired GPU memory utilization is ": (
        rf"on device \((?P<free_gib>{_GIB})/(?P<device_gib>{_GIB}) GiB\) on startup\. "
        rf"Desired GPU memory utilization is \((?P<utilization>{_GIB}),.*?"
        rf"(?P<activation_gib>{_GIB}) GiB for peak activation"
    ),
    "torch peak memory increase: ": rf"memory increase: (?P<activation_gib>{_GIB}) ?GiB",
    PREEMPTED: r"cumulative_preemption=(?P<preemptions>\d+)",
    REFUSED_PROMPT: r"prompt \(length (?P<length>\d+)\).*?maximum model length of (?P<limit>\d+)",
    # 0.10 to 0.17 say "you requested T tokens (N in the messages, ...)" or "your request has N
    # input tokens"; of a text that no tokenizer could make short enough no tokens are told.
    REFUSED_REQUEST: r"context length is (?P<limit>\d+) tokens"
    r"(?:.*?(?:prompt contains (?:at least )?|request has |tokens \()(?P<length>\d+) "
    r"in(?:put tokens| the ))?",
}
_COMPILED = {sign: re.compile(pattern) for sign, pattern in MESSAGES.items()}
_FAILED = (*(sign for _, sign in failures.SIGNS), *failures.LOGPROB_FRAMES)
SIGNS = tuple(
    (sign.encode(), name)
    for name, signs in [
        *((sign, (sign,)) for sign in MESSAGES),
        (FAILURE, _FAILED),
        (ERROR, ("Error: ", failures.STOPPING)),
    ]
    for sign in signs
)
_ENGINE = re.compile(r"(?:Engine (\d+): |(\d+) Engines Aggregated: )$")


def parse(sign: str, text: str) -> dict[str, str]:
    """What the message says, by fact; empty when it is not the whole message."""
    match = _COMPILED[sign].search(text)
    return {name: value for name, value in match.groupdict().items() if value} if match else {}


def engine_of(text: str) -> str:
    """Whose the line of a window or a step is: "000", or "8 engines" where they are added up."""
    end = max(text.find("Avg prompt"), text.find("Iteration("))
    match = _ENGINE.search(text[: max(0, end)][-40:])
    return "" if match is None else match[1] or f"{match[2]} engines"
