"""The profile as CSV and as Markdown: one row per dataset, then all together."""

import csv
import io
from typing import Any

from chunkscope.histogram import LengthHistogram
from chunkscope.profile import DatasetProfile, Profile, shares
from chunkscope.report.figures import number, samples, share

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
    headings = [
        "dataset",
        "prompt",
        "rows",
        "p50",
        "p90",
        "p95",
        "p99",
        "max",
        "over 2K",
        "over 8K",
    ]
    lines = [_line(headings), _line(["---", "---", *["---:"] * (len(headings) - 2)])]
    for dataset in profile.datasets:
        name = dataset.name + (" (sample)" if dataset.sample else "")
        lines.append(_line([_cell(name), _cell(dataset.field), *_figures(dataset.lengths)]))
    if len(profile.datasets) > 1:
        lines.append(_line(["**all together**", "", *_figures(profile.overall)]))
    about = [f"Tokenizer: {profile.tokenizer.name}", *samples(profile)]
    return "\n".join([*lines, "", "  \n".join(map(_cell, about)), ""])


def _figures(lengths: LengthHistogram) -> list[str]:
    percentiles = [number(lengths.percentile(p)) for p in (50, 90, 95, 99)]
    over = [share(lengths.share_over(limit)) for limit in (2048, 8192)]
    return [number(lengths.count), *percentiles, number(lengths.max), *over]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Text from users must not end the cell, nor become markup."""
    escaped = "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in text)
    return " ".join(escaped.split())
