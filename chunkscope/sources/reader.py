"""The formats there are, and one source read: its first records, and all of them in chunks.

How the rows of a format are read is a generator function (`RowFunction`), which gets the reader:
it reads `stream` or `file`, reports bad rows to `problems`, and yields chunks. Whoever has one
registers its format when it is imported, also those that only a harness writes
(`chunkscope.prompts.harness`).
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from posixpath import splitext
from typing import IO, Any

from chunkscope.sources.base import (
    CHUNK_BYTES,
    Chunk,
    DataError,
    Problems,
    ReadOptions,
    Source,
)
from chunkscope.sources.remote import explaining
from chunkscope.sources.streams import (
    COMPRESSED_SUFFIXES,
    Stream,
    as_utf8,
    blocks_of,
    looks_binary,
    open_archive,
    open_stream,
    open_whole,
    spooled,
)

START_BYTES = 4096
_ARCHIVE = re.compile(r"\.(zip|tar|t(ar\.)?(gz|bz2|xz|zst))$", re.IGNORECASE)

# Reads the rows of a source, given its RecordReader and, of formats with columns, those to read.
RowFunction = Callable[..., Iterator[Chunk]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Every claim is optional.

    `rows` reads files of this format: those with one of the `suffixes`, archives whose members are
    claimed, and text whose first bytes are.
    `skip_reason` says why a file of a folder is no data, given its path and first bytes.
    `task_name` matches a file's name (without suffix) that holds the name of a task, as `task`.
    """

    name: str = ""
    suffixes: tuple[str, ...] = ()
    rows: RowFunction | None = None
    is_columnar: bool = False  # some of its columns can be read without the others
    claims_start: Callable[[bytes], object] | None = None
    claims_members: Callable[[Collection[str]], bool] | None = None
    skip_reason: Callable[[Path, bytes], str | None] | None = None
    task_name: re.Pattern[str] | None = None


FORMATS: list[Format] = []
READERS: dict[str, Format] = {}  # those that read rows, by name
BY_SUFFIX: dict[str, str] = {}


def register(*formats: Format) -> None:
    FORMATS.extend(formats)
    READERS.update((one.name, one) for one in formats if one.rows)
    BY_SUFFIX.update((suffix, one.name) for one in formats for suffix in one.suffixes)


def format_of_name(name: str) -> tuple[str, str]:
    """The format and the suffixes that say so: "x.v2.jsonl.gz" -> ("jsonl", ".jsonl.gz"); an
    archive is "archive"; "" where the name says nothing.
    """
    if archive := _ARCHIVE.search(name):
        return "archive", archive[0]
    stem, suffix = splitext(name.lower())
    packing = suffix if suffix in COMPRESSED_SUFFIXES else ""
    suffix = splitext(stem)[1] if packing else suffix
    kind = BY_SUFFIX.get(suffix, "")
    size = len(packing) + (len(suffix) if kind else 0)
    return kind, name[len(name) - size :]


def kind_of_bytes(start: bytes) -> str | None:
    """What data that starts like this is: a format, "zip", "tar", or None for who knows."""
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if start[257:262] == b"ustar":
        return "tar"
    if looks_binary(start):
        return None
    if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b""):
        return "json"  # its reader finds out whether it is one document or a value per line
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut at the end of the sample; anywhere else it is not UTF-8.
        return "text" if error.start >= len(start) - 3 else None
    return "text"


# What `head` shows: enough to see a field that only some records have.
HEAD_RECORDS = 100
_HEAD_CHUNKS = 3  # may hold a row of 100 MB each, so not more are kept waiting


def split(source: Source, target_bytes: int) -> list[Source]:
    """The parts of a source, in order. One where no reading could begin in the middle: only lines
    and the row groups of parquet, as they are in the file, can be read by themselves.
    """
    is_packed = format_of_name(source.path)[1].lower().endswith(COMPRESSED_SUFFIXES)
    has_places = (
        source.format in ("jsonl", "parquet") and not source.member and not is_packed
    )
    size = source.bytes or 0
    if not has_places or source.rendered or size <= target_bytes:
        return [source]
    whole, starts = range(size), range(0, size, target_bytes)
    return [
        replace(source, part=whole[start : start + target_bytes]) for start in starts
    ]


class RecordReader(ExitStack):
    """Reads one source once, or a part of one whose reader `is_divisible`, where positions begin
    at 1; a context manager that closes it."""

    def __init__(
        self, source: Source, options: ReadOptions, problems: Problems
    ) -> None:
        super().__init__()
        self.source = source
        self.options = options
        self.problems = problems
        self.format = (
            source.format
        )  # then what it turned out to be: JSON Lines named .json "jsonl"
        self.unit = "row"  # what positions count: "line" in line-oriented text
        self.metadata: dict[str, Any] = {}  # what a document says beside its rows
        self.state: Any = (
            None  # what a row function keeps for whoever recognises its log
        )
        self.positions = (
            0  # how many there were so far, where a source is read in parts
        )
        self.is_divisible = False  # whether other processes could read parts of it
        self.bytes_taken = 0  # by what does not read `stream`, for progress
        self._chunks: Iterator[Chunk] | None = None

    @cached_property
    def plain(self) -> Stream:
        """The source's bytes, decompressed. They can be read once."""
        path, part, places = self.source.path, self.source.part, list[int]()
        if part is None:
            return self.enter_context(open_stream(self.source))
        from fsspec.utils import seek_delimiter

        with explaining(path):
            file = self.enter_context(open_whole(self.source))
            for place in (
                part.stop,
                part.start,
            ):  # lines belong to the part they begin in
                file.seek(place)
                seek_delimiter(file, b"\n", CHUNK_BYTES)
                places.append(file.tell())
            return Stream(blocks_of(file, path, places[0] - places[1]), file)

    @cached_property
    def stream(self) -> Stream:
        """The source's text: UTF-8 without a byte order mark. Binary data is refused: one clear
        sentence instead of a bad row for every stray newline in a picture.
        """
        stream = self.enter_context(
            as_utf8(self.plain, self.source.path, self.options.encoding)
        )
        if looks_binary(start := stream.peek(1024)):
            kind = kind_of_bytes(start) or "binary"
            raise DataError(
                "other_data", path=self.source.path, kind=kind, format=self.format
            )
        return stream

    @cached_property
    def file(self) -> IO[bytes]:
        """The source's bytes, decompressed, as a file that can be read in any order."""
        is_file = self.source.member is None and self.source.bytes is not None
        if is_file and (self.source.part or self.plain.is_raw):
            return self.enter_context(open_whole(self.source))
        return self.enter_context(spooled(self.plain, self.source.path))

    @property
    def bytes_read(self) -> int:
        """How much of the file (as it is on disk) was read, for progress."""
        return self.stream.taken[0] if "stream" in self.__dict__ else self.bytes_taken

    def head(self) -> list[Any]:
        """Records of the first chunks, spread as sets may be sorted; `chunks` gives them again."""
        rest, ahead, records = self.chunks(), list[Chunk](), list[Any]()
        for chunk in rest:
            ahead.append(chunk)
            records += chunk.records
            if len(records) >= HEAD_RECORDS or len(ahead) == _HEAD_CHUNKS:
                break
        self._chunks = chain(ahead, rest)
        places = range(min(len(records), HEAD_RECORDS))
        return [records[len(records) * place // len(places)] for place in places]

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        """All records, once. `columns` names the top-level fields that are needed; None is all.

        Of tables all columns were read for the head, now anew only those that are needed.
        """
        form = READERS.get(self.source.format)
        if self._chunks is not None and not (form and form.is_columnar):
            return self._chunks
        self.bytes_taken = self.positions = self.problems.count = 0
        self.problems.rows.clear()
        # By the format that the name says, where the content agrees; of standard input, or of a
        # file whose name says nothing, by the content.
        start, kind, options = b"", self.format, self.options
        is_named = kind in ("csv", "text") and not (
            options.input_format or options.per_line
        )
        if not kind:
            start = self.plain.peek(START_BYTES)
            kind = kind_of_bytes(start) or ""
        elif kind == "json" or (
            is_named and self.stream.peek(1) in (b"{", b"[")
        ):  # lines of JSON?
            start = self.stream.peek(CHUNK_BYTES if is_named else START_BYTES)
        if kind in ("json", "text", "csv") and start:
            claims = (
                one.name
                for one in FORMATS
                if one.claims_start and one.claims_start(start)
            )
            kind = next(claims, kind)
        self.format = self.format or kind
        if kind == "archive":  # one that could not be opened
            open_archive(self.source)
        rows = READERS[kind].rows if kind in READERS else None
        if rows is None:
            raise DataError(
                "unknown_data", path=self.source.path, kind=kind or "binary"
            )
        return rows(self, columns)
