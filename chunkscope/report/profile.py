"""A profile as blocks: how long the prompts are, dataset by dataset, and what to doubt.

Also the shortened list of datasets, which the table of shared prefixes has, too.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chunkscope.artefacts.note import Note
from chunkscope.artefacts.numbers import number, plural, seconds, share
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import (
    ALL,
    LONG_LENGTHS,
    DatasetProfile,
    Profile,
    guessed_fields,
    together,
)
from chunkscope.lengths.sessions import SessionFigures
from chunkscope.prefixes.reuse import PrefixReuse, reuse_together
from chunkscope.report.blocks import (
    Block,
    Details,
    Headline,
    Notes,
    Table,
    Text,
    Written,
    table,
)
from chunkscope.report.charts import Bin, Histogram, Mark
from chunkscope.report.notes import sentence
from chunkscope.report.wording import named
from chunkscope.sources.problems import hint_of

FIGURES = ("p50", "p95", "p99", "max", ">2K", ">8K")
LONG = 2_048  # tokens: shorter prompts fit a step of every setting people use
MOST_LINES = 20  # datasets in the short answer
MOST_ROWS = 500  # datasets in the details: GitHub drops a summary over 1 MiB
MOST_CHARTS = 24
MOST_EMPTY = 16  # times the longest prompt, that a picture reaches to show a setting
MOST_NOTES = 20
MOST_POSITIONS = 3  # of bad rows with one reason


def profile_blocks(profile: Profile) -> list[Block]:
    return [
        *answer(profile),
        *length_histogram("Prompt lengths", profile.overall),
        lengths_table(profile.datasets),
        *session_texts(profile),
        Text(counted_with(profile)),
        Notes(tuple(cautions(profile))),
        Details("By dataset", (dataset_table(profile),)),
        Details("Longest prompts", (longest_table(profile),)),
    ]


# -- the answer ------------------------------------------------------------------------


def answer(profile: Profile) -> list[Block]:
    """How long the prompts are; first of all what was probably miscounted."""
    doubts = uncounted(profile, "left_out")
    if doubts:
        headline = Headline(f"Probably miscounted: {'; '.join(doubts)}.")
        return [headline, Text(lengths_sentence(profile))]
    return [Headline(lengths_sentence(profile)), Text(meaning(profile))]


def lengths_sentence(profile: Profile) -> str:
    overall = profile.overall
    filled = [dataset for dataset in profile.datasets if dataset.rows]
    prompts = f"{plural(overall.count, 'prompt')} in {plural(len(filled), 'dataset')}"
    if any(dataset.sample for dataset in profile.datasets):
        prompts += " (a sample)"
    return (
        f"{prompts}: median {number(overall.percentile(50))} tokens, "
        f"p95 {number(overall.percentile(95))}, longest {number(overall.max)}."
    )


def meaning(profile: Profile) -> str:
    """Does chunked prefill matter, and does the prefix cache help?"""
    long = profile.overall.share_over(LONG)
    text = (
        f"No prompt is longer than {LONG:,} tokens, so chunked prefill hardly matters."
    )
    if long:
        text = (
            f"{share(long)} are longer than {LONG:,} tokens, where chunked prefill "
            "matters."
        )
    measured = [dataset.prefixes for dataset in profile.datasets if dataset.prefixes]
    if measured:
        text += f" {shared(reuse_together(measured))}"
    return text


def shared(reuse: PrefixReuse) -> str:
    """How many tokens repeat an earlier prompt, and whether the cache serves them."""
    if not reuse.cached_tokens + reuse.unread_tokens:
        return nothing_shared(reuse)
    tokens = reuse.cached_tokens
    is_served = reuse.unread_tokens <= reuse.cached_tokens
    if not is_served:
        tokens += reuse.unread_tokens
    text = (
        f"{share(tokens / reuse.tokens)} of the prompt tokens repeat the start of an "
        f"earlier prompt{judged_by(reuse)}"
    )
    if is_served:
        return f"{text}, so vLLM's prefix cache can serve them."
    text += ", but likelihood requests do not read vLLM's prefix cache"
    if reuse.cached_tokens:
        text += f": it serves {share(reuse.cached_tokens / reuse.tokens)}"
    return f"{text}."


def nothing_shared(reuse: PrefixReuse) -> str:
    others = "an earlier one"
    if reuse.common_tokens is None:  # of several datasets
        others = "an earlier one in its dataset"
    return (
        f"No prompt repeats the first {reuse.block_size} tokens of "
        f"{others}{judged_by(reuse)}."
    )


def judged_by(reuse: PrefixReuse) -> str:
    if not reuse.is_partial:
        return ""
    return f" (judged by {reuse.prompts:,} of {reuse.out_of_prompts:,} prompts)"


def counted_with(profile: Profile) -> str:
    if profile.tokenizer.kind == "none":
        return "The lengths came with the data; no tokenizer was needed."
    if profile.options.tokenizer:
        return f"Tokenizer: {profile.tokenizer.name}."
    return (
        f"Tokenizer: {profile.tokenizer.name}; --model NAME counts with your model's."
    )


# -- samples of several requests -------------------------------------------------------


def session_texts(profile: Profile) -> Iterator[Block]:
    """A paragraph for each dataset whose requests follow each other."""
    for dataset in profile.datasets[:MOST_NOTES]:
        if dataset.sessions is not None:
            figures = dataset.sessions.figures()
            yield Text(f"{dataset.name}: {session_text(figures)}")


def session_text(figures: SessionFigures) -> str:
    """How many requests a sample has, how its context grows, and what each adds."""
    turns = f"{figures.turns_min:,} to {figures.turns_max:,} requests"
    if figures.turns_min == figures.turns_max:
        turns = plural(figures.turns_max, "request")
    sentences = [
        f"{plural(figures.sessions, 'sample')} of {turns} each "
        f"(median {number(figures.turns_p50)}).",
        f"The median prompt grows from {number(figures.first_prompt_p50)} tokens in "
        f"the first request to {number(figures.last_prompt_p50)} in the last; the "
        f"longest context is {figures.longest_context:,} tokens.",
    ]
    if figures.added_p50 is not None:
        sentences.append(
            f"A request adds {number(figures.added_p50)} tokens to what the one before "
            f"it had (median; p95 {number(figures.added_p95)}), and "
            f"{share(figures.repeated_share)} of all prompt tokens repeat it."
        )
    if figures.answer_p50 is not None:
        sentences.append(
            f"Answers have {number(figures.answer_p50)} tokens "
            f"(median; p95 {number(figures.answer_p95)})."
        )
    if figures.think_p50_s is not None:
        sentences.append(
            f"Between an answer and the next request pass "
            f"{seconds(figures.think_p50_s)} (median; p95 "
            f"{seconds(figures.think_p95_s)})."
        )
    return " ".join(sentences)


# -- the list of datasets --------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A dataset, or several that share a line of a table."""

    name: str
    datasets: Sequence[DatasetProfile]


def shortened(
    datasets: Sequence[DatasetProfile], most: int = MOST_LINES
) -> list[Group]:
    """A line for each dataset, and for all; of many the longest have a line."""
    listed = list(datasets)
    groups = []
    hidden: list[DatasetProfile] = []
    if len(listed) > most:
        listed.sort(key=_longest_prompt, reverse=True)
        listed, hidden = listed[: most // 2], listed[most // 2 :]
    for dataset in listed:
        groups.append(Group(name=dataset.name, datasets=[dataset]))
    if hidden:
        name = plural(len(hidden), "more dataset")
        groups.append(Group(name=name, datasets=hidden))
    if len(datasets) > 1:
        groups.append(Group(name=ALL, datasets=datasets))
    return groups


def _longest_prompt(dataset: DatasetProfile) -> int:
    return dataset.lengths.max or 0


def lengths_table(datasets: Sequence[DatasetProfile]) -> Table:
    """A line for each dataset or folder, and one for all of them."""
    rows: list[list[Written]] = []
    for group in shortened(datasets):
        lengths = together(group.datasets)
        figures = [length_text(lengths, column) for column in ("prompts", *FIGURES)]
        rows.append([group.name, *figures])
    strong = [len(rows) - 1] if len(rows) > 1 else []
    headings = ("tokens per prompt", "prompts", *FIGURES)
    return table(headings, rows, strong=strong)


def length_text(lengths: LengthHistogram, column: str) -> str:
    """A figure by its heading: `p95` is a percentile, `>2K` a share.

    >>> lengths = LengthHistogram.of([10, 20, 3000])
    >>> [length_text(lengths, column) for column in ("prompts", "p50", "max", ">2K")]
    ['3', '20', '3,000', '33 %']
    """
    if column == "prompts":
        return number(lengths.count)
    if column == "max":
        return number(lengths.max)
    if column.startswith(">"):
        return share(lengths.share_over(LONG_LENGTHS[column[1:]]))
    return number(lengths.percentile(float(column[1:])))


def dataset_table(profile: Profile) -> Table:
    """One line a dataset; of many also their lengths."""
    columns: tuple[str, ...] = ()
    if len(profile.datasets) > MOST_LINES:
        columns = ("prompts", *FIGURES)
    rows: list[list[Written]] = []
    for dataset in profile.datasets[:MOST_ROWS]:
        row: list[Written] = [dataset.name]
        for column in columns:
            row.append(length_text(dataset.lengths, column))
        letters = dataset.chars_per_token
        row.append(None if letters is None else f"{letters:.2f}")
        row.append(dataset.field or None)
        rows.append(row)
    headings = ("dataset", *columns, "chars per token", "prompt field")
    return table(headings, rows, words=["prompt field"])


def longest_table(profile: Profile) -> Table:
    rows = []
    for dataset in profile.datasets:
        for prompt in dataset.longest:
            where = f"{dataset.path} {dataset.unit} {prompt.position:,}"
            rows.append((where, prompt.tokens))
    rows.sort(key=lambda row: (-row[1], row[0]))
    return table(("where", "tokens"), rows[: profile.options.keep_longest])


# -- pictures --------------------------------------------------------------------------


def length_histogram(
    title: str, lengths: LengthHistogram, marks: Sequence[Mark] = ()
) -> list[Histogram]:
    """How many prompts are how long, in doubling steps; none where one step has all.

    The steps go on up to the settings that are marked, unless these are far away.
    """
    bins = []
    for low, high, count in lengths.doubling():
        bins.append(Bin(low=low, high=high, count=count))
    if len(bins) < 2:
        return []
    reach = bins[-1].high * MOST_EMPTY
    near = [mark for mark in marks if mark.tokens <= reach]
    while any(mark.tokens > bins[-1].high for mark in near):
        high = bins[-1].high
        bins.append(Bin(low=high, high=2 * high, count=0))
    chart = Histogram(
        title=title,
        alternative=f"{plural(lengths.count, 'prompt')}: {lengths.line}.",
        bins=tuple(bins),
        marks=tuple(near),
    )
    return [chart]


def dataset_histograms(profile: Profile) -> list[Histogram]:
    """One picture for each dataset, those with the longest prompts first."""
    if len(profile.datasets) < 2:
        return []
    pictures = []
    by_length = sorted(profile.datasets, key=_longest_prompt, reverse=True)
    for dataset in by_length[:MOST_CHARTS]:
        pictures += length_histogram(dataset.name, dataset.lengths)
    return pictures


# -- what to doubt ---------------------------------------------------------------------


def uncounted(profile: Profile, *codes: str) -> list[str]:
    """What the prompts of each dataset may lack, and how to count it."""
    lines = []
    for note, names in _uncounted_notes(profile, codes):
        if len(names) == len(profile.datasets):
            use = _typed(note)
        else:
            use = _in_the_config(note, names)
        values = {**note.values, "use": use}
        lines.append(f"{named(names)}: {sentence(Note(code=note.code, values=values))}")
    return lines


def _uncounted_notes(
    profile: Profile, codes: Sequence[str]
) -> list[tuple[Note, list[str]]]:
    """Each note with the names of its datasets."""
    found: dict[str, tuple[Note, list[str]]] = {}
    for dataset in profile.datasets:
        for note in dataset.uncounted:
            if note.code in codes:
                _, names = found.setdefault(repr(note), (note, []))
                names.append(dataset.name)
    return list(found.values())[:MOST_NOTES]


def _options(note: Note) -> list[tuple[str, str]]:
    """The options that count what was left out, each with its value."""
    words = note.values.get("use")
    if not isinstance(words, list):
        words = [f"--choices={note.values['fields']}"]
    options = []
    for word in words:
        option, _, value = str(word).partition("=")
        options.append((option, value))
    return options


def _typed(note: Note) -> str:
    """The options as they are typed."""
    words = [f"{option} {shlex.quote(value)}" for option, value in _options(note)]
    return " ".join(words)


def _in_the_config(note: Note, names: Sequence[str]) -> str:
    """The same for some of the datasets, as chunkscope.toml has it."""
    values: dict[str, list[str]] = {}
    for option, value in _options(note):
        values.setdefault(option.removeprefix("--"), []).append(value)
    lines = []
    for option, texts in values.items():
        written = json.dumps(texts, ensure_ascii=False)
        if len(texts) == 1:
            written = json.dumps(texts[0], ensure_ascii=False)
        lines.append(f"{option} = {written}")
    place = f'[datasets."{names[0]}"]' if len(names) == 1 else '[datasets."NAME"]'
    return f"{', '.join(lines)} under {place} in chunkscope.toml"


def corrected(profile: Profile) -> str:
    """What to do next to count what was left out; "" if nothing was."""
    command = shlex.join(profile.command)
    options = []
    for note, names in _uncounted_notes(profile, ("left_out",)):
        if len(names) < len(profile.datasets):  # an option would be for all of them
            return f"add that to chunkscope.toml, then {command}"
        options.append(_typed(note))
    if not options:
        return ""
    return " ".join((command, *options))


def cautions(profile: Profile) -> Iterator[str]:
    """Notes on what may be wrong, most important first."""
    yield from uncounted(profile, "first_counted", "choices_uncounted")
    for note in profile.tokenizer.notes:
        yield sentence(note)
    datasets: dict[str, list[str]] = {}
    for dataset in profile.datasets:
        for note in dataset.notes:
            datasets.setdefault(sentence(note), []).append(dataset.name)
    for text, names in list(datasets.items())[:MOST_NOTES]:
        yield f"{named(names)}: {text}"
    hidden = len(datasets) - MOST_NOTES
    if hidden > 0:
        verb = "is" if hidden == 1 else "are"
        yield f"{plural(hidden, 'more note')} {verb} in the profile"
    yield from counted_fields(profile)


def counted_fields(profile: Profile) -> Iterator[str]:
    """Which fields were taken for the prompt, where nobody named one."""
    fields = []
    for field, names in guessed_fields(profile).items():
        fields.append(f'"{field}" ({named(names)})')
    if fields:
        text = "; ".join(fields[:MOST_NOTES])
        yield f"the prompt was taken from {text}; --field names another"


def bad_rows(profile: Profile) -> Iterator[str]:
    """Bad rows by reason, how many there are, and the datasets that failed."""
    places: dict[tuple[str, str], list[str]] = {}
    for dataset in profile.datasets:
        for row in dataset.bad_rows:
            key = (f"{dataset.path} {dataset.unit}", sentence(row.reason))
            places.setdefault(key, []).append(str(row.position))
    for (where, reason), positions in list(places.items())[:MOST_NOTES]:
        rows = ", ".join(positions[:MOST_POSITIONS])
        if len(positions) > MOST_POSITIONS:
            rows += ", ..."
        yield f"bad row: {where} {rows}: {reason}"
    if profile.skipped:
        verb = "was" if profile.skipped == 1 else "were"
        yield (
            f"{plural(profile.skipped, 'bad row')} {verb} not counted "
            "(exit 0 with --skip-bad-rows)"
        )
    for dataset in profile.failures:
        yield from _failure(dataset)


def _failure(dataset: DatasetProfile) -> Iterator[str]:
    """Why a dataset could not be read to its end, and what to do."""
    assert dataset.failure is not None  # noqa: S101  (`failures` has only such)
    yield f"error: {dataset.name}: {sentence(dataset.failure)}"
    hint = hint_of(dataset.failure)
    if hint:
        yield f"hint: {hint}"
