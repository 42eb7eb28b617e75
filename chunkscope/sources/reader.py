"""One source, read: its first records, all of them in chunks, and what was found out on the way.

How the rows of a format are read is a generator function (`RowFunction`), which gets the reader:
it reads `stream` or `file`, reports bad rows to `problems`, and yields chunks.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import IO, Any, Self

from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.sources.base import Chunk, Problems, ReadOptions, Source, cannot_read
from chunkscope.sources.formats import RowFunction, kind_of_bytes
from chunkscope.sources.opening import open_lines, open_raw, open_whole
from chunkscope.sources.streams import Stream, as_utf8, decompressed, looks_binary, spooled

# What `head` shows: enough to see a field that only some records have.
HEAD_RECORDS = 100
_HEAD_CHUNKS = 3  # may hold a row of 100 MB each, so not more are kept waiting


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
        self._is_part = part != (0, None)
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
        self._chunks: Iterator[Chunk] | None = None
        self._plain: Stream | None = None
        self._stream: Stream | None = None
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in (self._stream or self._plain, self._file):
            if opened is not None:
                opened.close()

    @property
    def plain(self) -> Stream:
        """The source's bytes, decompressed. They can be read once."""
        if self._plain is None:
            if self._is_part:
                self._plain = open_lines(self.source, *self.part)
            else:
                self._plain = decompressed(open_raw(self.source), self.source.path)
        return self._plain

    @property
    def stream(self) -> Stream:
        """The source's text: UTF-8 without a byte order mark. Binary data is refused: one clear
        sentence instead of a bad row for every stray newline in a picture.
        """
        if self._stream is None:
            path = self.source.path
            self._stream = as_utf8(self.plain, path, self.options.encoding)
            start = self._stream.peek(1024)
            if looks_binary(start):
                kind = kind_of_bytes(start)
                other = f'input_format = "{kind}"' if kind else 'encoding = "utf-16"'
                raise InputError(
                    f"{path} is {kind or 'binary'} data, not {self.format}",
                    hint=f"try another file, or in chunkscope.toml {other}",
                )
        return self._stream

    @property
    def file(self) -> IO[bytes]:
        """The source's bytes, decompressed, as a file that can be read in any order."""
        if self._file is None:
            source = self.source
            is_file = source.member is None and source.bytes is not None
            if is_file and (self._is_part or self.plain.is_raw):
                self._file = open_whole(source)
            else:
                self._file = spooled(self.plain, source.path)
        return self._file

    @property
    def bytes_read(self) -> int:
        """How much of the file (as it is on disk) was read, for progress."""
        return self._stream.bytes_read if self._stream else self.bytes_taken

    def head(self) -> list[Any]:
        """The first records, which `chunks` gives again: enough to find the prompt field."""
        problems = self.problems
        if self._restarts:
            self.problems = Problems()
        rest, ahead, count = self._guarded(None), list[Chunk](), 0
        try:
            for chunk in rest:
                ahead.append(chunk)
                count += len(chunk.records)
                if count >= HEAD_RECORDS or len(ahead) == _HEAD_CHUNKS:
                    break
        except ChunkscopeError as error:
            if not count:
                raise
            rest = _raising(error)  # when the rows before it have been read
        self.problems = problems
        if not self._restarts:
            self._chunks = chain(ahead, rest)
        return [record for chunk in ahead for record in chunk.records][:HEAD_RECORDS]

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        """All records, once. `columns` names the top-level fields that are needed; None is all."""
        if self._chunks is None:
            self.bytes_taken = self.positions = 0
            self._chunks = self._guarded(columns)
        return self._chunks

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


def _raising(error: ChunkscopeError) -> Iterator[Chunk]:
    raise error
    yield  # a generator: the error comes when the first chunk is asked for
