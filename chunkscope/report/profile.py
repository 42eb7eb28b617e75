"""A profile as sections: the lengths by dataset, and where the numbers come from.

Also the shortened list of datasets that plans, prefixes and the page use.
"""

from collections.abc import Sequence
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
    together,
)
from chunkscope.report.section import Cell, Chart, Section, Table, table_of
from chunkscope.report.words import data as words

FIGURES = ("p50", "p95", "p99", "max", ">2K", ">8K")
WIDE = ("mean", "p75", "p90")
MEANINGS = {
    "p50": "half of the prompts are at most this long, in tokens",
    "p95": "19 of 20 prompts are at most this long, in tokens",
    "p99": "99 of 100 prompts are at most this long, in tokens",
    "max": "the longest prompt, in tokens",
    ">2K": "share of prompts over 2,048 tokens",
    ">8K": "share of prompts over 8,192 tokens",
    "prompt field": "which part of a row is the prompt",
}
MOST_LINES = 20  # datasets in the short answer
MOST_ROWS = 1_000  # datasets in the details and on the page
MOST_CURVES = 200
BINS_PER_DOUBLING = 4
# Where the cumulative curve is exact: every percent, and closer where the long prompts are.
PERCENTS = (*range(100), 99.5, 99.9, 100)


def sections(profile: Profile) -> list[Section]:
    bars = tuple((f"{a:,} to {b - 1:,}", n, f"{n:,}") for a, b, n in profile.overall.doubling())
    longest = [
        (f"{dataset.path} {dataset.unit} {prompt.position:,}", prompt.tokens)
        for dataset in profile.datasets
        for prompt in dataset.longest
    ]
    longest.sort(key=lambda prompt: (-prompt[1], prompt[0]))
    return [
        Section(
            sentences=tuple(words.answer(profile)),
            table=lengths_table(shortened(profile.datasets)),
        ),
        Section(chart=Chart(name="lengths", bars=bars)),
        Section(sentences=(words.counted_with(profile),), notes=tuple(words.cautions(profile))),
        Section(
            title="By dataset",
            table=_every_dataset(profile),
            sentences=tuple(words.counting(profile)),
            details=True,
        ),
        Section(
            title="Longest prompts",
            table=table_of(("where", "tokens"), longest[:10]),
            details=True,
        ),
    ]


# -- the list of datasets ------------------------------------------------------------------------

Group = tuple[str, Sequence[DatasetProfile]]  # a dataset or a folder by name, and what is in it


def shortened(datasets: Sequence[DatasetProfile], most: int = MOST_LINES) -> list[Group]:
    """At most `most` lines and one for all: the longest sets by themselves, others as folders.

    Few datasets are all listed, in order.
    """
    whole: list[Group] = [(ALL, datasets)] if len(datasets) > 1 else []
    if len(datasets) <= most:
        return [*((dataset.name, [dataset]) for dataset in datasets), *whole]
    by_length = sorted(datasets, key=lambda dataset: -(dataset.lengths.max or 0))
    alone, others = by_length[: most // 2], by_length[most // 2 :]
    folders: dict[str, list[DatasetProfile]] = {}
    for dataset in others:
        folders.setdefault(dataset.group, []).append(dataset)
    largest = sorted(folders.items(), key=lambda item: -len(item[1]))
    room = most - len(alone)
    if len(largest) > room:
        rest = [dataset for _, members in largest[room - 1 :] for dataset in members]
        largest = [*largest[: room - 1], ("", rest)]
    lines: list[Group] = [(dataset.name, [dataset]) for dataset in alone]
    for folder, members in largest:
        count = f"{len(members):,} others"
        lines.append((f"{folder}/ ({count})" if folder else count, members))
    return [*lines, *whole]


def lengths_table(lines: Sequence[Group]) -> Table | None:
    names = ("prompts", *FIGURES, *WIDE)
    sums = [(name, together(members)) for name, members in lines]
    rows = [(name, *(written(lengths, column) for column in names)) for name, lengths in sums]
    strong = [len(lines) - 1] if lines[1:] else []
    heads = ("tokens per prompt", *names)
    return table_of(heads, rows, wide=WIDE, meanings=MEANINGS, strong=strong)


def written(lengths: LengthHistogram, column: str) -> str:
    """A figure by its heading: `p95` is a percentile, `>2K` a share.

    >>> [written(LengthHistogram.of([10, 20, 3000]), c) for c in ("prompts", "p50", "max", ">2K")]
    ['3', '20', '3,000', '33 %']
    """
    if column.startswith(">"):
        return share(lengths.share_over(LONG_LENGTHS[column[1:]]))
    if column[1:].isdecimal():
        return number(lengths.percentile(float(column[1:])))
    return number(getattr(lengths, {"prompts": "count"}.get(column, column)))


def _every_dataset(profile: Profile) -> Table | None:
    """One line a dataset, to sort and filter on the page."""
    names = ("prompts", *FIGURES)
    rows = [
        (
            Cell(text=dataset.name, note=words.remark(dataset)),
            *(written(dataset.lengths, name) for name in names),
            *(ratio(dataset.chars_per_token), dataset.field or "-"),
        )
        for dataset in profile.datasets[:MOST_ROWS]
    ]
    heads = ("dataset", *names, "chars per token", "prompt field")
    how = {"meanings": MEANINGS, "searchable": len(rows) > 1}
    return table_of(heads, rows, words=heads[-1:], **how)  # type: ignore[arg-type]


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
    old = before.overall if before is not None and before.overall.count else None
    earlier = _percentiles(old) if old else None
    return {"edges": edges, "percents": list(PERCENTS), "sets": sets, "before": earlier}


def bin_edges(shortest: int, longest: int) -> list[int]:
    """Whole numbers, evenly apart on a log axis, around all lengths.

    >>> bin_edges(5, 20)
    [5, 6, 7, 8, 10, 12, 14, 16, 20, 23]
    """
    first = floor(log2(shortest) * BINS_PER_DOUBLING)
    last = floor(log2(longest) * BINS_PER_DOUBLING) + 1
    edges = sorted({ceil(2 ** (at / BINS_PER_DOUBLING)) for at in range(first, last + 1)})
    return [min(edges[0], shortest), *edges[1:-1], max(edges[-1], longest + 1)]


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
    frame = profile.to_frame().rename(columns={"name": "dataset"})
    texts = ["dataset", "group", "path", "format", "field"]
    frame[texts] = frame[texts].map(_no_formula)
    return frame.to_csv(index=False, lineterminator="\n")


def _no_formula(text: str) -> str:
    """A spreadsheet runs what begins like one, unless an apostrophe is before it."""
    text = printable(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
