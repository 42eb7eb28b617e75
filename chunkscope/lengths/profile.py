"""The profile: what `analyze` found, as a value, an artefact and a table."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts import codec
from chunkscope.errors import InputError
from chunkscope.lengths.histogram import LengthHistogram

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "chunkscope/profile/1"
MADE_BY = "chunkscope analyze data/"
DEFAULT_PATH = Path("reports/profile.json")
LONG_LENGTHS = {"1K": 1024, "2K": 2048, "4K": 4096, "8K": 8192, "32K": 32768}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerInfo:
    """Which tokenizer counted, and by which engine: lengths mean nothing without it."""

    name: str
    digest: str
    kind: str
    engine: str
    reference: str
    special_tokens_added: int
    chat_template: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPrompt:
    tokens: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    position: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Only `rows` of `out_of` rows were counted, chosen by `seed`."""

    rows: int
    out_of: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetProfile:
    """The lengths of one dataset. `skipped` rows could not be used; `failure` ended it early."""

    name: str
    path: str
    format: str
    field: str
    lengths: LengthHistogram
    group: str = ""
    kind: str = "text"
    unit: str = "row"
    skipped: int = 0
    bytes: int | None = None
    sha256: str | None = None
    chars: int | None = None
    output_field: str | None = None
    output_lengths: LengthHistogram | None = None
    longest: tuple[LongPrompt, ...] = ()
    bad_rows: tuple[BadRow, ...] = ()
    failure: str | None = None
    notes: tuple[str, ...] = ()
    sample: Sample | None = None
    engine: str | None = None  # what counted it; None when the lengths came with the data

    @property
    def rows(self) -> int:
        return self.lengths.count

    @property
    def chars_per_token(self) -> float | None:
        return self.chars / self.lengths.total if self.chars and self.lengths.total else None

    def to_json(self) -> dict[str, Any]:
        outputs = self.output_lengths
        return {
            "name": self.name,
            "group": self.group,
            "path": self.path,
            "format": self.format,
            "kind": self.kind,
            "field": self.field,
            "rows": self.rows,
            "skipped": self.skipped,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "chars": self.chars,
            "chars_per_token": self.chars_per_token,
            "tokens": self.lengths.summary(),
            "over": shares(self.lengths),
            "output_field": self.output_field,
            "output_tokens": outputs.summary() if outputs else None,
            "unit": self.unit,
            "engine": self.engine,
            "longest": [{"tokens": x.tokens, "position": x.position} for x in self.longest],
            "bad_rows": [{"position": x.position, "reason": x.reason} for x in self.bad_rows],
            "failure": self.failure,
            "notes": list(self.notes),
            "sample": (
                {"rows": self.sample.rows, "out_of": self.sample.out_of, "seed": self.sample.seed}
                if self.sample
                else None
            ),
            "histogram": _histogram_json(self.lengths),
            "output_histogram": _histogram_json(outputs) if outputs else None,
        }


def dataset_from_json(found: dict[str, Any]) -> DatasetProfile:
    """Build a dataset from what its `to_json` gave; the figures follow from the histograms."""
    plain = (
        *("name", "group", "path", "format", "kind", "field", "skipped", "bytes", "sha256"),
        *("chars", "output_field", "unit", "failure", "engine"),
    )
    outputs = found["output_histogram"]
    return DatasetProfile(
        **{name: found[name] for name in plain},
        lengths=_histogram(found["histogram"]),
        output_lengths=_histogram(outputs) if outputs is not None else None,
        longest=tuple(LongPrompt(**prompt) for prompt in found["longest"]),
        bad_rows=tuple(BadRow(**row) for row in found["bad_rows"]),
        notes=tuple(found["notes"]),
        sample=Sample(**found["sample"]) if found["sample"] else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is known about all datasets together."""

    tokenizer: TokenizerInfo
    datasets: tuple[DatasetProfile, ...]
    options: dict[str, Any] = field(default_factory=dict)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    version: str = ""

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

    def to_json(self) -> dict[str, Any]:
        from chunkscope._version import __version__

        return {
            "schema": SCHEMA,
            "chunkscope": self.version or __version__,
            "created": self.created,
            "tokenizer": _tokenizer_json(self.tokenizer),
            "options": self.options,
            "overall": _group_json(self.datasets),
            "groups": [{"name": n, **_group_json(d)} for n, d in self.groups.items()],
            "datasets": [dataset.to_json() for dataset in self.datasets],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Profile":
        """Read back what `to_json` wrote; InputError when it is not that."""
        from chunkscope.lengths.profile_file import parse

        return parse(document)

    def save(self, path: Path = DEFAULT_PATH) -> None:
        codec.write_atomically(path, codec.dump(self.to_json()))

    @classmethod
    def load(cls, path: Path = DEFAULT_PATH) -> "Profile":
        return cls.from_json(codec.read(path, SCHEMA, made_by=MADE_BY))

    def to_frame(self) -> "pd.DataFrame":
        """One row per dataset, one column per figure."""
        import pandas as pd

        return pd.DataFrame([_frame_row(dataset) for dataset in self.datasets])


def together(datasets: Iterable[DatasetProfile]) -> LengthHistogram:
    total: dict[int, int] = {}
    for dataset in datasets:
        for length, count in dataset.lengths.counts.items():
            total[length] = total.get(length, 0) + count
    return LengthHistogram(total)


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
    return {
        "datasets": len(members),
        "rows": lengths.count,
        "skipped": sum(dataset.skipped for dataset in members),
        "sampled": any(dataset.sample for dataset in members),
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


def _uniquely_named(datasets: Iterable[DatasetProfile]) -> tuple[DatasetProfile, ...]:
    taken: set[str] = set()
    result = []
    for dataset in datasets:
        name, number = dataset.name, 1
        while name in taken:
            number += 1
            name = f"{dataset.name}#{number}"
        taken.add(name)
        result.append(dataset if name == dataset.name else replace(dataset, name=name))
    return tuple(result)


def _histogram(counts: dict[str, int]) -> LengthHistogram:
    return LengthHistogram({int(length): count for length, count in counts.items()})


def _histogram_json(lengths: LengthHistogram) -> dict[str, int]:
    return {str(length): lengths.counts[length] for length in sorted(lengths.counts)}


def _tokenizer_json(info: TokenizerInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "digest": info.digest,
        "kind": info.kind,
        "engine": info.engine,
        "reference": info.reference,
        "special_tokens_added": info.special_tokens_added,
        "chat_template": info.chat_template,
        "notes": list(info.notes),
    }
