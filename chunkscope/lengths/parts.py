"""A part of a profile, as a shard or a worker counted it, and how parts become the profile.

Histograms, counts and notes of pieces add up exactly. What prompts share is looked for in the first
piece of a source alone, so nothing of that has to be added up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from chunkscope.artefacts.artefact import Artefact, now
from chunkscope.artefacts.note import Note
from chunkscope.artefacts.schema import Count, Positive
from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile, Profile, TokenizerInfo
from chunkscope.lengths.tally import Counted, joined

_HINT = "\n\nhint: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """How what fast engines counted was compared with the reference."""

    sampled: bool = False  # a sample of the rows: no difference
    recounted: Count = 0  # every text, by --exact-check
    corrected: Count = 0
    only_reference: bool = False  # an engine differed, and all was counted again

    def __add__(self, other: "Checks") -> "Checks":
        return Checks(
            sampled=self.sampled or other.sampled,
            recounted=self.recounted + other.recounted,
            corrected=self.corrected + other.corrected,
            only_reference=self.only_reference or other.only_reference,
        )

    def notes(self, reference: str) -> tuple[str, ...]:
        if self.only_reference:
            return (
                f"a fast engine differed from {reference} on a sample of these rows: everything "
                "was counted again with the reference",
            )
        if self.recounted:
            return (
                f"exact check: {self.recounted:,} texts recounted with {reference} from the "
                f"tokenizer's own files, {self.corrected:,} differed",
            )
        if self.sampled:
            return (f"a sample of these rows was recounted with {reference}: no difference",)
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPiece:
    """What came of one piece: its `place` among all of them, and whose it is."""

    place: Count
    source: Count
    dataset: DatasetProfile
    positions: Count = 0
    notes: tuple[Note, ...] = ()
    engines: tuple[str, ...] = ()

    @classmethod
    def of(cls, place: int, source: int, counted: Counted) -> "CountedPiece":
        return cls(
            place=place,
            source=source,
            dataset=counted.profile,
            positions=counted.positions,
            notes=counted.notes,
            engines=counted.engines,
        )

    @property
    def counted(self) -> Counted:
        return Counted(
            profile=self.dataset,
            engines=self.engines,
            error=self._error,
            notes=self.notes,
            positions=self.positions,
        )

    @property
    def _error(self) -> ChunkscopeError | None:
        if self.dataset.failure is None:
            return None
        message, _, hint = self.dataset.failure.partition(_HINT)
        return InputError(message, hint=hint or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePart(Artefact):
    """The pieces that one shard counted, out of `out_of` that the input was divided into."""

    title: ClassVar = "part"
    schema: ClassVar = "chunkscope/part/1"
    made_by: ClassVar = "chunkscope analyze data/ --shard 1/4"
    default_path: ClassVar = Path("reports/part.json")

    shard: Positive
    of: Positive
    divided: str  # digest of the pieces
    out_of: Count
    tokenizer: TokenizerInfo
    checks: Checks
    pieces: tuple[CountedPiece, ...]
    options: dict[str, Any] = field(default_factory=dict)
    created: str = field(default_factory=now)
    version: str = ""

    def _document(self) -> dict[str, Any]:
        written = super(ProfilePart, self)._document()
        pieces = [
            {
                "place": piece.place,
                "source": piece.source,
                "dataset": piece.dataset.to_json(),
                "positions": piece.positions,
                "notes": piece.notes,
                "engines": piece.engines,
            }
            for piece in self.pieces
        ]
        return {**written, "pieces": pieces}

    @classmethod
    def _fields(cls, document: dict[str, Any]) -> dict[str, Any]:
        pieces = [
            {**piece, "dataset": DatasetProfile.fields_of(piece["dataset"])}
            for piece in document["pieces"]
        ]
        return {**document, "pieces": pieces}


def merged(parts: Sequence[ProfilePart], names: Sequence[str]) -> Profile:
    """One profile, the same as if one process had counted everything; `names` for messages."""
    _refuse_others(parts, names)
    _refuse_gaps(parts, names)
    first = parts[0]
    keep = AnalyzeOptions.from_record(first.options).keep_longest
    pieces = sorted((p for part in parts for p in part.pieces), key=lambda piece: piece.place)
    by_source: dict[int, list[Counted]] = {}
    for piece in pieces:
        by_source.setdefault(piece.source, []).append(piece.counted)
    counted = [joined(found, keep) for found in by_source.values()]
    refuse_nothing(counted)
    return Profile(
        tokenizer=_tokenizer(parts, counted),
        datasets=tuple(dataset.profile for dataset in counted),
        options=first.options,
    )


def refuse_nothing(counted: Sequence[Counted]) -> None:
    """When not one prompt was counted, that is an error and not a profile."""
    datasets = [dataset.profile for dataset in counted]
    if any(dataset.rows for dataset in datasets):
        return
    for failed in counted:
        if failed.error:
            raise failed.error
    for dataset in datasets:
        if dataset.bad_rows:
            first = dataset.bad_rows[0]
            raise InputError(
                f"none of the {dataset.skipped:,} rows of {dataset.path} could be used; "
                f"{dataset.unit} {first.position}: {first.reason}",
                hint="is it another format, or another field? See --input-format and --field",
            )
    names = ", ".join(dataset.path for dataset in datasets[:3])
    raise InputError(f"there are no rows in {names}", hint="is the file empty?")


def _refuse_others(parts: Sequence[ProfilePart], names: Sequence[str]) -> None:
    """Parts of another input, of other options, tokenizers or versions do not add up."""
    first = parts[0]
    same_command = "run every shard with the same command, apart from --shard"
    for part, name in zip(parts, names, strict=True):
        said = None
        if part.of != first.of:
            said = f"is one of {part.of} shards, and {names[0]} one of {first.of}"
        elif part.divided != first.divided or part.out_of != first.out_of:
            said = f"was made of other files than {names[0]}: names or sizes differ"
        elif _asked(part) != _asked(first):
            differing = [
                n
                for n in {**_asked(part), **_asked(first)}
                if _asked(part).get(n) != _asked(first).get(n)
            ]
            said = f"was counted with other options than {names[0]}: {', '.join(differing)}"
        elif part.version != first.version:
            said = f"was written by chunkscope {part.version}, and {names[0]} by {first.version}"
        if said:
            raise InputError(f"{name} {said}", hint=same_command)
    with_tokenizer = [
        (part, name)
        for part, name in zip(parts, names, strict=True)
        if part.tokenizer.kind != "none"
    ]
    for part, name in with_tokenizer[1:]:
        one, other = with_tokenizer[0][0].tokenizer, part.tokenizer
        if _what_counts(one) != _what_counts(other):
            raise InputError(
                f"{name} was counted with {other.name} by {other.reference}, and "
                f"{with_tokenizer[0][1]} with {one.name} by {one.reference}: lengths do not add up",
                hint="use the same --tokenizer and the same versions on every machine",
            )


def _asked(part: ProfilePart) -> dict[str, Any]:
    return {name: value for name, value in part.options.items() if name != "command"}


def _what_counts(info: TokenizerInfo) -> TokenizerInfo:
    return replace(info, name="", engine="", notes=())


def _refuse_gaps(parts: Sequence[ProfilePart], names: Sequence[str]) -> None:
    """Every shard is there once, with the pieces that are its."""
    by_shard: dict[int, str] = {}
    by_place: dict[int, str] = {}
    for part, name in zip(parts, names, strict=True):
        if part.shard in by_shard:
            raise InputError(
                f"{name} and {by_shard[part.shard]} are both shard {part.shard} of {part.of}",
                hint="leave one of them out",
            )
        by_shard[part.shard] = name
        for piece in part.pieces:
            if piece.place in by_place:
                raise InputError(
                    f"{name} and {by_place[piece.place]} both counted {piece.dataset.path}",
                    hint="run every shard with the same command and the same version",
                )
            by_place[piece.place] = name
    of = parts[0].of
    if missing := [str(shard) for shard in range(1, of + 1) if shard not in by_shard]:
        raise InputError(
            f"{len(missing)} of {of} shards are missing: {_some(missing)}",
            hint=f"run `chunkscope analyze ... --shard {missing[0]}/{of}`, or name its file too",
        )
    if lost := parts[0].out_of - len(by_place):
        raise InputError(
            f"{lost} of {parts[0].out_of} pieces are in no part",
            hint="were parts changed by hand? Run the shards again",
        )


def _some(words: Sequence[str], most: int = 10) -> str:
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


def _tokenizer(parts: Sequence[ProfilePart], counted: Iterable[Counted]) -> TokenizerInfo:
    used = [part for part in parts if part.tokenizer.kind != "none"]
    if not used:
        return parts[0].tokenizer
    checks = sum((part.checks for part in used), start=Checks())
    return told(
        used[0].tokenizer,
        checks,
        counted,
        notes=dict.fromkeys(note for part in used for note in part.tokenizer.notes),
    )


def told(
    info: TokenizerInfo, checks: Checks, counted: Iterable[Counted], notes: Iterable[str]
) -> TokenizerInfo:
    """What a profile says of the tokenizer: with all engines, and how they were checked."""
    engines = sorted({engine for dataset in counted for engine in dataset.engines})
    return replace(
        info,
        engine=" + ".join(engines) or "none",
        notes=(*notes, *checks.notes(info.reference)),
    )
