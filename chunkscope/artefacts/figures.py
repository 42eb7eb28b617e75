"""The figures of a run, and each figure's name, unit and direction.

`FIGURES` lists them for all who show, compare or limit some: a new one is added here
alone.
"""

from dataclasses import dataclass

from chunkscope.artefacts.numbers import COUNT, MANY, RATE, SECONDS, SHARE, SIZE, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Of one time over all requests or gaps of a run, in seconds."""

    p50: float
    p95: float
    p99: float
    max: float
    mean: float | None = None  # not computed everywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Of all requests, or of some; `itl_s` None: none had a second token."""

    ttft_s: Percentiles
    itl_s: Percentiles | None
    e2e_s: Percentiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures(Latencies):
    """What one run, or one repeat of it, came to. Not known is None, never 0."""

    makespan_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    requests_per_s: float | None = None
    short: Latencies | None = None  # of short prompts alone, where runs tell them apart
    long: Latencies | None = None
    steps: int | None = None
    tokens_per_step: float | None = None
    chunked_prompts: int | None = None
    chunks_max: int | None = None  # of one prompt
    preemptions: int | None = None
    prefix_hit_rate: float | None = None  # share of the prompt tokens
    # Requests that met every limit. None without limits.
    goodput_per_s: float | None = None
    # The tightest limit's figure as a share of it, which is kept up to 1.
    slo_use: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """`key` is its path in the artefact, such as `makespan_s`, `long.itl_s.p99`."""

    key: str
    title: str
    unit: Unit
    less_is_better: bool | None = None  # None: neither is
    once: bool = False  # read off once per run: repeats do not have it
    promise: str = ""  # its key in a budget file, if it may be limited

    def value(self, run: object) -> float | None:
        """Its value in `Figures`, or in a run for what is read once."""
        part: object = run
        for name in self.key.split("."):
            part = getattr(part, name, None)
        if not isinstance(part, int | float):
            return None
        return float(part)


_LESS = True  # is better
_MORE = False


def _times(name: str, title: str) -> tuple[Figure, ...]:
    """The percentiles of a time."""
    quantiles = {"p50": "median", "p95": "p95", "p99": "p99", "max": "longest"}
    figures = []
    for quantile, word in quantiles.items():
        figure = Figure(
            f"{name}_s.{quantile}",
            f"{word} {title}",
            SECONDS,
            _LESS,
            promise=f"{name}_{quantile}",
        )
        figures.append(figure)
    return tuple(figures)


FIGURES = (
    Figure("makespan_s", "time for all requests", SECONDS, _LESS, promise="makespan"),
    Figure(
        "predicted_figures.makespan_s", "time for all, predicted", SECONDS, once=True
    ),
    Figure(
        "input_tokens_per_s",
        "input tokens per second",
        RATE,
        _MORE,
        promise="input_tokens_per_s",
    ),
    Figure(
        "output_tokens_per_s",
        "output tokens per second",
        RATE,
        _MORE,
        promise="output_tokens_per_s",
    ),
    Figure("requests_per_s", "requests per second", MANY, _MORE),
    Figure("goodput_per_s", "goodput, requests per second", MANY, _MORE),
    Figure("slo_use", "use of the tightest limit (up to 100 % keeps it)", SHARE, _LESS),
    *_times("ttft", "time to first token"),
    *_times("itl", "gap between tokens"),
    *_times("e2e", "whole answer"),
    Figure(
        "activation_peak_gib", "activation peak", SIZE, _LESS, True, "activation_peak"
    ),
    Figure("device_peak_gib", "device peak", SIZE, _LESS, True, "device_peak"),
    Figure("kv_cache_tokens", "KV cache tokens", COUNT, _MORE, True),
    Figure("predicted.kv_cache_tokens", "KV cache tokens, predicted", COUNT, once=True),
    Figure("kv_concurrency", "requests of max_model_len at once", MANY, _MORE, True),
    Figure("steps", "steps", COUNT),
    Figure("tokens_per_step", "tokens per step", COUNT),
    Figure("chunked_prompts", "prompts read in chunks", COUNT),
    Figure("chunks_max", "most chunks of one prompt", COUNT),
    Figure("preemptions", "preemptions", COUNT, _LESS),
    Figure("prefix_hit_rate", "prefix-cache hits", SHARE),
    Figure(
        "predicted_prefix_hit_rate", "prefix-cache hits, predicted", SHARE, once=True
    ),
    Figure("outputs.equal", "outputs as the reference", SHARE, _MORE, True),
    Figure("outputs.again", "outputs as before when sent again", SHARE, _MORE, True),
)
BY_KEY = {figure.key: figure for figure in FIGURES}
BY_PROMISE = {figure.promise: figure for figure in FIGURES if figure.promise}
MAKESPAN = BY_KEY["makespan_s"]
TTFT_P95 = BY_KEY["ttft_s.p95"]
ITL_P99 = BY_KEY["itl_s.p99"]
ITL_MAX = BY_KEY["itl_s.max"]
TIGHTEST_LIMIT = BY_KEY["slo_use"]


def figures_row(run: object) -> dict[str, float]:
    """The figures that a run has, by key: `makespan_s`, `ttft_s.p95`."""
    row = {}
    for figure in FIGURES:
        holder = run if figure.once else getattr(run, "figures", None)
        value = figure.value(holder)
        if value is not None:
            row[figure.key] = value
    return row
