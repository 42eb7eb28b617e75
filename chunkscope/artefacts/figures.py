"""The figures of a run, simulated, measured or logged; and each figure's name, unit and direction.

`Figures` holds the numbers. `FIGURES` lists what they are called: terminal, page, comparison,
verdicts and gate read that list, so a new figure is added here alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from chunkscope.artefacts.percentiles import Percentiles
from chunkscope.artefacts.units import COUNT, MANY, RATE, REQUESTS, SECONDS, SHARE, SIZE, Unit

QUANTILES = ("p50", "p95", "p99", "max")


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
    goodput_per_s: float | None = None  # requests that met every limit; None without limits
    slo_use: float | None = None  # the tightest limit's figure as a share of it: kept up to 1

    @property
    def longest_gap_s(self) -> float | None:
        return self.itl_s.max if self.itl_s else None

    @property
    def tokens_per_s(self) -> float:
        return self.input_tokens_per_s + self.output_tokens_per_s


class Better(StrEnum):
    LESS = "less"
    MORE = "more"
    NEITHER = "neither"


class Group(StrEnum):
    """What figures are about, as a heading over them."""

    THROUGHPUT = "throughput"
    TTFT = "first token"
    ITL = "token gap"
    E2E = "whole request"
    MEMORY = "memory"
    SCHEDULER = "scheduler"
    OUTPUTS = "outputs"


@dataclass(frozen=True, slots=True)
class Figure:
    """`key` is its path in the artefact: `makespan_s`, `ttft_s.p95`, `long.itl_s.p99`."""

    key: str
    title: str
    group: Group
    label: str  # below the group's heading, in a narrow column
    unit: Unit
    better: Better = Better.NEITHER
    once: bool = False  # read off once per run: repeats do not have it
    promise: str = ""  # its key in a budget file, if it may be limited
    heading: str = ""  # over a column, for the few that decide between settings

    def value(self, found: object) -> float | None:
        """Its value in `Figures`, or in a run for what is read once; None where not known."""
        for part in self.key.split("."):
            found = getattr(found, part, None)
        return float(found) if isinstance(found, (int, float)) else None

    def among(self, prompts: str) -> "Figure":
        """The same time, of `short` or `long` prompts alone."""
        return replace(self, key=f"{prompts}.{self.key}")


def _times(time: str, name: str, group: Group, **headings: str) -> Iterator[Figure]:
    which = {"p50": "median", "max": "longest"}
    for at in QUANTILES:
        yield Figure(
            f"{time}.{at}",
            f"{which.get(at, at)} {name}",
            group,
            "longest" if at == "max" else at,
            SECONDS,
            Better.LESS,
            promise=f"{time.removesuffix('_s')}_{at}",
            heading=headings.get(at, ""),
        )


MAKESPAN = Figure(
    "makespan_s",
    "time for all requests",
    Group.THROUGHPUT,
    "all requests took",
    SECONDS,
    Better.LESS,
    promise="makespan",
    heading="all done",
)


def _rate(which: str, heading: str = "") -> Figure:
    return Figure(
        f"{which}_tokens_per_s",
        f"{which} tokens per second",
        Group.THROUGHPUT,
        f"{which} tokens/s",
        RATE,
        Better.MORE,
        promise=f"{which}_tokens_per_s",
        heading=heading,
    )


def _peak(what: str, heading: str = "") -> Figure:
    return Figure(
        f"{what}_peak_gib",
        f"{what} peak",
        Group.MEMORY,
        f"{what} peak GiB",
        SIZE,
        Better.LESS,
        once=True,
        promise=f"{what}_peak",
        heading=heading,
    )


def _room(key: str, title: str, label: str, unit: Unit, heading: str = "") -> Figure:
    """What the KV cache holds."""
    return Figure(key, title, Group.MEMORY, label, unit, Better.MORE, once=True, heading=heading)


def _scheduled(
    key: str, title: str, label: str, unit: Unit = COUNT, better: Better = Better.NEITHER
) -> Figure:
    return Figure(key, title, Group.SCHEDULER, label, unit, better)


def _outputs(key: str, title: str, label: str) -> Figure:
    """A share of equal answers, of `verify --check-outputs`."""
    return Figure(f"outputs.{key}", title, Group.OUTPUTS, label, SHARE, Better.MORE, once=True)


EQUAL_OUTPUTS = _outputs("equal", "outputs as the reference", "equal")
GOODPUT = Figure(
    "goodput_per_s",
    "goodput, requests per second",
    Group.THROUGHPUT,
    "goodput, requests/s",
    REQUESTS,
    Better.MORE,
)
TIGHTEST_LIMIT = Figure(
    "slo_use",
    "use of the tightest limit (100 % keeps it)",
    Group.THROUGHPUT,
    "tightest limit used",
    SHARE,
    Better.LESS,
)
INPUT_RATE, OUTPUT_RATE = _rate("input"), _rate("output", heading="output tok/s")
ACTIVATION, DEVICE = _peak("activation", heading="activation"), _peak("device")
KV_TOKENS = _room("kv_cache_tokens", "KV cache tokens", "KV cache tokens", COUNT, "KV tokens")

FIGURES = (
    MAKESPAN,
    INPUT_RATE,
    OUTPUT_RATE,
    GOODPUT,
    TIGHTEST_LIMIT,
    *_times("ttft_s", "time to first token", Group.TTFT, p95="p95 first token"),
    *_times("itl_s", "gap between tokens", Group.ITL, max="longest gap"),
    *_times("e2e_s", "whole answer", Group.E2E),
    ACTIVATION,
    DEVICE,
    KV_TOKENS,
    _room("kv_concurrency", "requests of max_model_len at once", "longest requests", MANY),
    _scheduled("steps", "steps", "steps"),
    _scheduled("tokens_per_step", "tokens per step", "tokens per step"),
    _scheduled("chunked_prompts", "prompts read in chunks", "prompts in chunks"),
    _scheduled("chunks_max", "most chunks of one prompt", "most chunks of one"),
    _scheduled("preemptions", "preemptions", "preemptions", better=Better.LESS),
    _scheduled("prefix_hit_rate", "prefix-cache hits", "prefix-cache hits", SHARE),
    replace(
        _scheduled(
            "predicted_prefix_hit_rate", "prefix-cache hits, predicted", "  predicted", SHARE
        ),
        once=True,
    ),
    EQUAL_OUTPUTS,
    _outputs("again", "outputs as before when sent again", "  sent again"),
)
BY_KEY = {figure.key: figure for figure in FIGURES}
BY_PROMISE = {figure.promise: figure for figure in FIGURES if figure.promise}
TTFT_P95, ITL_P99, ITL_MAX, E2E_P95 = (
    BY_KEY[key] for key in ("ttft_s.p95", "itl_s.p99", "itl_s.max", "e2e_s.p95")
)
# What decides between settings: the rest explains it.
DECISIVE = tuple(figure for figure in FIGURES if figure.heading)


def in_group(*groups: Group) -> tuple[Figure, ...]:
    return tuple(figure for figure in FIGURES if figure.group in groups)
