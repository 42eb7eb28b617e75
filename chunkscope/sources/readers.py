"""From a source to the reader that fits it."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from chunkscope.errors import InputError, UsageError
from chunkscope.prompts.harness.inspect_log import (
    InspectJsonReader,
    InspectZipReader,
    is_inspect_json,
)
from chunkscope.sources.archives import open_member
from chunkscope.sources.base import Problems, ReadOptions, Source, cannot_read
from chunkscope.sources.byte_stream import ByteStream, FileStream, before, lines_between
from chunkscope.sources.columnar import ColumnarReader, saved_files
from chunkscope.sources.documents import DocumentReader
from chunkscope.sources.encodings import looks_binary
from chunkscope.sources.formats import FORMATS, kind_of_bytes, stdin_bytes
from chunkscope.sources.hub import HubReader
from chunkscope.sources.lines import LinesReader
from chunkscope.sources.opening import open_raw, spooled, unwrapped
from chunkscope.sources.pieces import Piece
from chunkscope.sources.reader import RecordReader
from chunkscope.sources.remote import open_columns, open_stream
from chunkscope.sources.tables import TableReader
from chunkscope.sources.text import TextReader


def open_reader(source: Source, options: ReadOptions, problems: Problems) -> RecordReader:
    """Open a source for reading once: `with open_reader(...) as reader`."""
    if source.format == "hub":
        return HubReader(source, problems, options)
    if source.format == "saved":
        return _saved_reader(source, problems)
    if source.format in ("parquet", "arrow"):
        return _columnar_reader(source, problems)
    if source.format == "inspect":
        return InspectZipReader(source, problems, _seekable(source))
    if source.format not in FORMATS:
        raise UsageError(
            f"unknown format: {source.format}", hint=f"one of {', '.join(sorted(FORMATS))}"
        )
    stream = _open(source, options.encoding, text=True)
    try:
        _refuse_binary(stream, source)
        return _text_reader(source, options, problems, stream)
    except BaseException:
        stream.close()
        raise


def open_piece(piece: Piece, problems: Problems) -> RecordReader:
    """Open a piece of a source that is divisible; its positions begin at 1."""
    source = piece.source
    if source.format == "parquet":
        between = piece.start, piece.end
        return ColumnarReader(source, problems, [_jumping(source)], between=between)
    raw = _raw(source, start=before(piece.start))
    lines = lines_between(raw, piece.start, piece.end)
    return LinesReader(source, problems, lines, after=piece.start)


def _text_reader(
    source: Source, options: ReadOptions, problems: Problems, stream: ByteStream
) -> RecordReader:
    start = stream.peek(4096)
    is_one_array = start.split(b"\n")[0].strip() == b"["  # whatever its name says
    if source.format == "json" or (source.format == "jsonl" and is_one_array):
        if is_inspect_json(start):
            return InspectJsonReader(source, problems, stream)
        return DocumentReader(source, problems, stream)
    if source.format == "csv":
        return TableReader(source, problems, stream, options)
    if source.format == "text":
        return TextReader(source, problems, stream, per_line=options.per_line)
    return LinesReader(source, problems, stream)


def _open(source: Source, encoding: str, *, text: bool) -> ByteStream:
    if source.member is not None:
        return open_member(source, encoding=encoding, text=text)
    return unwrapped(_raw(source), source.path, encoding=encoding, text=text)


def _raw(source: Source, *, start: int = 0) -> ByteStream:
    if source.url is not None:
        return open_stream(source.url, source.path, start=start, size=source.bytes)
    if source.file is None:
        return FileStream(stdin_bytes(), source.path, keep_open=True)
    return open_raw(source.file, source.path, start=start)


def _refuse_binary(stream: ByteStream, source: Source) -> None:
    """One clear sentence instead of a bad row for every stray newline in a picture."""
    start = stream.peek(1024)
    if looks_binary(start):
        kind = kind_of_bytes(start)
        what = f"{kind} data" if kind in ("parquet", "arrow") else "a binary file"
        forced = f"--input-format {kind}" if kind else "another file, or --encoding utf-16"
        raise InputError(f"{source.path} is {what}, not {source.format}", hint=f"try {forced}")


def _columnar_reader(source: Source, problems: Problems) -> ColumnarReader:
    stream = _open(source, "utf-8", text=False)
    try:
        # Neither a pipe, nor in an archive, nor compressed: pyarrow may jump about in it.
        if isinstance(stream, FileStream) and _may_jump(source):
            return ColumnarReader(source, problems, [_jumping(source)])
        spool = spooled(stream, source.path)
    finally:
        stream.close()
    return ColumnarReader(source, problems, [partial(_again, spool)], spool)


def _may_jump(source: Source) -> bool:
    if source.url is not None:
        return source.bytes is not None
    return source.file is not None and source.file.is_file()


def _file(source: Source) -> Path:
    if source.file is None:
        raise InputError(f"{source.path} is no file", hint="save it to one")
    return source.file


def _jumping(source: Source) -> Callable[[], Any]:
    """Opens a file in which pyarrow may jump about."""
    if source.url is not None:
        return partial(open_columns, source.url)
    import pyarrow

    return partial(pyarrow.OSFile, str(_file(source)))


def _seekable(source: Source) -> IO[bytes]:
    """A file that may be read in any order: the source's own, or a copy of a pipe or a member."""
    stream = _open(source, "utf-8", text=False)
    try:
        if isinstance(stream, FileStream) and _may_jump(source):
            return open_columns(source.url) if source.url else _file(source).open("rb")
        return spooled(stream, source.path)
    except OSError as error:
        raise cannot_read(source.path, error) from error
    finally:
        stream.close()


def _again(spool: IO[bytes]) -> IO[bytes]:
    """The temporary file from its start, to be closed without losing it."""
    file = os.fdopen(os.dup(spool.fileno()), "rb")
    file.seek(0)
    return file


def _saved_reader(source: Source, problems: Problems) -> ColumnarReader:
    import pyarrow

    if source.file is None:
        raise InputError(f"{source.path} is no folder", hint="name a folder from save_to_disk")
    files = saved_files(source.file, source.path)
    return ColumnarReader(source, problems, [partial(pyarrow.OSFile, str(file)) for file in files])
