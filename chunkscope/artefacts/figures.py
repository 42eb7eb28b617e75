"""The figures of a run, simulated, measured or logged; and each figure's name, unit and direction.

`FIGURES` lists them for all who show, compare or limit some: a new one is added here alone.
"""

from dataclasses import dataclass

from chunkscope.artefacts.numbers import COUNT, MANY, RATE, SECONDS, SHARE, SIZE, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Of one time over all requests or gaps of a run, in seconds. None: nobody computed it."""

    p50: float
    p95: float
    p99: float
    max: float
    mean: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Of all requests, or of some. `itl_s` is None where no request had a second token."""

    ttft_s: Percentiles
    itl_s: Percentiles | None
    e2e_s: Percentiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures(Latencies):
    """What one run, or one repeat of it, came to. Not known is None, never 0."""

    makespan_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    short: Latencies | None = None  # of short prompts alone, where runs tell them apart
    long: Latencies | None = None
    steps: int | None = None
    tokens_per_step: float | None = None
    chunked_prompts: int | None = None
    chunks_max: int | None = None  # of one prompt
    preemptions: int | None = None
    prefix_hit_rate: float | None = None  # share of the prompt tokens
    goodput_per_s: float | None = (
        None  # requests that met every limit; None without limits
    )
    slo_use: float | None = (
        None  # the tightest limit's figure as a share of it: kept up to 1
    )


@dataclass(frozen=True, slots=True)
class Figure:
    """`key` is its path in the artefact: `makespan_s`, `ttft_s.p95`, `long.itl_s.p99`."""

    key: str
    title: str
    unit: Unit
    less_is_better: bool | None = None  # None: neither is
    once: bool = False  # read off once per run: repeats do not have it
    promise: str = ""  # its key in a budget file, if it may be limited

    def value(self, run: object) -> float | None:
        """Its value in `Figures`, or in a run for what is read once; None where not known."""
        part: object = run
        for name in self.key.split("."):
            part = getattr(part, name, None)
        return float(part) if isinstance(part, (int, float)) else None


_LESS, _MORE = True, False  # is better
_TIMES = {
    "ttft": "time to first token",
    "itl": "gap between tokens",
    "e2e": "whole answer",
}
_QUANTILES = {"p50": "median", "p95": "p95", "p99": "p99", "max": "longest"}

FIGURES = (
    Figure("makespan_s", "time for all requests", SECONDS, _LESS, promise="makespan"),
    Figure(
        "predicted_figures.makespan_s", "time for all, predicted", SECONDS, once=True
    ),
    *(
        Figure(key, f"{key.replace('_', ' ')}econd", RATE, _MORE, promise=key)
        for key in ("input_tokens_per_s", "output_tokens_per_s")
    ),
    Figure("goodput_per_s", "goodput, requests per second", MANY, _MORE),
    Figure("slo_use", "use of the tightest limit (up to 100 % keeps it)", SHARE, _LESS),
    *(
        Figure(
            f"{time}_s.{at}", f"{named} {title}", SECONDS, _LESS, promise=f"{time}_{at}"
        )
        for time, title in _TIMES.items()
        for at, named in _QUANTILES.items()
    ),
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
MAKESPAN, TTFT_P95, ITL_P99, ITL_MAX, TIGHTEST_LIMIT = (
    BY_KEY[key]
    for key in ("makespan_s", "ttft_s.p95", "itl_s.p99", "itl_s.max", "slo_use")
)


def figures_row(run: object) -> dict[str, float | None]:
    """Every figure of a run by its key: `makespan_s`, `ttft_s.p95`."""
    values = {
        f.key: f.value(run if f.once else getattr(run, "figures", None))
        for f in FIGURES
    }
    return {key: value for key, value in values.items() if value is not None}
