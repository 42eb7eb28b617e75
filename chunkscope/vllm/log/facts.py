"""What vLLM says of itself in its log: each message by words that no other line has.

The names of a pattern's groups are the names of facts. Read in the sources of 0.10.2 to
0.27.0 and the wheels of 0.28.0 to 0.32.0.
"""

import ast
import re
from dataclasses import dataclass, fields
from typing import get_args

from chunkscope.vllm.flags import flags_of
from chunkscope.vllm.settings import OWN, Settings, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """None is what the log does not say. Sizes are of one GPU, times of one start."""

    version: str | None = None
    model: str | None = None
    dtype: str | None = None
    device: str | None = None  # "cuda", "cpu"
    settings: Settings = OWN  # as far as it names them
    enforce_eager: bool | None = None
    found_compiled: str | None = None  # what of an earlier start it loaded
    pipeline_parallel_size: int | None = None
    device_gib: float | None = None
    weights_gib: float | None = None
    activation_gib: float | None = None
    graphs_gib: float | None = None
    kv_cache_gib: float | None = None
    kv_cache_tokens: int | None = None
    kv_concurrency: float | None = None
    init_s: float | None = None

    @classmethod
    def of(cls, values: dict[str, Value]) -> "EngineFacts":
        """Facts and settings by name."""
        names = {field.name for field in fields(cls)}
        facts = {name: value for name, value in values.items() if name in names}
        return cls(**facts, settings=Settings.of(values))  # type: ignore[arg-type]


# Arguments that fix the size of the KV cache, which is then no measurement.
FIXED_SIZES = ("num_gpu_blocks_override", "kv_cache_memory_bytes")

# Messages that begin or are more than facts. The first comes every ten seconds.
PERIODIC = "Avg prompt throughput: "
# The words before "(v" are not enough: an engine that dies dumps its configuration,
# too.
STARTED = "Initializing a V1 LLM engine (v"
ARGUMENTS = "non-default args: "
BANNER = "█  version "
REFUSED_PROMPT = "decoder prompt (length"
REFUSED_REQUEST = "maximum context length is "

_NUMBER = r"\d+(?:\.\d+)?"
# Words of a message, and the pattern of the message. In a line with several the first
# counts.
MESSAGES = {
    PERIODIC: r"(?:Engine (?P<engine>\d+): |(?P<engines>\d+) Engines Aggregated: )?"
    rf"Avg prompt throughput: (?P<prompt_tokens_per_s>{_NUMBER}) tokens/s, "
    rf"Avg generation throughput: (?P<output_tokens_per_s>{_NUMBER}) tokens/s, "
    r"Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs"
    r".*?"
    rf"KV cache usage: (?P<kv_use>{_NUMBER})%"
    rf"(?:, Prefix cache hit rate: (?P<hit_rate>{_NUMBER})%)?",
    STARTED: r"engine \(v(?P<version>[^)\s]+)\) with config: (?P<config>.*)",
    ARGUMENTS: r"args: (?P<arguments>.*)",
    "Using max model len ": r"model len (?P<max_model_len>\d+)",
    "Chunked prefill is enabled with": (
        r"max_num_batched_tokens=(?P<max_num_batched_tokens>\d+)"
    ),
    BANNER: r"█  version (?P<version>\d\S+)",
    "█  model   ": r"█  model   (?P<model>\S.*)",
    "Auto-fit max_model_len: reduced": (r"to (?P<max_model_len>[\d,]+) to fit"),
    "Model loading took ": rf"took (?P<weights_gib>{_NUMBER}) GiB",
    "Directly load ": r"load (?P<found_compiled>AOT|the compiled graph)",
    "Available KV cache memory: ": rf"memory: (?P<kv_cache_gib>{_NUMBER}) GiB",
    "KV cache size: ": r"KV cache size: (?P<kv_cache_tokens>[\d,]+) tokens"
    r"(?:, Maximum concurrency for [\d,]+ tokens per request: "
    r"(?P<kv_concurrency>[\d.,]+)x)?",
    "Maximum concurrency for ": r"request: (?P<kv_concurrency>[\d.,]+)x",
    "Graph capturing finished in ": rf"took (?P<graphs_gib>-?{_NUMBER}) GiB",
    "init engine (profile, create kv cache, warmup model) took ": (
        r"took (?P<init_s>[\d.]+) s"
    ),
    "Desired GPU memory utilization is ": (
        rf"/(?P<device_gib>{_NUMBER}) GiB\) on startup\. Desired GPU memory "
        rf"utilization is \((?P<gpu_memory_utilization>{_NUMBER}),.*?"
        rf"(?P<activation_gib>{_NUMBER}) GiB for peak activation"
    ),
    "torch peak memory increase: ": (
        rf"memory increase: (?P<activation_gib>{_NUMBER}) ?GiB"
    ),
    REFUSED_PROMPT: (
        r"prompt \(length (?P<length>\d+)\).*?maximum model length of (?P<limit>\d+)"
    ),
    # 0.10 to 0.17 say "you requested T tokens (N in the messages, ...)" or "your
    # request has N input tokens". Of a text that no tokenizer could make short enough
    # no tokens are told.
    REFUSED_REQUEST: r"context length is (?P<limit>\d+) tokens"
    r"(?:.*?(?:prompt contains (?:at least )?|request has |tokens \()(?P<length>\d+) "
    r"in(?:put tokens| the ))?",
}
_COMPILED = {sign: re.compile(pattern) for sign, pattern in MESSAGES.items()}

# vLLM's names in the line that begins an engine, and ours where they differ.
_RENAMED = {
    "max_seq_len": "max_model_len",
    "device_config": "device",
    "chunked_prefill_enabled": "enable_chunked_prefill",
}


def _kinds() -> dict[str, type]:
    """The type of each fact and setting: `int` where the field is `int | None`."""
    kinds = {}
    for field in (*fields(EngineFacts), *fields(Settings)):
        if field.name != "settings":
            kinds[field.name] = get_args(field.type)[0]
    return kinds


_KINDS = _kinds()
# The configuration names the context as max_seq_len: a draft model has a max_model_len.
_IN_CONFIG = (_KINDS.keys() | _RENAMED.keys()) - {"max_model_len", "version"}
# max_seq_len=4096, or dtype='auto'
_PAIR = re.compile(rf"\b({'|'.join(sorted(_IN_CONFIG))})=('[^']*'|[^,\s]+)")
# Of a model or a type. No prompt and no key looks so: org/Model-7B
_NAME = re.compile(r"[\w./:@+ -]{1,200}")
# 'max_num_seqs': 8
_ARGUMENT = re.compile(
    r"'(\w+)': (True|False|-?\d+(?:\.\d+)?(?:e-?\d+)?\b|'[^']{0,60}')"
)
_INNERMOST = re.compile(r"[\[({][^\[\](){}]*[\])}]")  # ('a', 'b')


def sign_in(text: str) -> str | None:
    """Which message a line may be, by the words that are a sign of it."""
    for sign in MESSAGES:
        if sign in text:
            return sign
    return None


def parse(sign: str, text: str) -> dict[str, str]:
    """What the message says, by fact; empty when it is not the whole message."""
    match = _COMPILED[sign].search(text)
    if match is None:
        return {}
    words = {name: value for name, value in match.groupdict().items() if value}
    for name, value in _PAIR.findall(words.get("config", "")):
        # Configurations nest, and the engine's own comes first.
        words.setdefault(_RENAMED.get(name, name), value)
    return words


def values_of(words: dict[str, str]) -> dict[str, Value]:
    """Facts and settings out of a message's words; what is no value of one is left out.

    >>> words = {"kv_cache_tokens": "919,824", "enforce_eager": "False", "ms": "9"}
    >>> values_of(words)
    {'kv_cache_tokens': 919824, 'enforce_eager': False}
    """
    values = {}
    for name, text in words.items():
        if name in _KINDS:
            value = _value(text.strip("'"), _KINDS[name])
            if value is not None:
                values[name] = value
    return values


def _value(text: str, kind: type) -> Value | None:
    if kind is bool:
        return {"True": True, "False": False}.get(text)
    if kind is str:
        name = text.removeprefix("torch.")
        return name if name != "None" and _NAME.fullmatch(name) else None
    number = text.replace(",", "")
    try:
        return int(number) if kind is int else float(number)
    except ValueError:
        return None


def arguments_in(text: str) -> dict[str, Value]:
    """Non-default arguments of the engine: numbers, switches and named choices.

    Free text is left out, whatever its name: it may be a path, a key or a prompt. So is
    what stands in a nested configuration: it is another's.

    >>> arguments_in("{'api_key': ['x'], 'max_num_seqs': 8, 'it': {'max_num_seqs': 2}}")
    {'max_num_seqs': 8}
    """
    outer = text.partition("{")[2]
    while _INNERMOST.search(outer):
        outer = _INNERMOST.sub("", outer)
    outer = re.split(r"[\[({]", outer)[0]  # what is open still was cut off
    flags = flags_of()
    arguments: dict[str, Value] = {}
    for name, written in _ARGUMENT.findall(outer):
        if name not in flags or flags[name].harmless:
            continue
        value = ast.literal_eval(written)
        if not isinstance(value, str) or value in flags[name].choices:
            arguments[name] = value
    return arguments
