"""The figures of a simulated or a measured run, and what a run is called."""

from collections.abc import Sequence

from chunkscope.artefacts.figures import (
    FIGURES,
    ITL_MAX,
    ITL_P99,
    MAKESPAN,
    TTFT_P95,
    Figure,
)
from chunkscope.artefacts.numbers import plural
from chunkscope.report.blocks import Table, table
from chunkscope.report.phrases import RUN_NAMES
from chunkscope.report.wording import capital
from chunkscope.simulation.result import SimulatedRun
from chunkscope.verification.result import Run
from chunkscope.vllm.settings import Settings

AnyRun = Run | SimulatedRun

HEADINGS = {
    MAKESPAN.key: "time",
    TTFT_P95.key: "first token p95",
    ITL_P99.key: "gap p99",
    ITL_MAX.key: "longest gap",
}


def run_name(run: AnyRun) -> str:
    """`the plan (vLLM's default)`; for a setting of a sweep its arguments."""
    if not run.setting:
        return point_name(run.settings)
    name = RUN_NAMES.get(run.setting, run.setting)
    if not run.same_as:
        return name
    others = [RUN_NAMES.get(alias, alias) for alias in run.same_as]
    return f"{name} ({', '.join(others)})"


def run_title(run: AnyRun) -> str:
    """The name as a sentence begins with it."""
    return capital(run_name(run))


def point_name(settings: Settings) -> str:
    """
    >>> point_name(Settings(max_num_batched_tokens=512))
    '512 tokens a step'
    """
    name = f"{plural(settings.step_tokens, 'token')} a step"
    threshold = settings.long_prefill_token_threshold
    if threshold:
        return f"{name}, {threshold:,} a prompt"
    return name


def value_of(figure: Figure, run: AnyRun) -> float | None:
    """None where it is not known of the run."""
    return figure.value(run if figure.once else run.figures)


def value_text(figure: Figure, run: AnyRun) -> str:
    return figure.unit.brief(value_of(figure, run))


def figures_table(runs: Sequence[AnyRun]) -> Table:
    """Figures down, runs across."""
    rows = []
    for figure in FIGURES:
        if any(value_of(figure, run) is not None for run in runs):
            rows.append([figure.title, *(value_text(figure, run) for run in runs)])
    return table(["figure", *(run_name(run) for run in runs)], rows)
