"""What one start of an engine said of itself: how it was configured, and what fitted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from chunkscope.vllm.serve_flags import Effect, flags_by_name

# vLLM's names in the line that begins an engine, and ours where they differ.
_RENAMED = {
    "max_seq_len": "max_model_len",
    "device_config": "device",
    "chunked_prefill_enabled": "enable_chunked_prefill",
}
_CONFIG = (
    *("model", "dtype", "quantization", "kv_cache_dtype", "enforce_eager", *_RENAMED),
    *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    *("enable_prefix_caching", "enable_chunked_prefill"),
)
_PAIR = re.compile(rf"\b({'|'.join(_CONFIG)})=('[^']*'|[^,\s]+)")
_GIVEN = re.compile(r"'(\w+)': (True|False|-?\d+(?:\.\d+)?(?:e-?\d+)?\b|'[^']{0,60}')")
_NAME = re.compile(r"[\w./:@+ -]{1,200}")  # of a model or a type: no prompt and no key looks so


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """None is what the log does not say. Sizes are of one GPU, times of one start."""

    version: str | None = None
    model: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    device: str | None = None  # "cuda", "cpu"
    attention_backend: str | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    enable_chunked_prefill: bool | None = None
    enable_prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    enforce_eager: bool | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    fitted_from: int | None = None
    fitted_to: int | None = None
    device_gib: float | None = None
    free_gib: float | None = None
    utilization: float | None = None
    weights_gib: float | None = None
    activation_gib: float | None = None
    graphs_gib: float | None = None
    graph_pool_gib: float | None = None
    graph_estimate_gib: float | None = None
    kv_cache_gib: float | None = None
    kv_cache_tokens: int | None = None
    kv_concurrency: float | None = None
    load_s: float | None = None
    compile_s: float | None = None
    graphs_s: float | None = None
    init_s: float | None = None


_KINDS: dict[str, type] = {
    name: get_args(hint)[0] for name, hint in get_type_hints(EngineFacts).items()
}


def values_of(said: Mapping[str, str]) -> dict[str, Any]:
    """Words of a message as facts; what is no value of that fact is left out.

    >>> values_of({"kv_cache_tokens": "919,824", "enforce_eager": "False", "engine": "000"})
    {'kv_cache_tokens': 919824, 'enforce_eager': False}
    """
    values = {name: _value(text, _KINDS[name]) for name, text in said.items() if name in _KINDS}
    return {name: value for name, value in values.items() if value is not None}


def _value(text: str, kind: type) -> Any:
    text = text.strip("'").removeprefix("torch.")
    if kind is bool:
        return {"True": True, "enabled": True, "False": False, "disabled": False}.get(text)
    if kind is str:
        return text if text != "None" and _NAME.fullmatch(text) else None
    try:
        return kind(text.replace(",", ""))
    except ValueError:
        return None


def config_facts(config: str) -> dict[str, Any]:
    """Of the line that begins an engine: the first of each name, since configurations nest."""
    first: dict[str, str] = {}
    for name, text in _PAIR.findall(config):
        first.setdefault(_RENAMED.get(name, name), text)
    return values_of(first)


def arguments_in(text: str) -> dict[str, Any]:
    """Non-default arguments of the engine: numbers, switches and named choices.

    Free text is left out, whatever its name: it may be a path, a key or a prompt. So is what stands
    in a nested configuration: it is another's.

    >>> arguments_in("{'api_key': ['x'], 'max_num_seqs': 8, 'speculative_config': {'port': 80}}")
    {'max_num_seqs': 8}
    """
    flags, arguments = flags_by_name(), {}
    for name, value in _GIVEN.findall(_without_nested(text)):
        flag = flags.get(name)
        if flag is None or flag.effect is Effect.NONE:
            continue
        if value.startswith("'"):
            if value.strip("'") in flag.choices:
                arguments[name] = value.strip("'")
        elif value in ("True", "False"):
            arguments[name] = value == "True"
        else:
            arguments[name] = float(value) if "." in value or "e" in value else int(value)
    return arguments


def _without_nested(text: str) -> str:
    """
    >>> _without_nested("{'a': {'b': {}, 'c': 1}, 'd': [2, 3]}")
    "{'a': , 'd': }"
    """
    outer, depth = [], 0
    for char in text:
        if char in "{[(":
            depth += 1
            outer.append(char if depth == 1 else "")
        elif char in "}])":
            outer.append(char if depth == 1 else "")
            depth -= 1
        elif depth <= 1:
            outer.append(char)
    return "".join(outer)
