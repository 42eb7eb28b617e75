"""What a vLLM server says about itself at /metrics: Prometheus text -> the few figures we need.

Counters are of the whole server since its start, so a repeat is the difference of two readings.
`iteration_tokens_total` is not read: steps that compute part of a prompt do not show in it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')

# Names by release: the first that is there counts. Up to 0.11 some begin with gpu_.
PREEMPTIONS = ("vllm:num_preemptions",)
FINISHED = ("vllm:request_success",)
PROMPT_TOKENS = ("vllm:prompt_tokens",)
BY_SOURCE = ("vllm:prompt_tokens_by_source",)  # since 0.16
QUERIES = ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")
HITS = ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")
CACHE = "vllm:cache_config_info"
FIXED_SIZES = (
    "num_gpu_blocks_override",
    "kv_cache_memory_bytes",
)  # of the KV cache, by argument
FACTS = (
    "num_gpu_blocks",
    "block_size",
    "enable_prefix_caching",
    "gpu_memory_utilization",
)
MOST = 1 << 53


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

    def total(self, names: tuple[str, ...], **labels: str) -> float | None:
        """The sum over all engines, of the first of these names that is there."""
        for name in names:
            named = [s for s in self.samples if s.name in (name, f"{name}_total")]
            values = [s.value for s in named if labels.items() <= s.labels.items()]
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
        try:
            value = float(match[3]) if match else None
        except ValueError:
            continue
        # Infinite, or no number: nothing was counted that far.
        if match and value is not None and abs(value) <= MOST:
            labels = dict(_LABEL.findall(match[2] or ""))
            samples.append(MetricSample(match[1], labels, value))
    return Metrics(samples=tuple(samples))


# -- a repeat: the difference of two readings ----------------------------------------------------


def counted(
    before: Metrics, after: Metrics, names: tuple[str, ...], **labels: str
) -> int | None:
    """How far a counter went. None when it is not there, or the server was started anew."""
    # A series with labels of its own appears with its first event.
    start, end = before.total(names, **labels) or 0, after.total(names, **labels)
    return round(end - start) if end is not None and end >= start else None


def prefix_hit_rate(before: Metrics, after: Metrics) -> float | None:
    """The share of prompt tokens that came from the prefix cache.

    Lookups are the second choice: up to 0.26 a request that waits is counted again every step.
    """
    tokens = counted(before, after, PROMPT_TOKENS)
    cached = counted(before, after, BY_SOURCE, source="local_cache_hit")
    if tokens is None or cached is None:
        tokens, cached = (counted(before, after, names) for names in (QUERIES, HITS))
    return (
        cached / tokens if tokens and cached is not None and cached <= tokens else None
    )


# -- the KV cache --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKvCache:
    """All engines of the server together; None where it does not tell."""

    engine: dict[str, Any]
    tokens: int | None = None
    concurrency: float | None = None
    is_upper_bound: bool = (
        False  # tokens worked out of blocks: too many for a hybrid model
    )


def kv_cache(metrics: Metrics, max_model_len: int | None) -> ServerKvCache:
    infos = [
        sample.labels for sample in metrics.samples if sample.name == CACHE
    ]  # by engine
    caches = [{name: _value(text) for name, text in labels.items()} for labels in infos]
    if not caches:
        return ServerKvCache(engine={})
    facts = {
        n: v for n, v in caches[0].items() if n in FACTS + FIXED_SIZES and v is not None
    }
    tokens = _sum(cache.get("kv_cache_size_tokens") for cache in caches)  # since 0.24
    concurrency = _sum(cache.get("kv_cache_max_concurrency") for cache in caches)
    if is_upper_bound := tokens is None:
        blocks = (
            (cache.get("num_gpu_blocks"), cache.get("block_size")) for cache in caches
        )
        tokens = _sum(n * size if n and size else None for n, size in blocks)
        concurrency = tokens / max_model_len if tokens and max_model_len else None
    return ServerKvCache(
        engine={**facts, "engines": len(caches)},
        tokens=None if tokens is None else int(tokens),
        concurrency=concurrency,
        is_upper_bound=is_upper_bound and tokens is not None,
    )


def _sum(values: Iterable[float | None]) -> float | None:
    numbers = list(values)
    return None if None in numbers else sum(n for n in numbers if n is not None)


def _value(text: str) -> int | float | bool | None:
    """Python writes True where JSON has true. None for what is no number and no switch."""
    try:
        value = orjson.loads(text.lower())
    except ValueError:
        return None
    return value if isinstance(value, int | float) and 0 <= value <= MOST else None
