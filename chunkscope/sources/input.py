"""The bytes of one source, as each kind of reader wants them."""

import io
from contextlib import ExitStack
from functools import cached_property
from typing import IO

from chunkscope.sources.archive import open_member
from chunkscope.sources.base import DataError, Problems, ReadOptions, Source
from chunkscope.sources.open import (
    Stream,
    as_utf8,
    buffered,
    bytes_read,
    decompressed,
    in_any_order,
    looks_binary,
    open_stream,
)


class Input(ExitStack):
    """What a format's reader gets: the source, how to read it, and its bytes.

    A context manager that closes what was opened. `data` is the content of the file if
    it was read already.
    """

    def __init__(
        self,
        source: Source,
        options: ReadOptions,
        problems: Problems,
        data: bytes | None = None,
    ) -> None:
        super().__init__()
        self.source = source
        self.options = options
        self.problems = problems
        self._data = data

    @cached_property
    def plain(self) -> Stream:
        """The bytes, decompressed. They can be read once."""
        source = self.source
        if self._data is not None:
            packed = buffered(io.BytesIO(self._data), source.path)
            return self.enter_context(decompressed(packed, source.path))
        if source.member is not None:
            return self.enter_context(open_member(source))
        return self.enter_context(open_stream(source))

    @cached_property
    def text(self) -> Stream:
        """The text: UTF-8 without a byte order mark.

        Binary data is refused: one clear sentence instead of a bad row for each stray
        newline in a picture.
        """
        source = self.source
        stream = as_utf8(self.plain, source.path, self.options.encoding)
        self.enter_context(stream)
        if looks_binary(stream.peek(1024)[:1024]):
            raise DataError(
                "other_data",
                path=source.path,
                kind=kind_of_bytes(self.plain.peek(1)) or "binary",
                format=source.format,
            )
        return stream

    @cached_property
    def file(self) -> IO[bytes]:
        """The decompressed bytes, to be read in any order."""
        return self.enter_context(in_any_order(self.plain, self.source))

    @property
    def bytes_read(self) -> int:
        """How much of the file was read, as it is on disk."""
        return bytes_read(self.plain) if "plain" in self.__dict__ else 0


START_BYTES = 4096
_MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",  # a stream
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",  # an empty one
}


def kind_of_bytes(start: bytes) -> str | None:
    """What data that starts like this is: a format, "zip", "tar", or None for unknown.

    JSON Lines and a JSON document are both "json".
    """
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            return kind
    if start[257:262] == b"ustar":
        return "tar"
    if looks_binary(start):
        return None
    if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b""):
        return "json"
    return "text" if _is_utf8(start) else None


def _is_utf8(start: bytes) -> bool:
    """Whether it decodes; a character may be cut at the end."""
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(start) - 3
    return True
