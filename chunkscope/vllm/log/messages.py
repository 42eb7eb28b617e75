"""What vLLM says of itself in its log: each message once.

The names of a pattern's groups are the names of facts. Read in the sources of 0.10.2 to 0.27.0 and
the wheels of 0.28.0 to 0.32.0.
"""

import re
from dataclasses import dataclass

from chunkscope.vllm.log import failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One of `signs` is in every such line and in no other; `pattern` takes it apart."""

    name: str
    signs: tuple[str, ...]
    pattern: str

    def parse(self, text: str) -> dict[str, str]:
        """What it says, by fact; empty when it is not the whole message."""
        found = _COMPILED[self.name].search(text)
        return {name: value for name, value in found.groupdict().items() if value} if found else {}


# The one that comes every ten seconds, and the one of each step; both have their own readers.
PERIODIC = "periodic"
STEP = "step"
REFUSED_PROMPT = "refused_prompt"
STARTED = "started"
ARGUMENTS = "arguments"
PREEMPTED = "preempted"
BANNER = "banner"

_GIB = r"[\d.]+"
MESSAGES = (
    Message(
        name=PERIODIC,
        signs=("Avg prompt throughput: ",),
        pattern=r"Avg prompt throughput: (?P<prompt_tokens_per_s>[\d.]+) tokens/s, "
        r"Avg generation throughput: (?P<output_tokens_per_s>[\d.]+) tokens/s, "
        r"Running: (?P<running>\d+) reqs, "
        r"(?:Swapped: \d+ reqs, Pending|Waiting): (?P<waiting>\d+) reqs"
        r"(?:, Preemptions: (?P<preemptions>\d+))?"
        r"(?:, Deferred: (?P<deferred>\d+) reqs)?.*?"
        r"KV cache usage: (?P<kv_use>[\d.]+)%"
        r"(?:, Prefix cache hit rate: (?P<hit_rate>[\d.]+)%)?",
    ),
    Message(
        name=STEP,
        signs=("context requests, ",),
        pattern=r"Iteration\(\d+\): (?P<prefills>\d+) context requests, "
        r"(?P<prompt_tokens>\d+) context tokens, (?P<decodes>\d+) generation requests, "
        r"\d+ generation tokens, iteration elapsed time: (?P<ms>[\d.]+) ms",
    ),
    Message(
        name=STARTED,
        signs=("Initializing a V1 LLM engine", "Initializing a V0 LLM engine"),
        pattern=r"engine \(v(?P<version>[^)\s]+)\) with config: (?P<config>.*)",
    ),
    Message(name=ARGUMENTS, signs=("non-default args: ",), pattern=r"args: (?P<arguments>.*)"),
    Message(
        name="context", signs=("Using max model len ",), pattern=r"model len (?P<max_model_len>\d+)"
    ),
    Message(
        name="chunking",
        signs=("Chunked prefill is enabled with",),
        pattern=r"max_num_batched_tokens=(?P<max_num_batched_tokens>\d+)",
    ),
    Message(
        name="asynchronous",
        signs=("Asynchronous scheduling is ",),
        pattern=r"scheduling is (?P<async_scheduling>enabled|disabled)",
    ),
    Message(name=BANNER, signs=("█  version ",), pattern=r"█  version (?P<version>\d\S+)"),
    Message(name="banner_model", signs=("█  model   ",), pattern=r"█  model   (?P<model>\S.*)"),
    Message(
        name="backend",
        signs=(
            "attention backend",
            "Using Flash Attention backend",
        ),
        pattern=r"Using (?:AttentionBackendEnum\.)?(?P<attention_backend>[\w ]+?) "
        r"(?:attention )?backend",
    ),
    Message(
        name="auto_fit",
        signs=("Auto-fit max_model_len: reduced",),
        pattern=r"from (?P<fitted_from>[\d,]+) to (?P<fitted_to>[\d,]+)",
    ),
    Message(
        name="weights",
        signs=("Model loading took ",),
        pattern=rf"took (?P<weights_gib>{_GIB}) GiB (?:memory )?and (?P<load_s>[\d.]+) s",
    ),
    Message(
        name="compiling",
        signs=(
            "torch.compile took ",
            "torch.compile takes ",
        ),
        pattern=r"torch\.compile (?:took|takes) (?P<compile_s>[\d.]+) s",
    ),
    Message(
        name="kv_memory",
        signs=("Available KV cache memory: ",),
        pattern=rf"memory: (?P<kv_cache_gib>{_GIB}) GiB",
    ),
    Message(
        name="kv_tokens",
        signs=("KV cache size: ",),
        pattern=r"KV cache size: (?P<kv_cache_tokens>[\d,]+) tokens"
        r"(?:, Maximum concurrency for [\d,]+ tokens per request: (?P<kv_concurrency>[\d.,]+)x)?",
    ),
    Message(
        name="concurrency",
        signs=("Maximum concurrency for ",),
        pattern=r"request: (?P<kv_concurrency>[\d.,]+)x",
    ),
    Message(
        name="graphs",
        signs=("Graph capturing finished in ",),
        pattern=rf"finished in (?P<graphs_s>\d+) secs, took (?P<graphs_gib>-?{_GIB}) GiB",
    ),
    Message(
        name="graph_pool",
        signs=("CUDA graph pool memory: ",),
        pattern=rf"memory: (?P<graph_pool_gib>{_GIB}) GiB \(actual\), "
        rf"(?P<graph_estimate_gib>{_GIB}) GiB \(estimated\)",
    ),
    Message(
        name="start_up",
        signs=("init engine (profile, create kv cache, warmup model) took ",),
        pattern=r"took (?P<init_s>[\d.]+) s",
    ),
    Message(
        name="account",
        signs=("Desired GPU memory utilization is ",),
        pattern=rf"on device \((?P<free_gib>{_GIB})/(?P<device_gib>{_GIB}) GiB\) on startup\. "
        rf"Desired GPU memory utilization is \((?P<utilization>{_GIB}),.*?"
        rf"(?P<activation_gib>{_GIB}) GiB for peak activation",
    ),
    Message(
        name="profiling",
        signs=("torch peak memory increase: ",),
        pattern=rf"torch peak memory increase: (?P<activation_gib>{_GIB}) ?GiB",
    ),
    Message(
        name="persisted",
        signs=("Applying persisted startup plan",),
        pattern=r"kv_cache_memory_bytes=(?P<kv_bytes_fixed>\d+)",
    ),
    Message(
        name=PREEMPTED,
        signs=("total_num_cumulative_preemption=",),
        pattern=r"cumulative_preemption=(?P<preemptions>\d+)",
    ),
    Message(
        name=REFUSED_PROMPT,
        signs=(
            "decoder prompt (length",
            "maximum context length is ",
        ),
        # 0.10 to 0.17 say "you requested T tokens (N in the messages, ...)" or "your request has N
        # input tokens"; of a text that no tokenizer could make short enough no tokens are told.
        pattern=r"prompt \(length (?P<length>\d+)\).*?maximum model length of (?P<limit>\d+)"
        r"|context length is (?P<limit_>\d+) tokens"
        r"(?:.*?(?:prompt contains (?:at least )?|request has |tokens \()(?P<length_>\d+) "
        r"in(?:put tokens| the ))?",
    ),
)
BY_NAME = {message.name: message for message in MESSAGES}
_COMPILED = {message.name: re.compile(message.pattern) for message in MESSAGES}
_ENGINE = re.compile(r"(?:Engine (\d+): |(\d+) Engines Aggregated: )$")
FAILURE, ERROR = "failure", "error"  # an error says little before an engine is known
# Of a line with several, the first counts.
SIGNS = tuple(
    (sign.encode(), name)
    for name, signs in [
        *((m.name, m.signs) for m in MESSAGES),
        (FAILURE, (*(sign for _, sign in failures.SIGNS), *failures.LOGPROB_FRAMES)),
        (ERROR, ("Error: ", failures.STOPPING)),
    ]
    for sign in signs
)


def engine_of(text: str) -> str:
    """Whose the line of a window or a step is: "000", or "8 engines" where they are added up."""
    end = max(text.find("Avg prompt"), text.find("Iteration("))
    match = _ENGINE.search(text[: max(0, end)][-40:])
    return "" if match is None else match[1] or f"{match[2]} engines"
