"""The profile on a terminal: a sentence, a table, a histogram. Reads well without colour."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.numbers import number, plural, ratio, share
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile, together
from chunkscope.report import prefix_words, sentences
from chunkscope.report.length_columns import length_cells
from chunkscope.report.terminal.tables import figure_table

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 112
_COLUMNS = ("p50", "p95", "p99", "max", ">2K", ">8K")
_WIDE_COLUMNS = ("mean", "p50", "p75", "p90", "p95", "p99", "max", ">2K", ">8K")
_MOST_DATASETS = 100  # a folder may hold thousands of prompts, one per file
_EIGHTHS: tuple[str, ...] = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def show_profile(profile: Profile, console: "Console", *, longest: int = 0) -> None:
    for sentence in sentences.left_out(profile):  # before a figure that may mislead
        console.print(Text(sentence))
        console.print()
    console.print(_headline(profile))
    console.print()
    console.print(_table(profile, wide=console.width >= _WIDE))
    console.print()
    full_blocks = console.encoding.startswith("utf")
    for line in _histogram(profile.overall, min(console.width, 100), full_blocks=full_blocks):
        console.print(line)
    console.print()
    console.print(_meaning(profile))
    if sharing := _sharing(profile):
        console.print(sharing)
    if longest:
        console.print()
        for line in _longest(profile, longest):
            console.print(line)
    console.print()
    for line in _about(profile):
        console.print(line)


def _headline(profile: Profile) -> Text:
    lengths = profile.overall
    sampled = " (a sample, see below)" if any(d.sample for d in profile.datasets) else ""
    return Text(
        f"{sentences.prompts(profile)}{sampled}: "
        f"half are at most {number(lengths.percentile(50))} tokens long, "
        f"the longest is {number(lengths.max)}."
    )


def _meaning(profile: Profile) -> Text:
    """What a newcomer should take from it: which part chunked prefill is about."""
    long = profile.overall.share_over(2048)
    over = f"{share(long)} of these prompts are" if long else "None of these prompts is"
    if any(dataset.left_out for dataset in profile.datasets):
        over = f"As counted, {over[0].lower()}{over[1:]}"
    return Text(
        "vLLM reads a prompt in one step if it fits the step's token budget, and in chunks if "
        f"not. {over} over 2,048 tokens, where chunking starts to matter."
    )


def _sharing(profile: Profile) -> Text | None:
    """How much of it need not be computed again; None where it was not measured."""
    measured = prefix_words.measured_in(profile)
    if not measured:
        return None
    reuse = prefix_words.all_of(measured)
    if not reuse.cached_tokens:
        return Text("No prompt begins as an earlier one: vLLM's prefix cache has nothing to spare.")
    found = prefix_words.rate(reuse.cached_tokens, reuse.tokens)
    return Text(
        f"{found} of the tokens begin a prompt as an earlier one began: vLLM's prefix cache can "
        "spare them (see `chunkscope prefixes`)."
    )


def _table(profile: Profile, *, wide: bool) -> Table:
    headings = (*_WIDE_COLUMNS, "char/tok") if wide else _COLUMNS
    table = figure_table("tokens per prompt", ("rows", *headings), ratio=1)
    if wide:
        table.add_column("prompt field", overflow="ellipsis", no_wrap=True, max_width=28)
    room = _MOST_DATASETS
    left_out: list[DatasetProfile] = []
    for group, members in profile.groups.items():
        # A folder gets a line of its own only where it says more than its one dataset.
        indent = ""
        if room and len(profile.groups) > 1 and len(members) > 1 and group:
            table.add_row(Text(f"{group}/"), *_cells(together(members), members, wide=wide))
            indent = "  "
        for dataset in members[:room]:
            name = Text(indent + _name_in(group if indent else "", dataset))
            cells = _cells(dataset.lengths, [dataset], wide=wide)
            table.add_row(name, *cells, *([Text(dataset.field or "-")] if wide else []))
        left_out += members[room:]
        room = max(0, room - len(members))
    if left_out:
        cells = _cells(together(left_out), left_out, wide=wide)
        table.add_row(f"... and {len(left_out):,} more", *cells)
    if len(profile.datasets) > 1:
        table.add_section()
        cells = _cells(profile.overall, profile.datasets, wide=wide)
        table.add_row(ALL, *cells, style="bold")
    return table


def _name_in(group: str, dataset: DatasetProfile) -> str:
    """A dataset below the line of its folder needs no folder in its name."""
    folder = group.rpartition("/")[2]
    return dataset.name.removeprefix(f"{folder}/") if group else dataset.name


def _cells(lengths: LengthHistogram, members: Sequence[DatasetProfile], *, wide: bool) -> list[str]:
    cells = length_cells(lengths, ("count", *(_WIDE_COLUMNS if wide else _COLUMNS)))
    return [*cells, ratio(_chars_per_token(members))] if wide else cells


def _chars_per_token(members: Sequence[DatasetProfile]) -> float | None:
    textual = [dataset for dataset in members if dataset.chars is not None]
    tokens = sum(dataset.lengths.total for dataset in textual)
    return sum(dataset.chars or 0 for dataset in textual) / tokens if tokens else None


def _histogram(lengths: LengthHistogram, width: int, *, full_blocks: bool = True) -> list[Text]:
    """How many prompts are how long, in doubling steps from the shortest to the longest."""
    rows = [(f"{low:,} to {high - 1:,}", count) for low, high, count in lengths.doubling()]
    if not rows:
        return []
    label_width = max(len(label) for label, _ in rows)
    room = max(10, width - label_width - 24)
    largest = max(count for _, count in rows)
    bar = _bar if full_blocks else _ascii_bar
    return [
        Text(f"{label:>{label_width}}  {bar(count, largest, room)} {count:,}", no_wrap=True)
        for label, count in rows
    ]


def _bar(count: int, largest: int, room: int) -> str:
    """A bar in eighths of a character; what is there at all is visible."""
    eighths = max(1, round(count / largest * room * 8)) if count else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


def _ascii_bar(count: int, largest: int, room: int) -> str:
    """For terminals that have no blocks."""
    return "#" * max(1, round(count / largest * room)) if count else ""


def _longest(profile: Profile, count: int) -> list[Text]:
    found = [
        (prompt.tokens, dataset.path, dataset.unit, prompt.position)
        for dataset in profile.datasets
        for prompt in dataset.longest
    ]
    found.sort(key=lambda item: (-item[0], item[1], item[3]))
    lines = [Text("the longest prompts")]
    lines += [
        Text(f"{tokens:>9,}  {path} {unit} {position:,}", overflow="fold")
        for tokens, path, unit, position in found[:count]
    ]
    return lines


def _about(profile: Profile) -> list[Text]:
    """Where the numbers come from: they mean nothing without it."""
    tokenizer = profile.tokenizer
    if tokenizer.kind == "none":
        return [Text("The lengths came with the data; no tokenizer was needed.")]
    lines = [
        Text(
            f"Counted with the tokenizer {tokenizer.name}, by {_engines(tokenizer.engine)}. "
            "Another model's tokenizer gives other lengths: pass yours with --tokenizer."
        )
    ]
    lines.append(Text(f"Prompt field: {_fields(profile)}."))
    is_all_logs = all(dataset.log for dataset in profile.datasets)  # they are as they were sent
    if (added := tokenizer.special_tokens_added) and not is_all_logs:
        lines.append(Text(f"Each text prompt includes {plural(added, 'special token')}."))
    return [*lines, *map(Text, sentences.samples(profile))]


def _engines(names: str) -> str:
    """
    >>> _engines("fastokens 0.3.5 + splintr 0.22.0")
    'fastokens and splintr'
    """
    return " and ".join(name.split(" ")[0] for name in names.split(" + "))


def _fields(profile: Profile) -> str:
    """Which field was taken as the prompt, by dataset where they differ."""
    by_field: dict[str, list[str]] = {}
    for dataset in profile.datasets:
        by_field.setdefault(dataset.field or "none", []).append(dataset.name)
    if len(by_field) == 1:
        return next(iter(by_field))
    return ", ".join(f"{field} in {_some(names)}" for field, names in by_field.items())


def _some(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if more else " and ".join(names)
