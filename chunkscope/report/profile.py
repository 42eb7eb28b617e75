"""A profile as sections: the lengths by dataset, and where the numbers come from.

Also the shortened list of datasets that plans, prefixes and the page use.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, floor, log2
from typing import Any

from chunkscope.artefacts.numbers import number, ratio, share
from chunkscope.console import printable
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import (
    ALL,
    LONG_LENGTHS,
    DatasetProfile,
    Profile,
    shares,
    together,
)
from chunkscope.report.section import Cell, Chart, Column, Section, Table, figures
from chunkscope.report.words import data as words

FIGURES = ("p50", "p95", "p99", "max", ">2K", ">8K")
MEANINGS = {
    "prompts": "prompts that were counted",
    "p50": "half of the prompts are at most this long, in tokens",
    "p95": "19 of 20 prompts are at most this long, in tokens",
    "p99": "99 of 100 prompts are at most this long, in tokens",
    "max": "the longest prompt, in tokens",
    ">2K": "share of prompts over 2,048 tokens",
    ">8K": "share of prompts over 8,192 tokens",
}
MOST_LINES = 20  # datasets in the short answer
MOST_ROWS = 1_000  # datasets in the details and on the page
MOST_CURVES = 200
BINS_PER_DOUBLING = 4
# Where the cumulative curve is exact: every percent, and closer where the long prompts are.
PERCENTS = (*range(100), 99.5, 99.9, 100)
_CSV = ("mean", "min", "p50", "p75", "p90", "p95", "p99", "max", "total")


def sections(profile: Profile) -> list[Section]:
    return [
        Section(
            sentences=tuple(words.answer(profile)),
            table=lengths_table(profile, shortened(profile.datasets)),
        ),
        Section(chart=Chart(name="lengths", bars=tuple(_bars(profile.overall)))),
        Section(sentences=(words.counted_with(profile),), notes=tuple(words.cautions(profile))),
        Section(
            title="By dataset",
            table=_every_dataset(profile),
            sentences=tuple(words.counting(profile)),
            details=True,
        ),
        Section(title="Longest prompts", table=_longest(profile), details=True),
    ]


# -- the list of datasets ------------------------------------------------------------------------

Group = tuple[str, Sequence[DatasetProfile]]  # a dataset or a folder by name, and what is in it


def shortened(datasets: Sequence[DatasetProfile], most: int = MOST_LINES) -> list[Group]:
    """At most `most` lines: the longest sets by themselves, the others as folders.

    Few datasets are all listed, in order.
    """
    if len(datasets) <= most:
        return [(dataset.name, [dataset]) for dataset in datasets]
    by_length = sorted(datasets, key=lambda dataset: -(dataset.lengths.max or 0))
    alone = {dataset.name for dataset in by_length[: most // 2]}
    folders: dict[str, list[DatasetProfile]] = {}
    for dataset in datasets:
        if dataset.name not in alone:
            folders.setdefault(dataset.group, []).append(dataset)
    largest = sorted(folders.items(), key=lambda item: -len(item[1]))
    room = most - len(alone)
    if len(largest) > room:
        rest = [dataset for _, members in largest[room - 1 :] for dataset in members]
        largest = [*largest[: room - 1], ("", rest)]
    lines: list[Group] = [(d.name, [d]) for d in by_length if d.name in alone]
    for folder, members in largest:
        others = f"{len(members):,} {'others' if alone else 'datasets'}"
        lines.append((f"{folder}/ ({others})" if folder else others, members))
    return lines


def lengths_table(profile: Profile, lines: Sequence[Group]) -> Table:
    wide = ("mean", "p75", "p90")
    columns = [
        *figures("tokens per prompt", "prompts"),
        *(Column(heading=name, meaning=MEANINGS.get(name, "")) for name in FIGURES),
        *(Column(heading=name, wide=True) for name in wide),
    ]
    rows = [(name, *_cells(together(members), wide)) for name, members in lines]
    if len(rows) > 1:
        rows.append((ALL, *_cells(profile.overall, wide)))
    strong = (len(rows) - 1,) if len(rows) > 1 else ()
    return Table(columns=tuple(columns), rows=tuple(rows), strong=strong)


def _cells(lengths: LengthHistogram, wide: Iterable[str]) -> list[str]:
    return [written(lengths, column) for column in ("count", *FIGURES, *wide)]


def written(lengths: LengthHistogram, column: str) -> str:
    """A figure by its heading: `p95` is a percentile, `>2K` a share.

    >>> [written(LengthHistogram.of([10, 20, 3000]), c) for c in ("count", "p50", "max", ">2K")]
    ['3', '20', '3,000', '33 %']
    """
    return (share if column.startswith(">") else number)(length(lengths, column))


def length(lengths: LengthHistogram, column: str) -> float | None:
    if column.startswith(">"):
        return lengths.share_over(LONG_LENGTHS[column[1:]])
    if column.startswith("p"):
        return lengths.percentile(float(column[1:]))
    figure: float | None = getattr(lengths, column)
    return figure


def _every_dataset(profile: Profile) -> Table:
    """One line a dataset, to sort and filter on the page."""
    headings = ("prompts", *FIGURES, "chars per token")
    columns = [
        Column(heading="dataset", right=False),
        *(Column(heading=name, meaning=MEANINGS.get(name, "")) for name in headings),
        Column(heading="prompt field", right=False, meaning="which part of a row is the prompt"),
    ]
    rows: list[tuple[Cell | str, ...]] = []
    for dataset in profile.datasets[:MOST_ROWS]:
        lengths = dataset.lengths
        cells = [
            Cell(text=written(lengths, column), sort=length(lengths, column))
            for column in ("count", *FIGURES)
        ]
        name = Cell(text=dataset.name, note=words.remark(dataset), sort=dataset.name.lower())
        per_token = Cell(text=ratio(dataset.chars_per_token), sort=dataset.chars_per_token)
        rows.append((name, *cells, per_token, dataset.field or "-"))
    return Table(columns=tuple(columns), rows=tuple(rows), searchable=True)


def _longest(profile: Profile, most: int = 10) -> Table | None:
    prompts = [
        (prompt.tokens, dataset.path, f"{dataset.unit} {prompt.position:,}")
        for dataset in profile.datasets
        for prompt in dataset.longest
    ]
    prompts.sort(key=lambda prompt: (-prompt[0], prompt[1:]))
    rows = tuple((f"{path} {place}", f"{tokens:,}") for tokens, path, place in prompts[:most])
    return Table(columns=figures("where", "tokens"), rows=rows) if rows else None


def _bars(lengths: LengthHistogram) -> Iterable[tuple[str, float, str]]:
    """How many prompts are how long, in doubling steps."""
    for low, high, count in lengths.doubling():
        yield f"{low:,} to {high - 1:,}", count, f"{count:,}"


# -- for the page and for other programs ---------------------------------------------------------


def lengths_chart(profile: Profile, before: Profile | None = None) -> dict[str, Any] | None:
    """Histogram and cumulative curve of all prompts and of each dataset; None without prompts."""
    overall = profile.overall
    if not overall.count:
        return None
    edges = bin_edges(max(1, overall.min or 1), max(1, overall.max or 1))
    sets = [{"name": ALL, **_curve(overall, edges)}]
    filled = [dataset for dataset in profile.datasets if dataset.lengths.count]
    if len(filled) > 1:
        longest = sorted(filled, key=lambda dataset: -(dataset.lengths.max or 0))[:MOST_CURVES]
        sets += [{"name": d.name, **_curve(d.lengths, edges)} for d in filled if d in longest]
    comparable = before is not None and before.overall.count > 0
    return {
        "edges": edges,
        "percents": list(PERCENTS),
        "sets": sets,
        "before": _percentiles(before.overall) if before is not None and comparable else None,
    }


def bin_edges(shortest: int, longest: int) -> list[int]:
    """Whole numbers, evenly apart on a log axis, around all lengths.

    >>> bin_edges(5, 20)
    [5, 6, 7, 8, 10, 12, 14, 16, 20, 23, 27]
    """
    first = floor(log2(shortest) * BINS_PER_DOUBLING)
    last = ceil(log2(longest + 1) * BINS_PER_DOUBLING) + 1
    edges = sorted({ceil(2 ** (at / BINS_PER_DOUBLING)) for at in range(first, last + 1)})
    below = [edge for edge in edges if edge <= shortest][-1:]
    inside = [edge for edge in edges if shortest < edge <= longest]
    above = [edge for edge in edges if edge > longest][:2]
    return [*below, *inside, *above]


def _curve(lengths: LengthHistogram, edges: list[int]) -> dict[str, Any]:
    """An empty prompt has no place on a log axis: it is counted with those of one token."""
    counts = [lengths.over(low - 1) - lengths.over(high - 1) for low, high in pairwise(edges)]
    counts[0] += lengths.count - lengths.over(edges[0] - 1)
    return {"rows": lengths.count, "counts": counts, "at": _percentiles(lengths)}


def _percentiles(lengths: LengthHistogram) -> list[float]:
    values = (lengths.percentile(percent) for percent in PERCENTS)
    return [round(value, 1) for value in values if value is not None]


def as_csv(profile: Profile) -> str:
    """One row a dataset, in full precision."""
    buffer = io.StringIO()
    over = list(shares(profile.overall))
    labels = ("name", "group", "path", "format", "field")
    writer = csv.writer(buffer, lineterminator="\n")
    heading = ["dataset", *labels[1:], "rows", "skipped", "chars"]
    writer.writerow([*heading, *_CSV, *(f"over_{label}" for label in over), "sampled"])
    for dataset in profile.datasets:
        summary = dataset.lengths.summary()
        writer.writerow(
            [
                *(_csv_text(getattr(dataset, label)) for label in labels),
                *(dataset.rows, dataset.skipped, dataset.chars),
                *(summary[name] for name in _CSV),
                *shares(dataset.lengths).values(),
                dataset.sample.out_of if dataset.sample else "",
            ]
        )
    return buffer.getvalue()


def _csv_text(text: str) -> str:
    """A spreadsheet runs what begins like a formula, unless there is an apostrophe before it.

    >>> _csv_text("=1+1")
    "'=1+1"
    """
    text = printable(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
