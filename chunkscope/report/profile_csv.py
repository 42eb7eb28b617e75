"""The profile as CSV: one row per dataset."""

import csv
import io
from typing import Any

from chunkscope.console import printable
from chunkscope.lengths.profile import DatasetProfile, Profile, shares

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


def _cell(words: str) -> str:
    """A spreadsheet runs what begins like a formula, unless there is an apostrophe before it.

    >>> _cell("=1+1")
    "'=1+1"
    """
    words = printable(words)
    return f"'{words}" if words.startswith(("=", "+", "-", "@")) else words


def _csv_row(dataset: DatasetProfile) -> list[Any]:
    summary = dataset.lengths.summary()
    about = [dataset.name, dataset.group, dataset.path, dataset.format, dataset.field]
    about = [_cell(words) for words in about]
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
