"""One source, read: its first records, all of them in chunks, and what was found out on the way.

How the rows of a format are read is a generator function (`RowFunction`), which gets the reader:
it reads `stream` or `file`, reports bad rows to `problems`, and yields chunks.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Self

from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.sources.base import (
    CHUNK_BYTES,
    Chunk,
    Problems,
    ReadOptions,
    Source,
    cannot_read,
)
from chunkscope.sources.opening import open_lines, open_seekable, open_text
from chunkscope.sources.recognisers import RowFunction
from chunkscope.sources.streams import Stream

# What `head` shows: enough to see a field that only some records have.
HEAD_RECORDS = 100
_HEAD_CHUNKS = 3


class RecordReader:
    """Reads one source once; a context manager that closes it.

    `unit` says what positions count: "line" in line-oriented text, else "row".
    `format` is what the data turned out to be: JSON Lines named .json says "jsonl".
    `rows_at` is the key of a JSON object under which the rows were, e.g. "examples".
    `metadata` is what a document says beside its rows.
    `state` is whatever a harness's row function keeps for whoever recognises its log.
    `positions` is how many of them there were so far, where a source is read in parts.
    """

    def __init__(
        self,
        source: Source,
        options: ReadOptions,
        problems: Problems,
        rows: RowFunction,
        *,
        restarts: bool = False,
        part: tuple[int, int | None] = (0, None),
    ) -> None:
        self.source = source
        self.options = options
        self.problems = problems
        self.part = part  # of the file: the rows that begin between these two bytes
        self.format = source.format
        self.unit = "row"
        self.rows_at: str | None = None
        self.metadata: dict[str, Any] = {}
        self.state: Any = None
        self.positions = 0
        self.is_divisible = False  # whether other processes could read parts of it
        self.bytes_taken = 0  # by what does not read `stream`, for progress
        self._rows = rows
        self._restarts = restarts  # all columns for the head, then anew, only those needed
        self._ahead: deque[Chunk] = deque()  # what `head` looked at and `chunks` will give
        self._rest = self._guarded(None)
        self._stream: Stream | None = None
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in (self._stream, self._file):
            if opened is not None:
                opened.close()

    @property
    def stream(self) -> Stream:
        """The source's text: decompressed, as UTF-8. It can be read once."""
        if self._stream is None:
            is_whole = self.part == (0, None)
            self._stream = (
                open_text(self.source, self.options.encoding)
                if is_whole
                else open_lines(self.source, *self.part)
            )
        return self._stream

    @property
    def file(self) -> IO[bytes]:
        """The source's bytes, decompressed, as a file that can be read in any order."""
        if self._file is None:
            self._file = open_seekable(self.source)
        return self._file

    @property
    def bytes_read(self) -> int:
        """How much of the file (as it is on disk) was read, for progress."""
        return self._stream.bytes_read if self._stream else self.bytes_taken

    def head(self) -> list[Any]:
        """The first records, which `chunks` gives again: enough to find the prompt field."""
        records: list[Any] = []
        problems, self.problems = self.problems, Problems() if self._restarts else self.problems
        # A chunk may hold one row of 100 MB, so not more than a few of them are kept waiting.
        while len(self._ahead) < _HEAD_CHUNKS and len(records) < HEAD_RECORDS:
            try:
                chunk = next(self._rest, None)
            except ChunkscopeError as error:
                if not self._ahead:
                    raise
                self._rest = _raising(error)  # when the rows before it have been read
                break
            if chunk is None:
                break
            if chunk.records:
                self._ahead.append(chunk)
                records += chunk.records
        if self._restarts:
            self._ahead.clear()
            self.problems = problems
        return records[:HEAD_RECORDS]

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        """All records, once. `columns` names the top-level fields that are needed; None is all."""
        if self._restarts:
            self.bytes_taken = self.positions = 0
            self._rest = self._guarded(columns)
        while self._ahead:
            yield self._ahead.popleft()
        yield from self._rest

    def _guarded(self, columns: Sequence[str] | None) -> Iterator[Chunk]:
        """The chunks, with what the system may say along the way turned into our errors."""
        try:
            yield from self._rows(self, columns)
        except (OSError, EOFError) as error:
            raise cannot_read(self.source.path, error) from error
        except MemoryError as error:
            raise InputError(
                f"{self.source.path} needs more memory than there is",
                hint="a single row may be too large, or the file may be damaged",
            ) from error


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
