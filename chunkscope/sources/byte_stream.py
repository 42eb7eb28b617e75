"""Bytes, read once from front to back with a look ahead: a file's, or made of another stream's.

Rows before a place where a file is cut or damaged are still delivered: the error comes after them.
"""

import os
import stat
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import IO

from chunkscope.errors import InputError
from chunkscope.sources.base import CHUNK_BYTES, cannot_read


class ByteStream(ABC):
    """The one buffer between a file and its reader; what fills it is said in `_more`.

    `grew` is asked at the end: did the file get longer since it was opened? What was added is not
    read, so a last line that is cut off is then no mistake.
    """

    def __init__(self) -> None:
        self._ahead = b""
        self._at = 0  # how much of it was read
        self._ended = False  # a terminal would have to say it twice
        self._error: InputError | None = None
        self._taken = 0

    @abstractmethod
    def _more(self, size: int) -> bytes:
        """More bytes, `size` of them or as many as come at once; none at the end only."""

    @abstractmethod
    def close(self) -> None: ...

    @property
    def grew(self) -> bool:
        return False

    @property
    def bytes_read(self) -> int:
        """How much of the file (as it is on disk) was read, for progress."""
        return self._taken

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end; they stay unread."""
        self._fill(size)
        return self._ahead[self._at : self._at + size]

    def read(self, size: int = CHUNK_BYTES, /) -> bytes:
        """The next `size` bytes, or fewer at the end."""
        data = self.peek(size)
        self._at += len(data)
        return data

    def _fill(self, size: int) -> None:
        """Have that many bytes ahead. An error waits until what came before it was read."""
        have = len(self._ahead) - self._at
        if have >= size:
            return
        parts = [self._ahead[self._at :]] if have else []
        self._ahead, self._at = b"", 0
        while have < size and not self._ended:
            try:
                more = self._more(size - have)
            except InputError as error:
                self._error, more = error, b""
            self._ended = not more
            parts.append(more)
            have += len(more)
            self._taken += len(more)
        if self._error is not None and not have:
            raise self._error
        self._ahead = parts[0] if len(parts) == 1 else b"".join(parts)


class FileStream(ByteStream):
    """A file as long as it was when it was opened, though others may be writing to it."""

    def __init__(
        self, file: IO[bytes], shown: str, *, keep_open: bool = False, start: int = 0
    ) -> None:
        super().__init__()
        self._file = file
        self._shown = shown
        self._keep_open = keep_open
        self._start = start
        if start:
            file.seek(start)
        self._size = self._size_now()

    def _size_now(self) -> int | None:
        size = _size_of_regular_file(self._file)
        return None if size is None else max(0, size - self._start)

    def _more(self, size: int) -> bytes:
        size = min(size, CHUNK_BYTES if self._size is None else self._size - self._taken)
        try:
            return self._file.read(size) if size else b""
        except OSError as error:
            raise cannot_read(self._shown, error) from error

    @property
    def grew(self) -> bool:
        now = self._size_now()
        return self._size is not None and now is not None and now > self._size

    def close(self) -> None:
        if not self._keep_open:
            self._file.close()


def _size_of_regular_file(file: IO[bytes]) -> int | None:
    """None for pipes, terminals and in-memory streams, which have no size to hold on to."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class DerivedStream(ByteStream):
    """What is made of the bytes of another stream, piece by piece."""

    def __init__(self, pieces: Iterator[bytes], below: ByteStream) -> None:
        super().__init__()
        self._pieces = pieces
        self._below = below

    def _more(self, size: int) -> bytes:  # noqa: ARG002  (pieces are as long as they are)
        return next(self._pieces, b"")

    @property
    def bytes_read(self) -> int:
        return self._below.bytes_read

    @property
    def grew(self) -> bool:
        return self._below.grew

    def close(self) -> None:
        self._below.close()


def lines_between(raw: ByteStream, start: int, end: int | None) -> ByteStream:
    """The lines that begin between two bytes of a file, of which `raw` has all from `before(start)`
    on: whoever reads the lines before and after has the others.
    """
    return DerivedStream(_lines_between(raw, start, end), raw)


def before(start: int) -> int:
    """Where reading has to begin to see whether a line begins at `start`."""
    return max(0, start - 1)


def _lines_between(raw: ByteStream, start: int, end: int | None) -> Iterator[bytes]:
    at = before(start)
    is_inside = start == 0
    if is_inside and raw.peek(len(BOM_UTF8)) == BOM_UTF8:
        at = len(raw.read(len(BOM_UTF8)))
    while block := raw.read(CHUNK_BYTES):
        if not is_inside:
            newline = block.find(b"\n")
            at += newline + 1 if newline >= 0 else len(block)
            block = block[newline + 1 :] if newline >= 0 else b""
            is_inside = newline >= 0
            if end is not None and at >= end:
                return
        last = -1 if end is None else block.find(b"\n", max(0, end - 1 - at))
        if last >= 0:
            yield block[: last + 1]
            return
        at += len(block)
        if block:
            yield block
