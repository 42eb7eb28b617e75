"""From a source, wherever it is, to its bytes."""

import os
from codecs import BOM_UTF8
from collections.abc import Hashable, Iterator
from functools import partial
from typing import IO

from chunkscope.errors import InputError
from chunkscope.sources.archives import Member, Tar, Zip, archive_of
from chunkscope.sources.base import CHUNK_BYTES, Source, cannot_read
from chunkscope.sources.remote import open_remote, open_remote_stream
from chunkscope.sources.streams import Stream, open_path, open_stdin


def open_raw(source: Source, *, start: int = 0) -> Stream:
    """The source's bytes as they are: those of a file, a member of an archive, standard input."""
    if source.member is not None:
        member = Member(source.member, source.bytes or 0, source.offset)
        return open_archive(source).open(member, source.path)
    if source.url is not None:
        return open_remote_stream(source.url, source.path, size=source.bytes, start=start)
    if source.file is None:
        return open_stdin()
    return open_path(source.file, source.path, start=start)


def open_lines(source: Source, start: int, end: int | None) -> Stream:
    """The lines that begin between two bytes of a file: who reads the lines before and after has
    the others.
    """
    before = max(0, start - 1)  # a newline there means that a line begins at `start`
    raw = open_raw(source, start=before)
    blocks = _lines_between(raw, before, start, end)
    return Stream(lambda _: next(blocks, b""), raw, partial(cannot_read, source.path))


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


def open_whole(source: Source) -> IO[bytes]:
    """The bytes of a file, or of a member's archive, to be read in any order."""
    try:
        if source.file is not None:
            return source.file.open("rb")
        if source.url is not None:
            return open_remote(source.url, source.path)
    except OSError as error:
        raise cannot_read(source.path, error) from error
    raise InputError(f"{source.path} is no file", hint="save it to one")


def open_archive(source: Source) -> "Zip | Tar":
    """The archive that a source is, or is a member of."""
    key: Hashable = source.url
    try:
        if source.file is not None:
            status = source.file.stat()
            key = os.fspath(source.file), status.st_mtime_ns, status.st_size
    except OSError as error:
        raise cannot_read(source.path, error) from error
    shown = source.path.removesuffix(f"/{source.member}")
    return archive_of(key, partial(open_whole, source), shown)
