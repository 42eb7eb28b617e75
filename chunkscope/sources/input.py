"""The bytes of one source, as each kind of reader wants them."""

from contextlib import ExitStack
from functools import cached_property
from typing import IO

from chunkscope.sources.archive import open_member
from chunkscope.sources.base import DataError, Problems, ReadOptions, Source
from chunkscope.sources.open import (
    Stream,
    as_utf8,
    bytes_read,
    in_any_order,
    looks_binary,
    open_stream,
)


class Input(ExitStack):
    """What a format's reader gets: the source, how to read it, and its bytes.

    A context manager that closes what was opened.
    """

    def __init__(
        self, source: Source, options: ReadOptions, problems: Problems
    ) -> None:
        super().__init__()
        self.source = source
        self.options = options
        self.problems = problems

    @cached_property
    def plain(self) -> Stream:
        """The bytes, decompressed. They can be read once."""
        is_member = self.source.member is not None
        stream = open_member(self.source) if is_member else open_stream(self.source)
        return self.enter_context(stream)

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
                kind=kind_of_bytes(self.plain.peek(1)),
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
UNKNOWN_TEXT = "CSV or text"
MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",  # a stream
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",  # an empty one
}


def kind_of_bytes(start: bytes) -> str:
    """What data that starts like this is: a format, or words for what is none.

    JSON Lines and a JSON document are both "json".
    """
    for magic, kind in MAGIC.items():
        if start.startswith(magic):
            return kind
    if start[257:262] == b"ustar":
        return "tar"
    if looks_binary(start):
        return "binary"
    if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b""):
        return "json"
    return UNKNOWN_TEXT
