"""The profile: what `analyze` found, as a value, an artefact and a table."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from chunkscope.artefacts.artefact import INCIDENTAL, Artefact, now
from chunkscope.artefacts.note import Note
from chunkscope.artefacts.notebook import bar_chart, frame, html_table
from chunkscope.artefacts.numbers import number, plural
from chunkscope.artefacts.schema import Count
from chunkscope.errors import InputError
from chunkscope.lengths.histogram import LengthHistogram, added_up
from chunkscope.prefixes.reuse import PrefixReuse
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prompts.harness.log import LogSummary
from chunkscope.sources.base import BadRow, unique_names

if TYPE_CHECKING:
    import pandas as pd

ALL = "all together"  # as tables call what is said of all datasets at once
_SHOWN = (50, 95, 99)
DEFAULT_OUTPUT = 256  # tokens of an answer, where nothing is known of it
LONG_LENGTHS = {"1K": 1024, "2K": 2048, "4K": 4096, "8K": 8192, "32K": 32768}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerInfo:
    """Which tokenizer counted, and by which engine: lengths mean nothing without it."""

    name: str = field(metadata=INCIDENTAL)
    digest: str
    kind: str
    engine: str = field(metadata=INCIDENTAL)
    reference: str = field(metadata=INCIDENTAL)
    special_tokens_added: int
    chat_template: str | None = None
    notes: tuple[str, ...] = field(default=(), metadata=INCIDENTAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPrompt:
    tokens: Count
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Only `rows` of `out_of` rows were counted, chosen by `seed`."""

    rows: Count
    out_of: Count
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DatasetProfile:
    """The lengths of one dataset. `skipped` rows could not be used; `failure` ended it early.

    >>> DatasetProfile(
    ...     name="a", path="a.jsonl", format="jsonl", field="q", lengths=LengthHistogram.of([7, 9])
    ... )
    <DatasetProfile a: 2 prompts, p50 8, p95 9, longest 9 tokens>
    """

    name: str
    path: str = dataclasses.field(metadata=INCIDENTAL)
    format: str
    field: str
    lengths: LengthHistogram
    group: str = ""
    kind: str = "text"
    unit: str = "row"
    skipped: Count = 0
    bytes: int | None = None
    sha256: str | None = None
    chars: int | None = None
    output_field: str | None = None
    output_lengths: LengthHistogram | None = None
    longest: tuple[LongPrompt, ...] = ()
    bad_rows: tuple[BadRow, ...] = ()
    failure: str | None = None
    notes: tuple[Note, ...] = dataclasses.field(default=(), metadata=INCIDENTAL)
    uncounted: tuple[Note, ...] = ()  # what the prompts may lack
    sample: Sample | None = None
    # What counted it; None when the lengths came with the data.
    engine: str | None = dataclasses.field(default=None, metadata=INCIDENTAL)
    log: LogSummary | None = None  # of a harness's log; others are written without it
    prefixes: PrefixReuse | None = None  # None where it was not measured
    sharing: Sharing | None = None  # the prompts one by one, likewise

    def __repr__(self) -> str:
        return f"<DatasetProfile {self.name}: {plural(self.rows, 'prompt')}, {self.lengths.line}>"

    @property
    def rows(self) -> int:
        return self.lengths.count

    @property
    def chars_per_token(self) -> float | None:
        return self.chars / self.lengths.total if self.chars and self.lengths.total else None

    @property
    def failed_because(self) -> str:
        """The failure in one line, without the fields to choose from and the hint."""
        first = (self.failure or "").partition("\n")[0]
        return first.removesuffix("; there are:")

    @property
    def shared_prefix_tokens(self) -> int | None:
        """How many tokens every prompt begins with; None where it was not measured."""
        return self.prefixes.common_tokens if self.prefixes else None

    def to_json(self) -> dict[str, Any]:
        outputs = self.output_lengths
        figures = {
            "tokens": self.lengths.summary(),
            "over": shares(self.lengths),
            "output_tokens": outputs.summary() if outputs else None,
            "histogram": _histogram_json(self.lengths),
            "output_histogram": _histogram_json(outputs) if outputs else None,
            "prefixes": self.prefixes.to_json() if self.prefixes else None,
            "sharing": self.sharing.to_json() if self.sharing else None,
        }
        written = {
            name: figures[name] if name in figures else getattr(self, name)
            for name in (*_WRITTEN, *_OPTIONAL)
        }
        return {n: v for n, v in written.items() if v not in (None, ()) or n not in _OPTIONAL}

    @classmethod
    def fields_of(cls, written: dict[str, Any]) -> dict[str, Any]:
        """The reverse of `to_json`, of values that are not checked yet: figures are left out."""
        counts = {"lengths": "histogram", "output_lengths": "output_histogram"}
        others = [f.name for f in fields(cls) if f.name not in (*counts, *_OPTIONAL)]
        kept = {name: written[name] for name in others}
        kept |= {name: written[name] for name in _OPTIONAL if name in written}
        if "sharing" in kept:
            kept["sharing"] = Sharing.fields_of(kept["sharing"])
        found = {name: written[key] for name, key in counts.items()}
        return kept | {n: None if c is None else {"counts": c} for n, c in found.items()}


_WRITTEN = (
    *("name", "group", "path", "format", "kind", "field", "rows", "skipped", "bytes", "sha256"),
    *("chars", "chars_per_token", "tokens", "over", "output_field", "output_tokens", "unit"),
    *("engine", "longest", "bad_rows", "failure", "notes", "sample"),
    *("histogram", "output_histogram"),
)


# Written where they say something: profiles of old stay as they are.
_OPTIONAL = ("uncounted", "log", "prefixes", "sharing")


def dataset_from_json(written: dict[str, Any]) -> DatasetProfile:
    """Build a dataset from what its `to_json` gave, unchecked: for files with a checksum."""
    found = DatasetProfile.fields_of(written)
    lengths = {name: found[name] for name in ("lengths", "output_lengths")}
    made = {
        **{name: _histogram(part["counts"]) if part else None for name, part in lengths.items()},
        "longest": tuple(LongPrompt(**prompt) for prompt in found["longest"]),
        "bad_rows": tuple(BadRow(**row) for row in found["bad_rows"]),
        "notes": tuple(Note(**note) for note in found["notes"]),
        "uncounted": tuple(Note(**note) for note in found.get("uncounted", ())),
        "sample": Sample(**found["sample"]) if found["sample"] else None,
        "log": LogSummary(**found["log"]) if "log" in found else None,
        "prefixes": PrefixReuse.of_json(found["prefixes"]) if "prefixes" in found else None,
        "sharing": Sharing.of_json(written["sharing"]) if "sharing" in found else None,
    }
    return DatasetProfile(**found | made)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Profile(Artefact):
    """What is known about all datasets together.

    >>> profile = Profile.load("reports/example/profile.json")
    >>> profile
    <Profile of 850 prompts in 6 datasets: p50 110, p95 2,880, longest 23,235 tokens>
    >>> profile.overall.share_over(2048)
    0.05176470588235294
    """

    title: ClassVar = "profile"
    schema: ClassVar = "chunkscope/profile/2"
    made_by: ClassVar = "chunkscope analyze data/"
    default_path: ClassVar = Path("reports/profile.json")

    tokenizer: TokenizerInfo
    datasets: tuple[DatasetProfile, ...]
    options: dict[str, Any] = field(default_factory=dict, metadata=INCIDENTAL)
    created: str = field(default_factory=now)
    version: str = ""

    @property
    def headline(self) -> str:
        prompts, sets = plural(self.overall.count, "prompt"), plural(len(self.datasets), "dataset")
        return f"of {prompts} in {sets}: {self.overall.line}"

    def _repr_html_(self) -> str:
        headings = ("", "prompts", *(f"p{p}" for p in _SHOWN), "longest", "prompt field")
        rows = [[d.name, *_cells(d.lengths), d.field] for d in self.datasets]
        if len(rows) > 1:
            rows.append([ALL, *_cells(self.overall), ""])
        return html_table(f"tokens per prompt, by {self.tokenizer.name}", headings, rows)

    def plot(self) -> Any:
        """How many prompts are how long, in doubling steps: matplotlib's Axes."""
        steps = self.overall.doubling()
        return bar_chart("prompts", {f"{low:,} to {high - 1:,}": n for low, high, n in steps})

    @property
    def overall(self) -> LengthHistogram:
        return together(self.datasets)

    @property
    def groups(self) -> dict[str, tuple[DatasetProfile, ...]]:
        """Datasets by folder or archive, in the order they were found."""
        found: dict[str, list[DatasetProfile]] = {}
        for dataset in self.datasets:
            found.setdefault(dataset.group, []).append(dataset)
        return {name: tuple(members) for name, members in found.items()}

    @property
    def skipped(self) -> int:
        return sum(dataset.skipped for dataset in self.datasets)

    @property
    def failures(self) -> tuple[DatasetProfile, ...]:
        return tuple(dataset for dataset in self.datasets if dataset.failure)

    def __add__(self, other: "Profile") -> "Profile":
        """Put the datasets of two runs together: shards, or machines."""
        # Traces brought their lengths along: they go with any tokenizer.
        counted = [info for info in (self.tokenizer, other.tokenizer) if info.kind != "none"]
        if len({info.digest for info in counted}) > 1:
            raise InputError(
                "these profiles were counted with different tokenizers "
                f"({self.tokenizer.name} and {other.tokenizer.name}): lengths do not add up",
                hint="analyze both with the same --tokenizer",
            )
        return replace(
            self,
            tokenizer=counted[0] if counted else self.tokenizer,
            datasets=_uniquely_named([*self.datasets, *other.datasets]),
        )

    def _document(self) -> dict[str, Any]:
        return {
            "created": self.created,
            "tokenizer": self.tokenizer,
            "options": self.options,
            "overall": _group_json(self.datasets),
            "groups": [{"name": n, **_group_json(d)} for n, d in self.groups.items()],
            "datasets": [dataset.to_json() for dataset in self.datasets],
        }

    @classmethod
    def _fields(cls, document: dict[str, Any]) -> dict[str, Any]:
        datasets = [DatasetProfile.fields_of(dataset) for dataset in document["datasets"]]
        derived = ("overall", "groups")
        return {n: v for n, v in document.items() if n not in derived} | {"datasets": datasets}

    def to_frame(self) -> "pd.DataFrame":
        """One row per dataset, one column per figure."""
        return frame(_frame_row(dataset) for dataset in self.datasets)


def load_profiles(paths: Iterable[Path]) -> Profile:
    """One profile, or several put together."""
    first, *others = (Profile.load(path) for path in paths)
    return sum(others, start=first)


def together(datasets: Iterable[DatasetProfile]) -> LengthHistogram:
    return added_up(dataset.lengths for dataset in datasets)


def shares(lengths: LengthHistogram) -> dict[str, float | None]:
    """The share of prompts over each round length: {"1K": 0.25, ...}."""
    return {label: lengths.share_over(length) for label, length in LONG_LENGTHS.items()}


def _group_json(datasets: Iterable[DatasetProfile]) -> dict[str, Any]:
    members = tuple(datasets)
    lengths = together(members)
    # Traces have no text: characters belong to the tokens that came from text, or to nothing.
    textual = [dataset for dataset in members if dataset.chars is not None]
    chars = sum(dataset.chars or 0 for dataset in textual) if textual else None
    text_tokens = sum(dataset.lengths.total for dataset in textual)
    failed = sum(1 for dataset in members if dataset.failure)
    return {
        "datasets": len(members),
        "rows": lengths.count,
        "skipped": sum(dataset.skipped for dataset in members),
        "sampled": any(dataset.sample for dataset in members),
        **({"failed": failed} if failed else {}),
        "chars": chars,
        "chars_per_token": chars / text_tokens if chars and text_tokens else None,
        "tokens": lengths.summary(),
        "over": shares(lengths),
    }


def _frame_row(dataset: DatasetProfile) -> dict[str, Any]:
    labels = ("name", "group", "path", "format", "field", "rows", "skipped", "chars")
    described = {label: getattr(dataset, label) for label in labels}
    over = {f"over_{label}": share for label, share in shares(dataset.lengths).items()}
    return {
        **described,
        "chars_per_token": dataset.chars_per_token,
        **dataset.lengths.summary(),
        **over,
    }


def _cells(lengths: LengthHistogram) -> list[str]:
    figures = [*(lengths.percentile(p) for p in _SHOWN), lengths.max]
    return [f"{lengths.count:,}", *map(number, figures)]


def _uniquely_named(datasets: Sequence[DatasetProfile]) -> tuple[DatasetProfile, ...]:
    names = unique_names((dataset.name for dataset in datasets), "#")
    return tuple(replace(dataset, name=name) for dataset, name in zip(datasets, names, strict=True))


def _histogram(counts: dict[str, int]) -> LengthHistogram:
    return LengthHistogram({int(length): count for length, count in counts.items()})


def _histogram_json(lengths: LengthHistogram) -> dict[str, int]:
    return {str(length): lengths.counts[length] for length in sorted(lengths.counts)}
