"""The base of all readers: look at the first records, pass all of them on, close, fail in words.

Text formats derive from `StreamReader`, formats with columns from `RestartingReader`; each only
says how its records are read, in `_read`.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from types import TracebackType
from typing import Any, Self

from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.sources.base import CHUNK_BYTES, Chunk, Problems, Source, cannot_read
from chunkscope.sources.byte_stream import ByteStream

# What `head` shows: enough to see a field that only some records have.
HEAD_RECORDS = 100
_HEAD_CHUNKS = 3


class RecordReader(ABC):
    """Reads one source; a context manager that closes it.

    `unit` says what positions count: "line" in line-oriented text, else "row".
    `format` is what the data turned out to be: JSON Lines named .json says "jsonl".
    `rows_at` is the key of a JSON object under which the rows were, e.g. "examples".
    `beside` is what a document says beside its rows, as far as it was read.
    `positions` is how many of them there were so far, where a source is read in pieces.
    """

    unit = "row"

    def __init__(self, source: Source, problems: Problems) -> None:
        self.source = source
        self.problems = problems
        self.format = source.format
        self.rows_at: str | None = None
        self.beside: dict[str, Any] = {}
        self.positions = 0

    @abstractmethod
    def head(self) -> list[Any]:
        """The first records, which `chunks` gives again: enough to find the prompt field."""

    @abstractmethod
    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        """All records, once. `columns` names the top-level fields that are needed; None is all."""

    @property
    @abstractmethod
    def bytes_read(self) -> int:
        """How much of the file (as it is on disk) was read, for progress."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _guarded(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """The chunks, with what the system may say along the way turned into our errors."""
        try:
            yield from chunks
        except ChunkscopeError:
            raise
        except (OSError, EOFError) as error:
            raise cannot_read(self.source.path, error) from error
        except MemoryError as error:
            raise InputError(
                f"{self.source.path} needs more memory than there is",
                hint="a single row may be too large, or the file may be damaged",
            ) from error


class StreamReader(RecordReader):
    """Reads a stream of bytes once: the chunks that `head` looked at wait to be passed on."""

    def __init__(self, source: Source, problems: Problems, stream: ByteStream) -> None:
        super().__init__(source, problems)
        self._stream = stream
        self._ahead: deque[Chunk] = deque()
        self._rest = self._guarded(self._read())

    @abstractmethod
    def _read(self) -> Iterator[Chunk]:
        """All records, front to back."""

    def head(self) -> list[Any]:
        # A chunk may hold one row of 100 MB, so not more than a few of them are kept waiting.
        while len(self._ahead) < _HEAD_CHUNKS and len(self._records_ahead()) < HEAD_RECORDS:
            chunk = self._next()
            if chunk is None:
                break
            if chunk.records:
                self._ahead.append(chunk)
        return self._records_ahead()

    def _records_ahead(self) -> list[Any]:
        ahead = chain.from_iterable(chunk.records for chunk in self._ahead)
        return list(islice(ahead, HEAD_RECORDS))

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

    @property
    def bytes_read(self) -> int:
        return self._stream.bytes_read

    def close(self) -> None:
        self._stream.close()


class RestartingReader(RecordReader):
    """Reads anew each time: all columns for the head, then only those that are needed."""

    @abstractmethod
    def _read(self, columns: Sequence[str] | None, problems: Problems) -> Iterator[Chunk]:
        """All records, from the start."""

    def head(self) -> list[Any]:
        not_counted_twice = Problems()
        for chunk in self._guarded(self._read(None, not_counted_twice)):
            if chunk.records:
                return chunk.records[:HEAD_RECORDS]
        return []

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        return self._guarded(self._read(columns, self.problems))


def in_chunks(rows: Iterable[tuple[int, Any, int]]) -> Iterator[Chunk]:
    """Rows, each with its position and size, in chunks of about a megabyte.

    Where the file ends early, the rows before still come.
    """
    positions: list[int] = []
    records: list[Any] = []
    size = 0
    try:
        for position, record, length in rows:
            positions.append(position)
            records.append(record)
            size += length
            if size >= CHUNK_BYTES:
                yield Chunk(positions, records)
                positions, records, size = [], [], 0
    except InputError:
        if records:
            yield Chunk(positions, records)
        raise
    if records:
        yield Chunk(positions, records)


def _raising(error: ChunkscopeError) -> Iterator[Chunk]:
    raise error
    yield  # a generator: the error comes when the first chunk is asked for
