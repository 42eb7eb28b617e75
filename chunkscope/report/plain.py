"""The profile as CSV and as Markdown: one row per dataset, then all together."""

import csv
import io
from typing import Any

from chunkscope.artefacts.numbers import number, share
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile, Profile, shares
from chunkscope.report.markdown import table, text
from chunkscope.report.sentences import samples

_FIGURES = ("count", "mean", "min", "p50", "p75", "p90", "p95", "p99", "max", "total")


def as_csv(profile: Profile) -> str:
    """Full precision, for other programs."""
    buffer = io.StringIO()
    over = list(shares(profile.overall))
    heading = ["dataset", "group", "path", "format", "field", "rows", "skipped", "chars"]
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*heading, *_FIGURES[1:], *(f"over_{label}" for label in over), "sampled"])
    for dataset in profile.datasets:
        writer.writerow(_csv_row(dataset))
    return buffer.getvalue()


def _csv_row(dataset: DatasetProfile) -> list[Any]:
    summary = dataset.lengths.summary()
    about = [dataset.name, dataset.group, dataset.path, dataset.format, dataset.field]
    sampled = dataset.sample.out_of if dataset.sample else ""
    return [
        *about,
        dataset.rows,
        dataset.skipped,
        dataset.chars,
        *(summary[name] for name in _FIGURES[1:]),
        *shares(dataset.lengths).values(),
        sampled,
    ]


def as_markdown(profile: Profile) -> str:
    """For a pull request or a wiki page."""
    headings = ["dataset", "prompt", "rows", "p50", "p90", "p95", "p99", "max"]
    rows = [
        [text(_name(dataset)), text(dataset.field), *_figures(dataset.lengths)]
        for dataset in profile.datasets
    ]
    if len(profile.datasets) > 1:
        rows.append(["**all together**", "", *_figures(profile.overall)])
    about = [f"Tokenizer: {profile.tokenizer.name}", *samples(profile)]
    lines = table([*headings, "over 2K", "over 8K"], rows, left=2)
    return "\n".join([lines, "", "  \n".join(map(text, about)), ""])


def _name(dataset: DatasetProfile) -> str:
    return dataset.name + (" (sample)" if dataset.sample else "")


def _figures(lengths: LengthHistogram) -> list[str]:
    percentiles = [number(lengths.percentile(p)) for p in (50, 90, 95, 99)]
    over = [share(lengths.share_over(limit)) for limit in (2048, 8192)]
    return [number(lengths.count), *percentiles, number(lengths.max), *over]
