"""A profile as sections: the lengths by dataset, and where the numbers come from.

Also the shortened list of datasets that plans, prefixes and the page use.
"""

from collections.abc import Sequence

from chunkscope.artefacts.numbers import number, share
from chunkscope.console import printable
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import (
    ALL,
    LONG_LENGTHS,
    DatasetProfile,
    Profile,
    together,
)
from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.section import Chart, Section, Table, table_of
from chunkscope.report.words import data as words

FIGURES = ("p50", "p95", "p99", "max", ">2K", ">8K")
MOST_LINES = 20  # datasets in the short answer
MOST_ROWS = 500  # datasets in the details: GitHub drops a summary over 1 MiB
MOST_CHARTS = 200


def sections(profile: Profile) -> list[Section]:
    longest = [
        (f"{dataset.path} {dataset.unit} {prompt.position:,}", prompt.tokens)
        for dataset in profile.datasets
        for prompt in dataset.longest
    ]
    longest.sort(key=lambda prompt: (-prompt[1], prompt[0]))
    rows = table_of(("where", "tokens"), longest[: profile.options.keep_longest])
    return [
        Section(
            sentences=tuple(words.lengths(profile)),
            table=lengths_table(profile.datasets),
            chart=lengths_chart(profile),
        ),
        Section(
            sentences=(words.counted_with(profile),),
            notes=tuple(words.cautions(profile)),
        ),
        Section(title="By dataset", table=_every_dataset(profile), details=True),
        Section(title="Longest prompts", table=rows, details=True),
    ]


# -- the list of datasets ------------------------------------------------------------------------

Group = tuple[
    str, Sequence[DatasetProfile]
]  # a dataset or a folder by name, and what is in it


def shortened(
    datasets: Sequence[DatasetProfile], most: int = MOST_LINES
) -> list[Group]:
    """At most `most` lines and one for all: sets with long prompts, others as folders.

    Few datasets are all listed, in order.
    """
    whole: list[Group] = [(ALL, datasets)] if len(datasets) > 1 else []
    if len(datasets) <= most:
        return [*((dataset.name, [dataset]) for dataset in datasets), *whole]
    by_length = sorted(datasets, key=lambda dataset: -(dataset.lengths.max or 0))
    folders: dict[str, list[DatasetProfile]] = {}
    for dataset in by_length:
        folders.setdefault(dataset.name.rpartition("/")[0] or dataset.group, []).append(
            dataset
        )
    long = [dataset for dataset in by_length if (dataset.lengths.max or 0) > words.LONG]
    names = [dataset.name for dataset in long[: most // 2] or by_length[:1]]
    rest = {
        name: [d for d in some if d.name not in names] for name, some in folders.items()
    }
    if len(rest) > most - len(names):
        rest = {"": [dataset for some in rest.values() for dataset in some]}
    lines: list[Group] = [(d.name, [d]) for d in by_length if d.name in names]
    for folder, some in rest.items():
        count = f"{folder}/ ({len(some):,} sets)" if folder else f"{len(some):,} sets"
        lines += [(count if some[1:] else some[0].name, some)] if some else []
    return [*lines, *whole]


def lengths_table(datasets: Sequence[DatasetProfile]) -> Table | None:
    names = ("prompts", *FIGURES)
    sums = [(name, together(members)) for name, members in shortened(datasets)]
    rows = [
        (name, *(written(lengths, column) for column in names))
        for name, lengths in sums
    ]
    return table_of(
        ("tokens per prompt", *names), rows, strong=[len(rows) - 1] if rows[1:] else []
    )


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
    """One line a dataset; of many also their lengths."""
    names = ("prompts", *FIGURES) if len(profile.datasets) > MOST_LINES else ()
    rows = []
    for dataset in profile.datasets[:MOST_ROWS]:
        figures = (written(dataset.lengths, name) for name in names)
        per = (
            None
            if dataset.chars_per_token is None
            else f"{dataset.chars_per_token:.2f}"
        )
        rows.append((dataset.name, *figures, per, dataset.field or None))
    heads = ("dataset", *names, "chars per token", "prompt field")
    return table_of(heads, rows, words=heads[-1:])


# -- for the page and for other programs ---------------------------------------------------------


def lengths_chart(profile: Profile) -> Chart | None:
    """For the page: how many prompts are how long, in doubling steps, of all and by dataset."""
    longest = sorted(profile.datasets, key=lambda d: -(d.lengths.max or 0))[
        :MOST_CHARTS
    ]
    some = [dataset for dataset in longest if dataset.rows]
    sets = [
        (ALL, profile.overall),
        *((d.name, d.lengths) for d in some if len(some) > 1),
    ]
    bins = [{"name": name, "bins": lengths.doubling()} for name, lengths in sets]
    return Chart(name="lengths", data={"sets": bins, "marks": []}) if some else None


def as_csv(profile: Profile) -> str:
    """One row a dataset, in full precision."""
    frame = profile.to_frame().rename(columns={"name": "dataset"})
    texts = ["dataset", "group", "path", "format", "field"]
    frame[texts] = frame[texts].map(printable).map(_no_formula)
    return frame.to_csv(index=False, lineterminator="\n")


def _no_formula(text: str) -> str:
    """An apostrophe keeps a spreadsheet from running the text as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def profile_blocks(artefact: Profile) -> "list[Block]":
    return blocks_of(sections(artefact))
