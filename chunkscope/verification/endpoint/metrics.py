"""What a vLLM server tells at /metrics: Prometheus text -> the figures we need.

Counters are of the whole server since its start, so a repeat is the difference of two
readings. `iteration_tokens_total` is not read: steps that compute part of a prompt do
not show in it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

PREEMPTIONS = ("vllm:num_preemptions",)
FINISHED = ("vllm:request_success",)
PROMPT_TOKENS = ("vllm:prompt_tokens",)
BY_SOURCE = ("vllm:prompt_tokens_by_source",)  # since 0.16
QUERIES = ("vllm:prefix_cache_queries",)
HITS = ("vllm:prefix_cache_hits",)
CACHE = "vllm:cache_config_info"
# Arguments that give the KV cache its size.
FIXED_SIZES = ("num_gpu_blocks_override", "kv_cache_memory_bytes")
FACTS = (
    "num_gpu_blocks",
    "block_size",
    "enable_prefix_caching",
    "gpu_memory_utilization",
    *FIXED_SIZES,
)
MOST = 1 << 53  # of what is counted: a larger figure is none

# vllm:num_preemptions_total{engine="0",model_name="m"} 3.0
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')

Number = int | float | bool


class MetricSample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """One reading."""

    samples: tuple[MetricSample, ...] = ()

    @property
    def is_vllm(self) -> bool:
        return any(sample.name.startswith("vllm:") for sample in self.samples)

    def total(self, names: Sequence[str], source: str | None = None) -> float | None:
        """The sum over all engines, of the first of these names that is there."""
        for name in names:
            values = []
            for sample in self.samples:
                is_named = sample.name in (name, f"{name}_total")
                if is_named and source in (None, sample.labels.get("source")):
                    values.append(sample.value)
            if values:
                return sum(values)
        return None


def parse(text: str) -> Metrics:
    """Read the text; lines that are no samples are left out.

    >>> parse('vllm:num_preemptions_total{engine="0"} 3.0').total(PREEMPTIONS)
    3.0
    """
    samples = []
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is None:
            continue
        value = _number(match[3])
        if value is not None:
            labels = dict(_LABEL.findall(match[2] or ""))
            samples.append(MetricSample(name=match[1], labels=labels, value=value))
    return Metrics(samples=tuple(samples))


def _number(text: str) -> float | None:
    """None for what is no number, or infinite: nothing was counted that far."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= MOST else None


# -- a repeat: the difference of two readings ------------------------------------------


def counted(
    before: Metrics, after: Metrics, names: Sequence[str], source: str | None = None
) -> int | None:
    """How far a counter went.

    None when it is not there, or the server was started anew.
    """
    # A series with labels of its own appears with its first event.
    start = before.total(names, source) or 0
    end = after.total(names, source)
    return round(end - start) if end is not None and end >= start else None


def prefix_hit_rate(before: Metrics, after: Metrics) -> float | None:
    """The share of prompt tokens that came from the prefix cache.

    Lookups are the second choice: up to 0.26 a request that waits is counted again
    every step.
    """
    tokens = counted(before, after, PROMPT_TOKENS)
    cached = counted(before, after, BY_SOURCE, source="local_cache_hit")
    if tokens is None or cached is None:
        tokens = counted(before, after, QUERIES)
        cached = counted(before, after, HITS)
    if not tokens or cached is None or cached > tokens:
        return None
    return cached / tokens


# -- the KV cache ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKvCache:
    """All engines of the server together; None where it does not tell."""

    engine: dict[str, Number]
    tokens: int | None = None
    concurrency: float | None = None
    # The tokens were worked out of blocks: those are too many for a hybrid model.
    is_upper_bound: bool = False


def kv_cache(metrics: Metrics, max_model_len: int | None) -> ServerKvCache:
    caches = []  # by engine
    for sample in metrics.samples:
        if sample.name == CACHE:
            caches.append(_values(sample.labels))
    if not caches:
        return ServerKvCache(engine={})
    engine = {name: caches[0][name] for name in FACTS if name in caches[0]}
    engine["engines"] = len(caches)
    tokens = _sum([cache.get("kv_cache_size_tokens") for cache in caches])  # since 0.24
    if tokens is not None:
        concurrency = _sum([cache.get("kv_cache_max_concurrency") for cache in caches])
        return ServerKvCache(engine=engine, tokens=int(tokens), concurrency=concurrency)
    tokens = _sum([_tokens_of_blocks(cache) for cache in caches])
    if tokens is None:
        return ServerKvCache(engine=engine)
    return ServerKvCache(
        engine=engine,
        tokens=int(tokens),
        concurrency=tokens / max_model_len if tokens and max_model_len else None,
        is_upper_bound=True,
    )


def _tokens_of_blocks(cache: dict[str, Number]) -> Number | None:
    if not cache.get("num_gpu_blocks") or not cache.get("block_size"):
        return None
    return cache["num_gpu_blocks"] * cache["block_size"]


def _sum(values: Sequence[Number | None]) -> float | None:
    """None where one is not known."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _values(labels: dict[str, str]) -> dict[str, Number]:
    """The labels that are numbers or switches: `block_size="16"`, `...="True"`."""
    values: dict[str, Number] = {}
    for name, text in labels.items():
        number = _number(text)
        if text in ("True", "False"):
            values[name] = text == "True"
        elif number is not None and number >= 0:
            values[name] = int(number) if text.isdecimal() else number
    return values
