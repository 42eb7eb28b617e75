"""A profile as sections: the lengths by dataset, and where the numbers come from.

Also the shortened list of datasets that plans, prefixes and the page use.
"""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chunkscope.artefacts.numbers import number, plural, share
from chunkscope.console import printable
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import ALL, LONG_LENGTHS, DatasetProfile, Profile, together
from chunkscope.prefixes.reuse import PrefixReuse, reuse_together
from chunkscope.report.section import Chart, Section, Table, Written, table_of
from chunkscope.report.words import named, sentence

if TYPE_CHECKING:
    from chunkscope.lengths.trace_export import TraceExport

FIGURES = ("p50", "p95", "p99", "max", ">2K", ">8K")
LONG = 2_048  # tokens: shorter prompts fit a step of every setting people use
MOST_LINES = 20  # datasets in the short answer
MOST_ROWS = 1_000  # datasets in the details and on the page
MOST_CHARTS = 200
MOST_NOTES = 20


def sections(profile: Profile) -> list[Section]:
    longest = [
        (f"{dataset.path} {dataset.unit} {prompt.position:,}", prompt.tokens)
        for dataset in profile.datasets
        for prompt in dataset.longest
    ]
    longest.sort(key=lambda prompt: (-prompt[1], prompt[0]))
    heads = ("where", "tokens")
    return [
        Section(
            sentences=tuple(answer(profile)),
            table=lengths_table(profile.datasets),
            chart=lengths_chart(profile),
        ),
        Section(sentences=(_counted_with(profile),), notes=tuple(cautions(profile))),
        Section(title="By dataset", table=_every_dataset(profile), details=True),
        Section(title="Longest prompts", table=table_of(heads, longest[:5]), details=True),
    ]


# -- what is said --------------------------------------------------------------------------------


def answer(profile: Profile) -> Iterator[str]:
    lengths = profile.overall
    p50, p95 = (number(lengths.percentile(p)) for p in (50, 95))
    sampled = " (a sample)" if any(dataset.sample for dataset in profile.datasets) else ""
    prompts = f"{plural(lengths.count, 'prompt')} in {plural(len(profile.datasets), 'dataset')}"
    yield f"{prompts}{sampled}: median {p50} tokens, p95 {p95}, longest {number(lengths.max)}."
    long = lengths.share_over(LONG)
    matters = f"{share(long)} are longer than {LONG:,} tokens, where chunked prefill matters."
    if not long:
        matters = f"No prompt is longer than {LONG:,} tokens, so chunked prefill hardly matters."
    measured = [dataset.prefixes for dataset in profile.datasets if dataset.prefixes]
    yield f"{matters} {shared(reuse_together(measured))}" if measured else matters


def shared(reuse: PrefixReuse) -> str:
    """What the prefix cache can do."""
    if not reuse.cached_tokens + reuse.unread_tokens:
        return f"No prompt starts like an earlier one{compared(reuse)}."
    use = "so vLLM's prefix cache can serve them"
    tokens = reuse.cached_tokens
    if reuse.unread_tokens > tokens:
        use = "but likelihood requests do not read vLLM's prefix cache"
        tokens += reuse.unread_tokens
    return (
        f"{share(tokens / reuse.tokens)} of the prompt tokens repeat the start of an earlier "
        f"prompt{compared(reuse)}, {use}."
    )


def compared(reuse: PrefixReuse) -> str:
    """Of how many prompts a figure is, where not all were compared; to be put behind it."""
    if not reuse.is_partial:
        return ""
    return f" (judged by {reuse.prompts:,} of {reuse.out_of_prompts:,} prompts)"


def _counted_with(profile: Profile) -> str:
    tokenizer = profile.tokenizer
    if tokenizer.kind == "none":
        return "The lengths came with the data; no tokenizer was needed."
    hint = "" if profile.options.tokenizer else " For your model's: --model NAME."
    return f"Counted with the tokenizer {tokenizer.name}.{hint}"


def cautions(profile: Profile) -> Iterator[str]:
    """What may be missing or wrong, most important first."""
    missing: dict[str, list[str]] = {}
    for dataset in profile.datasets:
        for one in dataset.uncounted:
            missing.setdefault(sentence(one), []).append(dataset.name)
    for text, names in list(missing.items())[:MOST_NOTES]:
        yield f"{named(names)}: {text}"
    yield from map(sentence, profile.tokenizer.notes)
    notes = [(dataset, one) for dataset in profile.datasets for one in dataset.notes]
    for dataset, one in notes[:MOST_NOTES]:
        yield f"{dataset.name}: {sentence(one)}"
    if len(notes) > MOST_NOTES:
        yield f"{len(notes) - MOST_NOTES:,} more notes are in the profile"


def bad_rows(profile: Profile) -> Iterator[str]:
    """The first rows that could not be used, how many there were, and datasets that failed."""
    rows = [(dataset, row) for dataset in profile.datasets for row in dataset.bad_rows]
    for dataset, row in rows[:MOST_NOTES]:
        yield f"bad row: {dataset.path} {dataset.unit} {row.position}: {row.reason}"
    if profile.skipped:
        yield f"{plural(profile.skipped, 'bad row')} skipped and not counted"
    for dataset in profile.failures:
        yield f"error: {dataset.name}: {dataset.failed_because}"


def exported(export: "TraceExport", file: Path) -> Iterator[str]:
    """What is in a trace that was written, and how it is replayed."""
    count = export.assumed_outputs
    assumed = f", {count:,} output lengths assumed" if count else ""
    yield f"wrote {file}: {plural(export.requests, 'request')}, all at once{assumed}"
    yield (
        f"replay it: vllm bench serve --backend vllm --model MODEL --dataset-name timed_trace "
        f"--dataset-path {shlex.quote(str(file))} --num-prompts {export.requests} "
        f"--timed-trace-chunk-hash-size {export.block_size} --timed-trace-sec-multiplier 0.001"
    )


# -- the list of datasets ------------------------------------------------------------------------

Group = tuple[str, Sequence[DatasetProfile]]  # a dataset or a folder by name, and what is in it


def shortened(datasets: Sequence[DatasetProfile], most: int = MOST_LINES) -> list[Group]:
    """At most `most` lines and one for all: sets that stand out by length, others as folders.

    Few datasets are all listed, in order.
    """
    whole: list[Group] = [(ALL, datasets)] if len(datasets) > 1 else []
    if len(datasets) <= most:
        return [*((dataset.name, [dataset]) for dataset in datasets), *whole]
    by_length = sorted(datasets, key=lambda dataset: -(dataset.lengths.max or 0))
    folders: dict[str, list[DatasetProfile]] = {}
    for dataset in by_length:
        folders.setdefault(dataset.name.rpartition("/")[0] or dataset.group, []).append(dataset)
    usual = {d.name: some[len(some) // 2].lengths for some in folders.values() for d in some}
    alone = [d for d in by_length if (d.lengths.max or 0) > 2 * (usual[d.name].max or 0)]
    names = [dataset.name for dataset in alone[: most // 2] or by_length[:1]]
    rest = {name: [d for d in some if d.name not in names] for name, some in folders.items()}
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
    rows = [(name, *(written(lengths, column) for column in names)) for name, lengths in sums]
    strong = [len(rows) - 1] if rows[1:] else []
    heads = ("tokens per prompt", *names)
    return table_of(heads, rows, strong=strong)


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
    """One line a dataset, to sort and filter on the page; of many also their lengths."""
    names = ("prompts", *FIGURES) if len(profile.datasets) > MOST_LINES else ()
    rows: list[tuple[Written, ...]] = [
        (
            dataset.name,
            *(written(dataset.lengths, name) for name in names),
            "-" if (per := dataset.chars_per_token) is None else f"{per:.2f}",
            dataset.field or "-",
        )
        for dataset in profile.datasets[:MOST_ROWS]
    ]
    heads = ("dataset", *names, "chars per token", "prompt field")
    return table_of(heads, rows, words=heads[-1:], searchable=bool(names))


# -- for the page and for other programs ---------------------------------------------------------


def lengths_chart(profile: Profile) -> Chart | None:
    """For the page: how many prompts are how long, in doubling steps, of all and by dataset."""
    longest = sorted(profile.datasets, key=lambda d: -(d.lengths.max or 0))[:MOST_CHARTS]
    some = [dataset for dataset in profile.datasets if dataset in longest and dataset.rows]
    sets = [(ALL, profile.overall), *((d.name, d.lengths) for d in some if len(some) > 1)]
    bins = [{"name": name, "bins": lengths.doubling()} for name, lengths in sets]
    return Chart(name="lengths", data={"sets": bins, "marks": []}) if some else None


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
