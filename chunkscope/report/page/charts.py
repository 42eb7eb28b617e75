"""Findings -> what the page's charts draw: plain numbers, small enough for a hundred datasets."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, floor, log2
from typing import Any

from chunkscope.artefacts.figures import (
    INPUT_RATE,
    KV_TOKENS,
    MAKESPAN,
    OUTPUT_RATE,
    QUANTILES,
    Figures,
)
from chunkscope.findings import Findings
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile
from chunkscope.planning.plan import Plan
from chunkscope.report.memory_bill import Bill, bills
from chunkscope.report.page.engines import engine_charts
from chunkscope.report.page.reuse import reuse_chart
from chunkscope.report.runs import fate, titled
from chunkscope.report.tradeoff import Tradeoff
from chunkscope.report.words.verdicts import shown
from chunkscope.verification.result import Run
from chunkscope.verification.verdict import spread, value

BINS_PER_DOUBLING = 4
# Where the cumulative curve is exact: every percent, and closer where the long prompts are.
PERCENTS = (*range(100), 99.5, 99.9, 100)
MARKS = {
    "long_prefill_token_threshold": "threshold",
    "max_num_batched_tokens": "step budget",
    "max_model_len": "max_model_len",
}
MOST_CURVES = 200  # a folder may hold thousands of prompts, one per file
TIMES = ("ttft_s", "itl_s")
PERCENT_OF = dict(zip(QUANTILES, (50, 95, 99, 100), strict=True))


def charts(
    findings: Findings, tradeoff: Tradeoff | None, *, before: Profile | None = None
) -> dict[str, Any]:
    """Each chart's data, or null where there is nothing to draw."""
    found = findings.profile
    has_prompts = found is not None and found.overall.count > 0
    runs = findings.verification.runs if findings.verification else ()
    return {
        "lengths": _lengths(found, before) if found is not None and has_prompts else None,
        "marks": list(_marks(findings.plan)) if findings.plan else [],
        "reuse": reuse_chart(found, findings.plan),
        "memory": _memory(findings),
        "latency": list(_latencies(runs)),
        "bars": list(_bars(runs)),
        "curves": curves(runs),
        "settings": [titled(run) for run in runs],
        "tradeoff": tradeoff.points_json() if tradeoff else [],
        "axes": tradeoff.axes_json() if tradeoff else None,
        "rates": tradeoff.rates_json() if tradeoff else None,
        "timeline": tradeoff.timeline_json() if tradeoff else [],
        "engines": engine_charts(findings.diagnosis),
    }


# -- lengths -------------------------------------------------------------------------------------


def _lengths(profile: Profile, before: Profile | None) -> dict[str, Any]:
    overall = profile.overall
    edges = bin_edges(max(1, overall.min or 1), max(1, overall.max or 1))
    sets = [{"name": ALL, **_curve(overall, edges)}]
    if len(profile.datasets) > 1:
        sets += [{"name": d.name, **_curve(d.lengths, edges)} for d in drawn(profile)]
    comparable = before is not None and before.overall.count > 0
    return {
        "edges": edges,
        "percents": list(PERCENTS),
        "sets": sets,
        "before": _percentiles(before.overall) if before is not None and comparable else None,
    }


def drawn(profile: Profile) -> list[DatasetProfile]:
    """The datasets with a curve of their own: those with the longest prompts, if there are many."""
    filled = [dataset for dataset in profile.datasets if dataset.lengths.count]
    longest = sorted(filled, key=lambda dataset: -(dataset.lengths.max or 0))[:MOST_CURVES]
    names = {dataset.name for dataset in longest}
    return [dataset for dataset in filled if dataset.name in names]


def bin_edges(shortest: int, longest: int) -> list[int]:
    """Whole numbers, evenly apart on a log axis, around all lengths.

    >>> bin_edges(5, 20)
    [5, 6, 7, 8, 10, 12, 14, 16, 20, 23, 27]
    """
    first = floor(log2(shortest) * BINS_PER_DOUBLING)
    last = ceil(log2(longest + 1) * BINS_PER_DOUBLING) + 1
    found = sorted({ceil(2 ** (at / BINS_PER_DOUBLING)) for at in range(first, last + 1)})
    below = [edge for edge in found if edge <= shortest][-1:]
    inside = [edge for edge in found if shortest < edge <= longest]
    above = [edge for edge in found if edge > longest][:2]
    return [*below, *inside, *above]


def _curve(lengths: LengthHistogram, edges: list[int]) -> dict[str, Any]:
    """An empty prompt has no place on a log axis: it is counted with those of one token."""
    counts = [lengths.over(low - 1) - lengths.over(high - 1) for low, high in pairwise(edges)]
    counts[0] += lengths.count - lengths.over(edges[0] - 1)
    return {"rows": lengths.count, "counts": counts, "at": _percentiles(lengths)}


def _percentiles(lengths: LengthHistogram) -> list[float]:
    found = (lengths.percentile(percent) for percent in PERCENTS)
    return [round(value, 1) for value in found if value is not None]


def _marks(plan: Plan) -> Iterator[dict[str, Any]]:
    """The lengths that matter to the engine, drawn into the distribution."""
    known = plan.effective.given()
    for name, label in MARKS.items():
        value = known.get(name)
        if type(value) is int and value > 0:
            yield {"label": label, "tokens": value, "kind": name}


# -- memory --------------------------------------------------------------------------------------


def _memory(findings: Findings) -> dict[str, Any] | None:
    found = bills(findings)
    if found is None:
        return None
    return {
        "parts": found.parts,
        "limit": found.limit_gib,
        "allowed": found.allowed_gib,
        "gpu": found.gpu,
        "bills": [_bill(bill) for bill in found.bills],
    }


def _bill(bill: Bill) -> dict[str, Any]:
    return {
        "setting": bill.setting,
        "label": bill.label.value,
        "parts": {name: round(gib, 4) for name, gib in bill.parts.items()},
        "tokens": bill.kv_cache_tokens,
        "peak": bill.peak_gib,
        "fate": bill.fate,
    }


# -- measured ------------------------------------------------------------------------------------


def curves(runs: Sequence[Run]) -> dict[str, list[dict[str, Any]]]:
    """Per figure, how its values are spread in each setting: pairs of percentile and seconds.

    A run without a distribution, from an older version, has its quantiles; a figure of which no
    run has more than those has no curve.
    """
    found = {name: list(_spreads(runs, name)) for name in TIMES}
    return {name: spreads for name, spreads in found.items() if any(s["whole"] for s in spreads)}


def _spreads(runs: Sequence[Run], name: str) -> Iterator[dict[str, Any]]:
    for run in runs:
        values: tuple[float, ...] = getattr(run.distribution, name, None) or ()
        if whole := len(values) > 1:
            at = [[100 * i / (len(values) - 1), value] for i, value in enumerate(values)]
        elif quantiles := _quantiles(run.figures, name, "all"):
            at = [[PERCENT_OF[which], value] for which, value in quantiles.items()]
        else:
            continue
        rounded = [[percent, float(f"{value:.4g}")] for percent, value in at]
        yield {"setting": titled(run), "whole": whole, "at": rounded}


def _latencies(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """One row per setting, figure and kind of prompt; failed runs have none."""
    for run in runs:
        for name in TIMES:
            for group in ("all", "short", "long"):
                found = _quantiles(run.figures, name, group)
                if found is not None:
                    row = {"setting": titled(run), "figure": name, "group": group}
                    yield {**row, **found, "spread": list(_spread(run, name, group))}


def _quantiles(figures: Figures | None, name: str, group: str) -> dict[str, float] | None:
    latencies = figures if group == "all" else getattr(figures, group, None)
    found = getattr(latencies, name, None)
    return {at: getattr(found, at) for at in QUANTILES} if found else None


def _spread(run: Run, name: str, group: str) -> Iterator[dict[str, Any]]:
    each = [found for r in run.repeats if (found := _quantiles(r, name, group))]
    if len(each) > 1:
        for at in QUANTILES:
            values = [found[at] for found in each]
            yield {"at": at, "min": min(values), "max": max(values)}


def _bars(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    for figure in (MAKESPAN, INPUT_RATE, OUTPUT_RATE, KV_TOKENS):
        for run in runs:
            ends = spread(run, figure) if len(run.repeats) > 1 else None
            yield {
                "figure": figure.key,
                "title": figure.title,
                "better": figure.better.value,
                "setting": titled(run),
                "value": value(run, figure),
                "shown": shown(figure, run) if run.ok else fate(run),
                "ok": run.ok,
                "min": ends[0] if ends else None,
                "max": ends[1] if ends else None,
            }
