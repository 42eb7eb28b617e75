"""Files as plain bytes: their compression undone, their text UTF-8.

Compression is found by the first bytes, not by the name, and undone in bounded memory. Rows before
the place where a file is cut or damaged are still delivered: the error comes after them.
"""

import codecs
import io
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

from chunkscope.errors import ChunkscopeError, InputError, UsageError
from chunkscope.sources.base import CHUNK_BYTES, MOST_ROW_BYTES, cannot_read, first_line, too_long

COMPRESSED_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
_MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b\x08)"
    rb"|(?P<bzip2>BZh[1-9](1AY&SY|\x17rE8P\x90))"  # a block, or the end at once
    rb"|(?P<xz>\xfd7zXZ\x00)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"  # a frame, or one that is skipped
)
_MOST_RATIO = 1000
_RATIO_FROM_BYTES = 16 << 20
_GZIP_BYTES = 1 << 17  # compressed, at a time
_WIDE_BOMS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Stream(io.BufferedIOBase):
    """Bytes read once from front to back, in blocks and with a look ahead.

    `read_block` gives the next block, b"" at the end; what it raises becomes one of our errors by
    `explain`, and waits until all bytes that came before it have been read. `below` is closed with
    the stream; if it is a stream, too, that one knows how much of the file on disk was read.
    """

    def __init__(
        self,
        read_block: Callable[[int], bytes],
        below: "IO[bytes] | Stream | None",
        explain: Callable[[Exception], ChunkscopeError],
    ) -> None:
        self._read_block = read_block
        self._below = below
        self._explain = explain
        self._ahead = b""
        self._at = 0  # how much of it was read
        self._taken = 0
        self._is_end = False  # a terminal would have to say it twice
        self._error: ChunkscopeError | None = None

    @property
    def bytes_read(self) -> int:
        """How much of the file (as it is on disk) was read, for progress."""
        return self._below.bytes_read if isinstance(self._below, Stream) else self._taken

    @property
    def is_raw(self) -> bool:
        """Whether the bytes are those of the file: nothing had to be made of them first."""
        return not isinstance(self._below, Stream)

    def readable(self) -> bool:
        return True

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end; they stay unread."""
        have = len(self._ahead) - self._at
        if have < size and not self._is_end:
            parts = [self._ahead[self._at :]] if have else []
            while have < size and not self._is_end:
                try:
                    block = self._read_block(CHUNK_BYTES)
                except Exception as error:  # each library has error classes of its own
                    self._error = (
                        error if isinstance(error, ChunkscopeError) else self._explain(error)
                    )
                    block = b""
                self._is_end = not block
                parts.append(block)
                have += len(block)
                self._taken += len(block)
            self._ahead, self._at = b"".join(parts), 0
        if self._error is not None and not have:
            raise self._error
        return self._ahead[self._at : self._at + size]

    def read(self, size: int | None = CHUNK_BYTES, /) -> bytes:
        """The next `size` bytes (a megabyte unless told), or fewer at the end."""
        data = self.peek(CHUNK_BYTES if size is None or size < 0 else size)
        self._at += len(data)
        return data

    def read_whole(self, shown: str, what: str = "what it holds") -> bytes:
        """All that is left, at most as much as one row may be; raises the error it ends in."""
        data = self.read(MOST_ROW_BYTES + 1)
        if len(data) > MOST_ROW_BYTES:
            raise too_long(shown, what)
        self.peek(1)
        return data

    def read1(self, size: int = CHUNK_BYTES, /) -> bytes:
        return self.read(max(size, 1 << 16))  # TextIOWrapper asks for 8 KiB at a time

    def close(self) -> None:
        super().close()
        if self._below is not None:
            self._below.close()


def file_stream(file: IO[bytes], shown: str, *, keep_open: bool = False) -> Stream:
    return Stream(file.read, None if keep_open else file, partial(cannot_read, shown))


def open_path(path: Path, shown: str, *, start: int = 0) -> Stream:
    """A file's bytes as they are, from one of them on."""
    try:
        file = io.FileIO(str(path))
        if start:
            file.seek(start)
        return file_stream(cast("IO[bytes]", file), shown)
    except OSError as error:
        raise cannot_read(shown, error) from error


def open_stdin() -> Stream:
    """Standard input as bytes; tests and notebooks may have put something else there."""
    file: IO[bytes] | None = getattr(sys.stdin, "buffer", None)
    if file is None:
        raise InputError("there is no standard input to read", hint="name a file instead of `-`")
    return file_stream(file, "standard input", keep_open=True)


def spooled(stream: Stream, shown: str) -> IO[bytes]:
    """The rest of a stream in a temporary file, for formats that must jump about in it."""
    with ExitStack() as on_failure:
        file = on_failure.enter_context(tempfile.TemporaryFile(prefix="chunkscope-"))
        try:
            while block := stream.read():
                file.write(block)
                refuse_bomb(file.tell(), stream.bytes_read, shown)
            file.seek(0)
        except OSError as error:
            raise InputError(
                f"cannot unpack {shown} to a temporary file: {error.strerror or error}",
                hint="set TMPDIR to a folder with more room",
            ) from error
        on_failure.pop_all()
    return file


def refuse_bomb(unpacked: int, packed: int, shown: str) -> None:
    """Text is packed to a hundredth, at most: what unpacks to a thousand times its size is none."""
    if unpacked > max(_RATIO_FROM_BYTES, _MOST_RATIO * packed):
        raise InputError(
            f"cannot read {shown}: it unpacks to more than {_MOST_RATIO:,} times its size",
            hint="no evaluation writes such a file: where does it come from?",
        )


# --- compression -----------------------------------------------------------------------------


def compression_of(start: bytes) -> str | None:
    """What data that starts like this is compressed with: `b"\\x1f\\x8b\\x08..."` -> "gzip"."""
    match = _MAGIC.match(start)
    return match.lastgroup if match else None


def decompressed(raw: Stream, shown: str) -> Stream:
    """What a stream holds, a megabyte at most at a time: a bomb cannot fill the memory."""
    start = raw.peek(10)
    if (name := compression_of(start)) is not None:
        return Stream(_reader(raw, name), raw, partial(_damaged, raw, name, shown))
    if named := COMPRESSED_SUFFIXES.get(shown[shown.rfind(".") :].lower()):
        raw.close()
        begins = f"it starts with {start!r}" if start else "it is empty"
        raise InputError(
            f"{shown} is not {named} data ({begins})",
            hint="if it is not compressed, rename it without the suffix",
        )
    return raw


def _damaged(raw: Stream, name: str, shown: str, error: Exception) -> InputError:
    is_cut = isinstance(error, EOFError)
    what = f"truncated {name}" if is_cut else f"bad {name} data ({first_line(error)})"
    return InputError(
        f"{shown} is cut off or damaged: {what} after {raw.bytes_read:,} bytes",
        hint="was the download or the copy interrupted? Fetch or compress the file again",
    )


def _reader(raw: Any, name: str) -> Callable[[int], bytes]:
    file: Any
    if name == "gzip":
        blocks = _inflated(raw)
        return lambda _: next(blocks, b"")
    if name == "zstd":
        zstd: Any = import_module(
            "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        )
        # 2 GiB windows are what `zstd --long=31` writes; memory follows the file's own window.
        file = zstd.ZstdFile(raw, options={zstd.DecompressionParameter.window_log_max: 31})
    elif name == "xz":
        file = import_module("lzma").LZMAFile(raw)
    else:
        file = import_module("bz2").BZ2File(raw)
    return file.read1  # type: ignore[no-any-return]


def _inflated(raw: Stream) -> Iterator[bytes]:
    """All members of a gzip file. The file objects of the libraries would give nothing of the
    last megabyte before a cut.
    """
    try:
        zlib: Any = import_module("isal.isal_zlib")
    except ImportError:
        zlib = import_module("zlib")
    data = raw.read(_GZIP_BYTES)
    while data.strip(b"\0"):  # zeros may fill up the last block of a tape
        member, block = zlib.decompressobj(31), b""
        while not member.eof:
            if not data and len(block) < CHUNK_BYTES:
                raise EOFError
            if block := member.decompress(data, CHUNK_BYTES):
                yield block
            rest = member.unused_data if member.eof else member.unconsumed_tail
            data = rest or raw.read(_GZIP_BYTES)


# --- encodings -------------------------------------------------------------------------------


def as_utf8(raw: Stream, shown: str, encoding: str = "utf-8") -> Stream:
    """The text as UTF-8 without a byte order mark, which outranks the default encoding.

    A byte that cannot be decoded stays as it is, which is no UTF-8: its row is found bad.
    """
    if encoding.lower() in ("utf-8", "utf8", "utf-8-sig"):
        start = raw.peek(4)
        if start.startswith(codecs.BOM_UTF8):
            raw.read(len(codecs.BOM_UTF8))
        wide = next((name for bom, name in _WIDE_BOMS.items() if start.startswith(bom)), None)
        if wide is None:
            return raw
        encoding = wide
    try:
        text = io.TextIOWrapper(cast("IO[bytes]", raw), encoding, "surrogateescape", newline="")
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"unknown text encoding: {encoding}", hint="try utf-8, latin-1, cp1252 or utf-16"
        ) from error
    return Stream(
        lambda size: text.read(size).encode("utf-8", "surrogateescape"),
        raw,
        lambda error: InputError(
            f"{shown} is not text in this encoding ({error})",
            hint="set another encoding in chunkscope.toml",
        ),
    )


def looks_binary(start: bytes) -> bool:
    """Is this the start of something that is no text? A stray NUL in UTF-8 is still text."""
    if b"\0" not in start or start.startswith(tuple(_WIDE_BOMS)):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return True
    return start.count(b"\0") * 20 > len(start)
