"""From a source, wherever it is, to its bytes."""

import os
from codecs import BOM_UTF8
from collections.abc import Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from chunkscope.errors import InputError
from chunkscope.sources.archives import open_member
from chunkscope.sources.base import CHUNK_BYTES, Source, cannot_read
from chunkscope.sources.formats import kind_of_bytes
from chunkscope.sources.remote import open_remote, open_remote_stream
from chunkscope.sources.streams import (
    Stream,
    as_utf8,
    compression_of,
    decompressed,
    looks_binary,
    open_path,
    open_stdin,
    spooled,
    stream_of,
)


def open_raw(source: Source) -> Stream:
    """The source's bytes as they are: those of a file, a member of an archive, standard input."""
    if source.member is not None:
        return open_member(
            _identity(source),
            partial(open_whole, source),
            source.member,
            source.offset,
            source.bytes or 0,
            source.path,
        )
    if source.url is not None:
        return open_remote_stream(source.url, source.path, size=source.bytes)
    return open_stdin() if source.file is None else open_path(source.file, source.path)


def open_text(source: Source, encoding: str = "utf-8") -> Stream:
    """Decompressed, as UTF-8 without a byte order mark. Binary data is refused: one clear sentence
    instead of a bad row for every stray newline in a picture.
    """
    raw = open_raw(source)
    try:
        stream = as_utf8(decompressed(raw, source.path), source.path, encoding)
        start = stream.peek(1024)
    except BaseException:
        raw.close()
        raise
    if not looks_binary(start):
        return stream
    stream.close()
    kind = kind_of_bytes(start)
    what = f"{kind} data" if kind in ("parquet", "arrow") else "a binary file"
    other = f'input_format = "{kind}"' if kind else 'encoding = "utf-16"'
    raise InputError(
        f"{source.path} is {what}, not {source.format}",
        hint=f"try another file, or in chunkscope.toml {other}",
    )


def open_lines(source: Source, start: int, end: int | None) -> Stream:
    """The lines that begin between two bytes of a file: who reads the lines before and after has
    the others.
    """
    before = max(0, start - 1)  # a newline there means that a line begins at `start`
    if source.url is not None:
        raw = open_remote_stream(source.url, source.path, size=source.bytes, start=before)
    else:
        raw = open_path(_file(source), source.path, start=before)
    return stream_of(_lines_between(raw, before, start, end), raw, source.path)


def _lines_between(raw: Stream, at: int, start: int, end: int | None) -> Iterator[bytes]:
    if start == 0 and raw.peek(len(BOM_UTF8)) == BOM_UTF8:
        at = len(raw.read(len(BOM_UTF8)))
    is_inside = start == 0
    while block := raw.read(CHUNK_BYTES):
        if not is_inside:
            newline = block.find(b"\n")
            is_inside = newline >= 0
            skipped = newline + 1 if is_inside else len(block)
            at, block = at + skipped, block[skipped:]
            if end is not None and at >= end:
                return
        last = -1 if end is None else block.find(b"\n", max(0, end - 1 - at))
        if last >= 0:
            yield block[: last + 1]
            return
        at += len(block)
        if block:
            yield block


def open_seekable(source: Source) -> IO[bytes]:
    """A file that may be read in any order: the source's own, or a copy of what cannot jump."""
    raw = open_raw(source)
    try:
        if source.member is None and compression_of(raw.peek(10)) is None:
            if source.url is not None and source.bytes is not None:
                return open_remote(source.url)
            if source.file is not None and source.file.is_file():
                return source.file.open("rb")
        return spooled(decompressed(raw, source.path), source.path)
    except OSError as error:
        raise cannot_read(source.path, error) from error
    finally:
        raw.close()


def open_whole(archive: Source) -> IO[bytes]:
    """An archive's own bytes, also given one of its members."""
    try:
        return open_remote(archive.url) if archive.url else _file(archive).open("rb")
    except OSError as error:
        raise cannot_read(archive.path, error) from error


def _file(source: Source) -> Path:
    if source.file is None:
        raise InputError(f"{source.path} is no file", hint="save it to one")
    return source.file


def _identity(archive: Source) -> Hashable:
    if archive.url is not None:
        return archive.url
    try:
        status = _file(archive).stat()
    except OSError as error:
        raise cannot_read(archive.path, error) from error
    return os.fspath(_file(archive)), status.st_mtime_ns, status.st_size
