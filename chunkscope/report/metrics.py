"""What `verify` measured, figure by figure: how it is read, written and judged."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from chunkscope.engine.logs import Status
from chunkscope.report.figures import NOT_MEASURED, gib, number, seconds, share
from chunkscope.verification.result import Run
from chunkscope.verification.verdict import figure, is_tie, spread

QUANTILES = ("p50", "p95", "p99", "max")
# Memory is read off once per run: there is no spread, and less than this is no difference.
NEGLIGIBLE = 0.02


class Better(StrEnum):
    LESS = "less"
    MORE = "more"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure, by its name in the artefact. `of_run`: not one of those that repeats have."""

    key: str
    title: str
    better: Better
    write: Callable[[float], str]
    of_run: bool = False

    def value(self, run: Run) -> float | None:
        found = getattr(run, self.key) if self.of_run else figure(run.figures, self.key)
        return None if found is None else float(found)

    def shown(self, run: Run) -> str:
        value = self.value(run)
        return NOT_MEASURED if value is None else self.write(value)

    def spread(self, run: Run) -> tuple[float, float] | None:
        """Least and most over the repeats; None when there are not two."""
        return None if self.of_run or len(run.repeats) < 2 else spread(run, self.key)


def _latency(name: str, at: str) -> Metric:
    titles = {
        "ttft_s": "time to first token",
        "itl_s": "gap between tokens",
        "e2e_s": "whole answer",
    }
    which = {"p50": "median", "max": "longest"}.get(at, at)
    return Metric(
        key=f"{name}.{at}", title=f"{which} {titles[name]}", better=Better.LESS, write=seconds
    )


def _count(
    key: str, title: str, better: Better = Better.NEITHER, *, of_run: bool = False
) -> Metric:
    return Metric(key=key, title=title, better=better, write=number, of_run=of_run)


def _memory(key: str, title: str) -> Metric:
    return Metric(key=key, title=title, better=Better.LESS, write=gib, of_run=True)


MAKESPAN = Metric(
    key="makespan_s", title="time for all requests", better=Better.LESS, write=seconds
)
INPUT_RATE = _count("input_tokens_per_s", "input tokens per second", Better.MORE)
OUTPUT_RATE = _count("output_tokens_per_s", "output tokens per second", Better.MORE)
TTFT_P95, ITL_MAX = _latency("ttft_s", "p95"), _latency("itl_s", "max")
ACTIVATION = _memory("activation_peak_gib", "activation peak")
KV_TOKENS = _count("kv_cache_tokens", "KV cache tokens", Better.MORE, of_run=True)
KV_REQUESTS = Metric(
    key="kv_concurrency",
    title="requests of max_model_len at once",
    better=Better.MORE,
    write=lambda value: f"{value:,.1f}",
    of_run=True,
)
PREFIX_HITS = Metric(
    key="prefix_hit_rate", title="prefix-cache hits", better=Better.NEITHER, write=share
)

METRICS: tuple[Metric, ...] = (
    MAKESPAN,
    INPUT_RATE,
    OUTPUT_RATE,
    *(_latency("ttft_s", at) for at in QUANTILES),
    *(_latency("itl_s", at) for at in QUANTILES),
    *(_latency("e2e_s", at) for at in QUANTILES),
    ACTIVATION,
    _memory("device_peak_gib", "device peak"),
    KV_TOKENS,
    KV_REQUESTS,
    _count("steps", "steps"),
    _count("tokens_per_step", "tokens per step"),
    _count("chunked_prompts", "prompts read in chunks"),
    _count("chunks_max", "most chunks of one prompt"),
    _count("preemptions", "preemptions", Better.LESS),
    PREFIX_HITS,
)
# What decides between settings: the rest explains it.
DECISIVE = (MAKESPAN, OUTPUT_RATE, TTFT_P95, ITL_MAX, ACTIVATION, KV_TOKENS)


class Outcome(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    TIE = "tie"
    UNKNOWN = "unknown"  # not measured on one side, or neither way is better


def judge(metric: Metric, run: Run, against: Run) -> Outcome:
    """Is `run` better? A difference within the spread over repeats is a tie."""
    mine, other = metric.value(run), metric.value(against)
    if mine is None or other is None or metric.better is Better.NEITHER:
        return Outcome.UNKNOWN
    if mine == other or _is_noise(metric, run, against):
        return Outcome.TIE
    return Outcome.BETTER if (mine < other) is (metric.better is Better.LESS) else Outcome.WORSE


def _is_noise(metric: Metric, run: Run, against: Run) -> bool:
    if not metric.of_run:
        return is_tie(run, against, metric.key)
    mine, other = metric.value(run) or 0.0, metric.value(against) or 0.0
    return abs(mine - other) <= NEGLIGIBLE * abs(other)


def measured(runs: tuple[Run, ...]) -> Iterator[Metric]:
    """The metrics that at least one run has: a row of "not measured" alone says nothing."""
    for metric in METRICS:
        if any(metric.value(run) is not None for run in runs):
            yield metric


def fate(run: Run) -> str:
    """What became of a run, in words."""
    return {
        Status.OK: "ok",
        Status.OUT_OF_MEMORY: "out of memory",
        Status.TIMEOUT: "timed out",
        Status.REFUSED: "refused by vLLM",
        Status.DIED: "the engine died",
    }[run.status]


def titled(run: Run) -> str:
    """A setting by all its names: the same arguments are measured once.

    >>> about = {"args": {}, "status": Status.OK, "started": "", "took_s": 9.0}
    >>> titled(Run(setting="plan", same_as=("off",), **about))
    'plan = off'
    """
    return " = ".join((run.setting, *run.same_as))
