"""The words every reader shares: a source, its records, and what was wrong with them.

A *source* is one dataset: a file, a member of an archive, stdin or a hub dataset. A *reader*
turns it into chunks of *records* (JSON values: a dict for most formats, a string for plain text),
each with its position, so that a bad or a very long row can be looked up.
"""

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from chunkscope.errors import ChunkscopeError, InputError

# What `head` shows: enough to see a field that only some records have.
HEAD_RECORDS = 100
_HEAD_CHUNKS = 3
# About how much data one chunk holds: large enough to keep the hot loops in C.
CHUNK_BYTES = 1 << 20
# No prompt is longer. A small compressed file may unpack to a line that would fill the memory.
MOST_ROW_BYTES = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One dataset, found but not opened.

    A source named on the command line by itself has no group; one found in a folder or an archive
    has that folder (`data/reasoning`) or archive (`data/packs.zip`).
    """

    name: str
    group: str
    path: str
    format: str
    file: Path | None
    member: str | None = None
    bytes: int | None = None
    # Where a member's data starts in the (decompressed) tar; None for all else.
    offset: int | None = None

    @property
    def is_read_once(self) -> bool:
        """Standard input or another pipe: what was read is gone."""
        return self.path == "-" or (self.file is not None and self.bytes is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What the command line says about how to read; None means "find out"."""

    input_format: str | None = None
    encoding: str = "utf-8"
    per_line: bool = False
    delimiter: str | None = None
    header: bool | None = None
    trust_remote_code: bool = False


@dataclass(slots=True)
class Skipped:
    """A file that was left out of a folder or an archive, and why."""

    path: str
    reason: str


class Chunk(NamedTuple):
    """Some consecutive records; `positions[i]` says where `records[i]` is, counted from 1."""

    positions: Sequence[int]
    records: list[Any]


class Reader(Protocol):
    """Reads one source once; a context manager that closes it.

    `unit` says what positions count: "line" in line-oriented text, else "row".
    `format` is what the data turned out to be: JSON Lines named .json says "jsonl".
    `rows_at` is the key of a JSON object under which the rows were, e.g. "examples".
    """

    unit: str
    format: str
    rows_at: str | None

    def head(self) -> list[Any]:
        """The first records, without consuming them: enough to find the prompt field."""

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        """All records. `columns` names the top-level fields that are needed; None is all."""

    @property
    def bytes_read(self) -> int:
        """How much of the file (as it is on disk) was read, for progress."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class BadRow:
    position: int
    reason: str


@dataclass(slots=True)
class Problems:
    """Rows that could not be used: the first few in words, all of them as a count."""

    keep: int = 20
    count: int = 0
    rows: list[BadRow] = field(default_factory=list)

    def bad(self, position: int, reason: str) -> None:
        self.count += 1
        if len(self.rows) < self.keep:
            self.rows.append(BadRow(position, reason))


class RecordReader(ABC):
    """What the readers have in common: look ahead, pass on, close, and fail in words.

    A format only says how its records are read, in `_read`.
    """

    unit = "row"

    def __init__(self, source: Source, problems: Problems) -> None:
        self.source = source
        self.problems = problems
        self.format = source.format
        self.rows_at: str | None = None
        self._ahead: deque[Chunk] = deque()
        self._rest = self._guarded(None)

    @abstractmethod
    def _read(self, columns: Sequence[str] | None) -> Iterator[Chunk]:
        """All records, front to back."""

    @property
    def bytes_read(self) -> int:
        return 0

    def head(self) -> list[Any]:
        # A chunk may hold one row of 100 MB, so not more than a few of them are kept waiting.
        while len(self._ahead) < _HEAD_CHUNKS and self._records_ahead() < HEAD_RECORDS:
            chunk = self._next()
            if chunk is None:
                break
            if chunk.records:
                self._ahead.append(chunk)
        return [record for chunk in self._ahead for record in chunk.records][:HEAD_RECORDS]

    def _records_ahead(self) -> int:
        return sum(len(chunk.records) for chunk in self._ahead)

    def _next(self) -> Chunk | None:
        """The next chunk. An error after some rows is kept for when they have been read."""
        try:
            return next(self._rest, None)
        except ChunkscopeError as error:
            if not self._ahead:
                raise
            self._rest = _raising(error)
            return None

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:  # noqa: ARG002
        while self._ahead:
            yield self._ahead.popleft()
        yield from self._rest

    def _guarded(self, columns: Sequence[str] | None) -> Iterator[Chunk]:
        """`_read`, with what the system may say along the way turned into our errors."""
        try:
            yield from self._read(columns)
        except ChunkscopeError:
            raise
        except (OSError, EOFError) as error:
            raise cannot_read(self.source.path, error) from error
        except MemoryError as error:
            raise InputError(
                f"{self.source.path} needs more memory than there is",
                hint="a single row may be too large, or the file may be damaged",
            ) from error

    def close(self) -> None:  # noqa: B027  (nothing to close is the common case)
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _raising(error: ChunkscopeError) -> Iterator[Chunk]:
    raise error
    yield  # a generator: the error comes when the first chunk is asked for


_ACTED_ON = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """A name as it can be written down: valid text, on one line, and nothing a terminal acts on.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    valid = text.encode("utf-8", "replace").decode("utf-8")
    return _ACTED_ON.sub(lambda c: c[0].encode("unicode_escape").decode(), valid)


def too_long(path: str, what: str) -> InputError:
    return InputError(
        f"{path}: {what} is longer than {MOST_ROW_BYTES >> 20} MB",
        hint="is it the format that its name says? See --input-format",
    )


def cannot_read(path: str, error: BaseException) -> InputError:
    """What the system said about a file, as a sentence of ours."""
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path} is gone", hint="it was moved or deleted while chunkscope ran")
    if isinstance(error, PermissionError):
        return InputError(f"no permission to read {path}", hint=f"try `ls -l {path}`")
    if isinstance(error, IsADirectoryError):
        return InputError(f"{path} is a folder, not a file", hint="was it replaced meanwhile?")
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return InputError(
        f"cannot read {path}: {said or type(error).__name__}",
        hint="is the file, or the disk it is on, damaged?",
    )
