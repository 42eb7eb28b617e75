"""The profile: what `analyze` found, as a value, an artefact and a table."""

import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from chunkscope.artefacts.artefact import INCIDENTAL, Artefact, frame, now
from chunkscope.artefacts.files import Name
from chunkscope.artefacts.note import Note
from chunkscope.artefacts.numbers import plural
from chunkscope.errors import InputError
from chunkscope.lengths.content import Content
from chunkscope.lengths.histogram import LengthHistogram, added_up
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.sessions import Sessions
from chunkscope.prefixes.reuse import PrefixReuse
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prompts.harness.log import LogSummary
from chunkscope.sources.base import BadRow, unique_names
from chunkscope.tokenizers.resolve import TokenizerInfo

if TYPE_CHECKING:
    import pandas as pd

ALL = "all together"  # as tables call what is said of all datasets at once
DEFAULT_OUTPUT = 256  # tokens of an answer, where nothing is known of it
LONG_LENGTHS = {"1K": 1024, "2K": 2048, "4K": 4096, "8K": 8192, "32K": 32768}


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPrompt:
    tokens: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Only `rows` of `out_of` rows were counted, chosen by `seed`."""

    rows: int
    out_of: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DatasetProfile:
    """The lengths of one dataset.

    `skipped` rows could not be used; `failure` ended it early.

    >>> DatasetProfile(
    ...     name="a",
    ...     path="a.jsonl",
    ...     format="jsonl",
    ...     field="q",
    ...     lengths=LengthHistogram.of([7, 9]),
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
    skipped: int = 0
    bytes: int | None = None
    digest: str | None = None  # of its file
    chars: int | None = None
    output_field: str | None = None
    output_lengths: LengthHistogram | None = None
    longest: tuple[LongPrompt, ...] = ()
    bad_rows: tuple[BadRow, ...] = ()
    failure: Note | None = None  # why it could not be read to its end
    notes: tuple[Note, ...] = dataclasses.field(default=(), metadata=INCIDENTAL)
    uncounted: tuple[Note, ...] = ()  # what the prompts may lack
    sample: Sample | None = None
    # What counted it; None when the lengths came with the data.
    engine: str | None = dataclasses.field(default=None, metadata=INCIDENTAL)
    log: LogSummary | None = None  # of a harness's log
    content: Content | None = None  # its records; None where not all were read
    scored: bool = False  # every request asks for a likelihood, and generates nothing
    prefixes: PrefixReuse | None = None  # None where it was not measured
    sharing: Sharing | None = None  # the prompts one by one, likewise
    sessions: Sessions | None = None  # None where no request follows another

    def __repr__(self) -> str:
        prompts = plural(self.rows, "prompt")
        return f"<DatasetProfile {self.name}: {prompts}, {self.lengths.line}>"

    @property
    def rows(self) -> int:
        return self.lengths.count

    @property
    def chars_per_token(self) -> float | None:
        return (
            self.chars / self.lengths.total
            if self.chars and self.lengths.total
            else None
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Profile(Artefact):
    """What is known about all datasets together.

    >>> profile = Profile.load("reports/example/profile.json")
    >>> profile.overall.share_over(2048)
    0.05176470588235294
    """

    schema: ClassVar = "chunkscope/profile/7"
    made_by: ClassVar = "chunkscope analyze data/"

    tokenizer: TokenizerInfo
    datasets: tuple[DatasetProfile, ...]
    options: AnalyzeOptions = field(default_factory=AnalyzeOptions, metadata=INCIDENTAL)
    paths: tuple[str, ...] = field(
        default=(), metadata=INCIDENTAL
    )  # as they were given
    command: tuple[str, ...] = ()  # empty where Python asked
    created: str = field(default_factory=now)
    version: str = ""

    def summary(self) -> str:
        return f"of {plural(self.overall.count, 'prompt')}: {self.overall.line}"

    def plot(self) -> Any:
        """How many prompts are how long, in doubling steps: matplotlib's Axes."""
        steps = reversed(self.overall.doubling())  # the first bar is the lowest
        rows = (
            {"tokens": f"{low:,} to {high - 1:,}", "prompts": n}
            for low, high, n in steps
        )
        return frame(rows).plot.barh(x="tokens", y="prompts")

    @property
    def overall(self) -> LengthHistogram:
        return together(self.datasets)

    @property
    def skipped(self) -> int:
        return sum(dataset.skipped for dataset in self.datasets)

    @property
    def failures(self) -> tuple[DatasetProfile, ...]:
        return tuple(dataset for dataset in self.datasets if dataset.failure)

    def __add__(self, other: "Profile") -> "Profile":
        # Traces brought their lengths along: they go with any tokenizer.
        counted = [
            info for info in (self.tokenizer, other.tokenizer) if info.kind != "none"
        ]
        if len({info.digest for info in counted}) > 1:
            raise InputError(
                "these profiles were counted with different tokenizers "
                f"({self.tokenizer.name} and {other.tokenizer.name}): lengths do not "
                "add up",
                hint="analyze both with the same --tokenizer",
            )
        datasets = [*self.datasets, *other.datasets]
        names = unique_names((dataset.name for dataset in datasets), "#")
        return replace(
            self,
            tokenizer=counted[0] if counted else self.tokenizer,
            datasets=tuple(
                replace(d, name=n) for d, n in zip(datasets, names, strict=True)
            ),
            paths=(*self.paths, *other.paths),
        )

    def figures(self) -> dict[str, Any]:
        by_dataset = {
            dataset.name: _figures(dataset.lengths) for dataset in self.datasets
        }
        return {"overall": _figures(self.overall), "datasets": by_dataset}

    def to_frame(self) -> "pd.DataFrame":
        """One row per dataset, one column per figure."""
        labels = (
            "name",
            "group",
            "path",
            "format",
            "field",
            "rows",
            "skipped",
            "chars",
        )
        return frame(
            {
                **{label: getattr(dataset, label) for label in labels},
                "chars_per_token": dataset.chars_per_token,
                **dataset.lengths.summary(),
                **{
                    f"over_{label}": share
                    for label, share in shares(dataset.lengths).items()
                },
            }
            for dataset in self.datasets
        )


def guessed_fields(profile: Profile) -> dict[str, list[str]]:
    """The fields that were taken for the prompt unasked, each with its datasets."""
    fields: dict[str, list[str]] = {}
    for dataset in profile.datasets:
        select = profile.options.for_dataset(dataset.name)
        if dataset.rows and dataset.log is None and not select.name_a_prompt:
            fields.setdefault(dataset.field, []).append(dataset.name)
    return fields


def joined(profiles: Profile | Name | Iterable[Profile | Name]) -> Profile:
    """One profile, or several put together."""
    if isinstance(profiles, Profile | str | os.PathLike):
        return Profile.load(profiles)
    if not (read := [*map(Profile.load, profiles)]):
        raise InputError("no profile is given", hint="`chunkscope analyze` makes one")
    return sum(read[1:], start=read[0])


def together(datasets: Iterable[DatasetProfile]) -> LengthHistogram:
    return added_up(dataset.lengths for dataset in datasets)


def shares(lengths: LengthHistogram) -> dict[str, float | None]:
    """The share of prompts over each round length: {"1K": 0.25, ...}."""
    return {label: lengths.share_over(length) for label, length in LONG_LENGTHS.items()}


def _figures(lengths: LengthHistogram) -> dict[str, Any]:
    return {"tokens": lengths.summary(), "over": shares(lengths)}
