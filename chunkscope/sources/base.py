"""What every reader speaks of: a source, its records, and what was wrong with them.

A *source* is one dataset: a file, a member of an archive, stdin or a hub dataset. A
*reader* turns it into chunks of *records* (JSON values: a dict for most formats, a
string for plain text), each with its position, so that a bad or a very long row can be
looked up.
"""

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from chunkscope.artefacts.note import Note
from chunkscope.console import printable as printable
from chunkscope.errors import InputError
from chunkscope.errors import first_line as first_line
from chunkscope.sources.problems import hint_of, message_of

# About how much data one chunk holds: large enough to keep the hot loops in C.
CHUNK_BYTES = 1 << 20
# No prompt is longer. A small compressed file may unpack to a line that would fill the
# memory.
MOST_ROW_BYTES = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One dataset, found but not opened.

    A source named on the command line by itself has no group; one found in a folder or
    an archive has that folder (`data/reasoning`) or archive (`data/packs.zip`). Its
    format is "" where only its content can tell.
    """

    path: str
    name: str = ""
    group: str = ""
    format: str = ""
    file: Path | None = None
    files: tuple[Path, ...] = ()  # of a dataset that has a file for each sample
    member: str | None = None
    bytes: int | None = None
    rendered: bool = False  # made for this run, by a harness's task
    url: str | None = None  # of a file on another machine
    is_read_once: bool = False  # standard input or another pipe: what was read is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What the command line says about how to read; None means "find out"."""

    input_format: str | None = None
    encoding: str = "utf-8"
    per_line: bool = False
    delimiter: str | None = None
    header: bool | None = None
    trust_remote_code: bool = False


class Chunk(NamedTuple):
    """Consecutive records; `positions[i]` is where `records[i]` is, counted from 1."""

    positions: Sequence[int]
    records: list[Any]


class DataError(InputError):
    """What is wrong with a row or a dataset: a code and values.

    `problems.py` has the sentence and the hint of each code; artefacts keep `note`.
    """

    def __init__(self, code: str, **values: Any) -> None:
        for name, value in values.items():
            if isinstance(value, str):
                values[name] = printable(value)
        self.note = Note(code=code, values=values)
        super().__init__(message_of(self.note), hint=hint_of(self.note))

    @classmethod
    def from_note(cls, note: Note) -> "DataError":
        return cls(note.code, **note.values)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its note, which it is made from."""
        return DataError.from_note, (self.note,)


@dataclass(frozen=True, slots=True)
class BadRow:
    position: int
    reason: Note


@dataclass(slots=True)
class Problems:
    """Rows that could not be used: how many, and the first few with their reasons."""

    keep: int = 20
    count: int = 0
    rows: list[BadRow] = field(default_factory=list)

    def bad(
        self, position: int, error: DataError | RecursionError, **sample: str
    ) -> None:
        """A row, or a part of what a log calls a sample."""
        self.count += 1
        if isinstance(error, RecursionError):
            error = DataError("nested_too_deeply")
        if sample:
            error = DataError("in_sample", **sample, reason=error.note)
        insort(self.rows, BadRow(position, error.note), key=attrgetter("position"))
        del self.rows[self.keep :]


class Row(NamedTuple):
    """A record, where it is, and about how many bytes it has."""

    position: int
    record: Any
    size: int


def in_chunks(rows: Iterable[Row]) -> Iterator[Chunk]:
    """Rows in chunks of about a megabyte."""
    positions: list[int] = []
    records: list[Any] = []
    size = 0
    for row in rows:
        positions.append(row.position)
        records.append(row.record)
        size += row.size
        if size >= CHUNK_BYTES:
            yield Chunk(positions, records)
            positions = []
            records = []
            size = 0
    if records:
        yield Chunk(positions, records)


def unique_names(names: Iterable[str], mark: str) -> list[str]:
    """Number what comes again.

    >>> unique_names(["a", "b", "a"], "#")
    ['a', 'b', 'a#2']
    """
    taken: dict[str, None] = {}
    for base in names:
        name = base
        copy = 2
        while name in taken:
            name = f"{base}{mark}{copy}"
            copy += 1
        taken[name] = None
    return list(taken)


def is_remote(text: str) -> bool:
    """`s3://bucket/x`; not `hf:org/name`, which is a dataset and no file."""
    return "://" in text


def without_secrets(text: str) -> str:
    """As it may be shown and kept: a signed address has its password in it."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    if scheme.lower() in ("http", "https"):
        rest = rest.split("?")[0].split("#")[0]
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def reason_of(error: BaseException) -> str:
    """What the system or a library said about a file."""
    return str(getattr(error, "strerror", None) or "").lower() or first_line(error)


def cannot_read(path: str, error: BaseException) -> DataError:
    cause = "system" if isinstance(error, OSError) and error.strerror else "damage"
    return DataError("cannot_read", path=path, why=reason_of(error), cause=cause)
