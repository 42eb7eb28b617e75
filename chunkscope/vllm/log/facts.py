"""What vLLM says of itself in its log: each message by the words that no other line has.

The names of a pattern's groups are the names of facts. Read in the sources of 0.10.2 to 0.27.0 and
the wheels of 0.28.0 to 0.32.0.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from chunkscope.vllm.flags import flags_of
from chunkscope.vllm.log import failures
from chunkscope.vllm.settings import NAMES, OWN, Settings


@dataclass(slots=True, kw_only=True)
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
    fitted_from: int | None = None
    fitted_to: int | None = None
    device_gib: float | None = None
    weights_gib: float | None = None
    activation_gib: float | None = None
    graphs_gib: float | None = None
    kv_cache_gib: float | None = None
    kv_cache_tokens: int | None = None
    kv_concurrency: float | None = None
    init_s: float | None = None


# Those with readers of their own; the first comes every ten seconds.
PERIODIC = "Avg prompt throughput: "
STEP = "context requests, "
STARTED = (
    "Initializing a V1 LLM engine (v"  # one that dies dumps its configuration, too
)
ARGUMENTS = "non-default args: "
BANNER = "█  version "
REFUSED_PROMPT, REFUSED_REQUEST = "decoder prompt (length", "maximum context length is "
FAILURE, ERROR = "failure", "error"  # an error says little before an engine is known

_NUMBER = r"\d+(?:\.\d+)?"
MESSAGES = {  # of a line with several, the first counts
    PERIODIC: r"(?:Engine (?P<engine>\d+): |(?P<engines>\d+) Engines Aggregated: )?"
    rf"Avg prompt throughput: (?P<prompt_tokens_per_s>{_NUMBER}) tokens/s, "
    rf"Avg generation throughput: (?P<output_tokens_per_s>{_NUMBER}) tokens/s, "
    r"Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs"
    r"(?:, Deferred: (?P<deferred>\d+) reqs)?.*?"
    rf"KV cache usage: (?P<kv_use>{_NUMBER})%"
    rf"(?:, Prefix cache hit rate: (?P<hit_rate>{_NUMBER})%)?",
    STEP: r"Iteration\(\d+\): (?P<prefills>\d+) context requests, "
    r"(?P<prompt_tokens>\d+) context tokens, (?P<decodes>\d+) generation requests, "
    rf"\d+ generation tokens, iteration elapsed time: (?P<ms>{_NUMBER}) ms",
    STARTED: r"engine \(v(?P<version>[^)\s]+)\) with config: (?P<config>.*)",
    ARGUMENTS: r"args: (?P<arguments>.*)",
    "Using max model len ": r"model len (?P<max_model_len>\d+)",
    "Chunked prefill is enabled with": r"max_num_batched_tokens=(?P<max_num_batched_tokens>\d+)",
    BANNER: r"█  version (?P<version>\d\S+)",
    "█  model   ": r"█  model   (?P<model>\S.*)",
    "Auto-fit max_model_len: reduced": r"from (?P<fitted_from>[\d,]+) to (?P<fitted_to>[\d,]+)",
    "Model loading took ": rf"took (?P<weights_gib>{_NUMBER}) GiB",
    "Directly load ": r"load (?P<found_compiled>AOT|the compiled graph)",
    "Available KV cache memory: ": rf"memory: (?P<kv_cache_gib>{_NUMBER}) GiB",
    "KV cache size: ": r"KV cache size: (?P<kv_cache_tokens>[\d,]+) tokens"
    r"(?:, Maximum concurrency for [\d,]+ tokens per request: (?P<kv_concurrency>[\d.,]+)x)?",
    "Maximum concurrency for ": r"request: (?P<kv_concurrency>[\d.,]+)x",
    "Graph capturing finished in ": rf"took (?P<graphs_gib>-?{_NUMBER}) GiB",
    "init engine (profile, create kv cache, warmup model) took ": r"took (?P<init_s>[\d.]+) s",
    "Desired GPU memory utilization is ": (
        rf"/(?P<device_gib>{_NUMBER}) GiB\) on startup\. "
        rf"Desired GPU memory utilization is \((?P<gpu_memory_utilization>{_NUMBER}),.*?"
        rf"(?P<activation_gib>{_NUMBER}) GiB for peak activation"
    ),
    "torch peak memory increase: ": rf"memory increase: (?P<activation_gib>{_NUMBER}) ?GiB",
    REFUSED_PROMPT: r"prompt \(length (?P<length>\d+)\).*?maximum model length of (?P<limit>\d+)",
    # 0.10 to 0.17 say "you requested T tokens (N in the messages, ...)" or "your request has N
    # input tokens"; of a text that no tokenizer could make short enough no tokens are told.
    REFUSED_REQUEST: r"context length is (?P<limit>\d+) tokens"
    r"(?:.*?(?:prompt contains (?:at least )?|request has |tokens \()(?P<length>\d+) "
    r"in(?:put tokens| the ))?",
}
_COMPILED = {sign: re.compile(pattern) for sign, pattern in MESSAGES.items()}
SIGNS = (  # in a line, and the message that it is a sign of
    *((sign.encode(), sign) for sign in MESSAGES),
    *((sign.encode(), FAILURE) for _, sign in failures.SIGNS),
    *((sign.encode(), FAILURE) for sign in (*failures.LOGPROB_FRAMES, failures.ENTRY)),
    *(
        (sign.encode(), ERROR)
        for sign in ("Error: ", failures.STOPPING, *failures.KILLS)
    ),
)


def parse(sign: str, text: str) -> dict[str, str]:
    """What the message says, by fact; empty when it is not the whole message."""
    match = _COMPILED[sign].search(text)
    words = (
        {name: value for name, value in match.groupdict().items() if value}
        if match
        else {}
    )
    # Of the line that begins an engine the first of each name counts, since configurations nest.
    config = reversed(_PAIR.findall(words.get("config", "")))
    return {_RENAMED.get(name, name): value for name, value in config} | words


# vLLM's names in the line that begins an engine, and ours where they differ.
_RENAMED = {
    "max_seq_len": "max_model_len",
    "device_config": "device",
    "chunked_prefill_enabled": "enable_chunked_prefill",
}
_GIVEN = re.compile(r"'(\w+)': (True|False|-?\d+(?:\.\d+)?(?:e-?\d+)?\b|'[^']{0,60}')")
_NESTED = re.compile(r"[\[({][^\[\](){}]*[\])}]")
_NAME = re.compile(
    r"[\w./:@+ -]{1,200}"
)  # of a model or a type: no prompt and no key looks so
# Of contexts the first is told by another name: a draft model has its own.
_OTHERS = {"max_model_len", "version", "settings"}
_CONFIG = {*get_type_hints(EngineFacts), *NAMES, *_RENAMED} - _OTHERS
_PAIR = re.compile(rf"\b({'|'.join(sorted(_CONFIG))})=('[^']*'|[^,\s]+)")


def values_of(record: type, words: Mapping[str, str]) -> dict[str, Any]:
    """Words of a message as fields of a record; what is no value of that field is left out.

    >>> words = {"kv_cache_tokens": "919,824", "enforce_eager": "False", "engine": "000"}
    >>> values_of(EngineFacts, words)
    {'kv_cache_tokens': 919824, 'enforce_eager': False}
    """
    kinds = _kinds(record)
    values = {
        name: _value(text, kinds[name]) for name, text in words.items() if name in kinds
    }
    return {name: value for name, value in values.items() if value is not None}


@cache
def _kinds(record: type) -> dict[str, type]:
    return {
        n: (get_args(hint) or (hint,))[0] for n, hint in get_type_hints(record).items()
    }


def _value(text: str, kind: type) -> Any:
    text = text.strip("'").removeprefix("torch.")
    if kind is bool:
        return {"True": True, "False": False}.get(text)
    if kind is str:
        return text if text != "None" and _NAME.fullmatch(text) else None
    try:
        return kind(text.replace(",", ""))
    except ValueError:
        return None


def arguments_in(text: str) -> dict[str, Any]:
    """Non-default arguments of the engine: numbers, switches and named choices.

    Free text is left out, whatever its name: it may be a path, a key or a prompt. So is what stands
    in a nested configuration: it is another's.

    >>> arguments_in("{'api_key': ['x'], 'max_num_seqs': 8, 'other_config': {'max_num_seqs': 2}}")
    {'max_num_seqs': 8}
    """
    flags = {name: flag for name, flag in flags_of().items() if not flag.harmless}
    outer = text.partition("{")[2]
    while _NESTED.search(outer):
        outer = _NESTED.sub("", outer)
    pairs = _GIVEN.findall(re.split(r"[\[({]", outer)[0])
    given = {name: ast.literal_eval(value) for name, value in pairs if name in flags}
    return {
        n: v
        for n, v in given.items()
        if not isinstance(v, str) or v in flags[n].choices
    }
