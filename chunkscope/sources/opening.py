"""Opening: from a path or a stream to plain bytes, whatever they are wrapped in."""

import tempfile
from pathlib import Path
from threading import Timer
from typing import IO, BinaryIO

from chunkscope.console import say
from chunkscope.errors import InputError
from chunkscope.sources.base import CHUNK_BYTES, cannot_read
from chunkscope.sources.byte_stream import ByteStream, FileStream
from chunkscope.sources.compression import decompressed
from chunkscope.sources.encodings import as_utf8

_PATIENCE_S = 1.0


def open_bytes(file: Path, *, shown: str, encoding: str = "utf-8", text: bool = True) -> ByteStream:
    """Open a file, undo its compression and, for text, make it UTF-8 without a BOM.

    `shown` is its name as people know it; the suffix in it is checked against the content.
    """
    return unwrapped(open_raw(file, shown), shown, encoding=encoding, text=text)


def open_raw(file: Path, shown: str, *, start: int = 0) -> ByteStream:
    """A file's bytes as they are, from one of them on."""
    try:
        return FileStream(_opened(file, shown), shown, start=start)
    except OSError as error:
        raise cannot_read(shown, error) from error


def _opened(file: Path, shown: str) -> BinaryIO:
    """A named pipe opens when somebody opens its other end: say so if nobody does."""
    if not file.is_fifo():
        return file.open("rb", buffering=0)
    waits = Timer(_PATIENCE_S, say, [f"waiting: {shown} is a pipe, and nobody writes to it yet"])
    waits.daemon = True
    waits.start()
    try:
        return file.open("rb", buffering=0)
    finally:
        waits.cancel()


def unwrapped(raw: ByteStream, shown: str, *, encoding: str, text: bool) -> ByteStream:
    """The stream without its compression and, for text, as UTF-8; closed if that fails."""
    try:
        plain = decompressed(raw, shown)
        return as_utf8(plain, shown, encoding) if text else plain
    except BaseException:
        raw.close()
        raise


def spooled(stream: ByteStream, shown: str) -> IO[bytes]:
    """The rest of a stream in a temporary file, for formats that must jump about in it."""
    file = tempfile.TemporaryFile(prefix="chunkscope-")  # noqa: SIM115  (the reader closes it)
    try:
        while data := stream.read(CHUNK_BYTES):
            file.write(data)
        file.seek(0)
    except OSError as error:
        file.close()
        raise InputError(
            f"cannot unpack {shown} to a temporary file: {error.strerror or error}",
            hint="set TMPDIR to a folder with more room",
        ) from error
    except BaseException:
        file.close()
        raise
    return file
