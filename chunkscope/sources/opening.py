"""Opening: from a path or a stream to plain bytes, whatever they are wrapped in.

What a file is compressed with is decided by its first bytes, not by its name. Whatever comes out
is read once, front to back, in bounded memory. Rows before a place where a file is cut or damaged
are still delivered: the error comes after them.
"""

import codecs
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from chunkscope.errors import InputError, UsageError
from chunkscope.sources.base import CHUNK_BYTES, cannot_read

COMPRESSED_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
ARCHIVE_SUFFIXES = (
    ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst", ".zip",
)  # fmt: skip
_SHORT_TAR_SUFFIXES = {".tgz": "gzip", ".tbz2": "bzip2", ".txz": "xz", ".tzst": "zstd"}
# The most that one step of decompression may hand out, so that a bomb cannot fill the memory.
_STEP_BYTES = CHUNK_BYTES
_TEXT_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class ByteStream:
    """Bytes read once, front to back, with a look ahead.

    `grew` is asked at the end: did the file get longer since it was opened? What was added is not
    read, so a last line that is cut off is then nobody's mistake.
    """

    def __init__(self, raw: Readable, *, below: "ByteStream | None" = None) -> None:
        self._raw = raw
        self._below = below
        self._ahead = b""

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end; they stay unread."""
        while len(self._ahead) < size:
            try:
                more = self._raw.read(size - len(self._ahead))
            except InputError:
                if self._ahead:
                    break  # what came before the error is read first; it will come again
                raise
            if not more:
                break
            self._ahead += more
        return self._ahead[:size]

    def read(self, size: int = CHUNK_BYTES, /) -> bytes:
        """Up to `size` bytes; none at the end only."""
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        return self._raw.read(size)

    @property
    def is_plain(self) -> bool:
        """Are these the bytes of the file itself, with nothing undone on the way?"""
        return self._below is None

    @property
    def grew(self) -> bool:
        return bool(self._below.grew if self._below else getattr(self._raw, "grew", False))

    @property
    def bytes_read(self) -> int:
        below: int = self._below.bytes_read if self._below else getattr(self._raw, "bytes_read", 0)
        return below

    def close(self) -> None:
        closing = self._below.close if self._below else getattr(self._raw, "close", None)
        if closing is not None:
            closing()


class Snapshot:
    """A file as long as it was when it was opened, though others may be writing to it."""

    def __init__(self, file: IO[bytes], shown: str, *, keep_open: bool = False) -> None:
        self._file = file
        self._shown = shown
        self._keep_open = keep_open
        self._size = _size_of_regular_file(file)
        self.bytes_read = 0

    def read(self, size: int = -1, /) -> bytes:
        if self._size is not None:
            left = self._size - self.bytes_read
            size = left if size < 0 else min(size, left)
        try:
            data = self._file.read(size) if size else b""
        except OSError as error:
            raise cannot_read(self._shown, error) from error
        self.bytes_read += len(data)
        return data

    @property
    def grew(self) -> bool:
        now = _size_of_regular_file(self._file)
        return self._size is not None and now is not None and now > self._size

    def close(self) -> None:
        if not self._keep_open:
            self._file.close()


def _size_of_regular_file(file: IO[bytes]) -> int | None:
    """None for pipes, terminals and in-memory streams, which have no size to hold on to."""
    import stat

    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class Pieces:
    """A generator of bytes as a stream. An error waits until what came before it was read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self._error: InputError | None = None

    def read(self, size: int = -1, /) -> bytes:
        parts, have = [self._rest], len(self._rest)
        while self._error is None and (size < 0 or have < size):
            try:
                piece = next(self._pieces, b"")
            except InputError as error:
                self._error = error
                break
            if not piece:
                break
            parts.append(piece)
            have += len(piece)
        if self._error is not None and not have:
            raise self._error
        data = b"".join(parts) if len(parts) > 1 else parts[0]
        if size < 0 or have <= size:
            self._rest = b""
            return data
        self._rest = data[size:]
        return data[:size]


def open_bytes(
    place: Path | IO[bytes], *, shown: str, encoding: str = "utf-8", text: bool = True
) -> ByteStream:
    """Open a file or a stream, undo its compression and, for text, make it UTF-8 without a BOM.

    `shown` is its name as people know it; the suffix in it is checked against the content.
    """
    if isinstance(place, Path):
        try:
            raw = ByteStream(Snapshot(place.open("rb", buffering=0), shown))
        except OSError as error:
            raise cannot_read(shown, error) from error
    else:
        raw = ByteStream(Snapshot(place, shown, keep_open=True))
    try:
        plain = decompressed(raw, shown)
        return as_utf8(plain, shown, encoding) if text else plain
    except BaseException:
        raw.close()
        raise


def spooled(stream: ByteStream, shown: str) -> IO[bytes]:
    """The rest of a stream in a temporary file, for formats that must jump about in it."""
    import tempfile

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


# --- compression -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    """One compression: how its data starts, and how to undo it a step at a time."""

    magics: tuple[bytes, ...]
    machine: Callable[[], Any]
    step: Callable[[Any, bytes], tuple[bytes, bytes]]
    piece_bytes: int


def _gzip_machine() -> Any:
    try:
        from isal import isal_zlib
    except ImportError:
        import zlib

        return zlib.decompressobj(wbits=31)
    return isal_zlib.decompressobj(wbits=31)


def _bzip2_machine() -> Any:
    import bz2

    return bz2.BZ2Decompressor()


def _xz_machine() -> Any:
    import lzma

    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ)


def _zstd_machine() -> Any:
    import zstandard

    # 2 GiB windows are what `zstd --long=31` writes; memory follows the file's own window.
    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()


def _step_gzip(machine: Any, data: bytes) -> tuple[bytes, bytes]:
    return machine.decompress(data, _STEP_BYTES), machine.unconsumed_tail


def _step_block(machine: Any, data: bytes) -> tuple[bytes, bytes]:
    # bz2 and lzma keep what they have not used yet themselves.
    return machine.decompress(data, _STEP_BYTES), b""


def _step_zstd(machine: Any, data: bytes) -> tuple[bytes, bytes]:
    return machine.decompress(data), b""


_SKIPPABLE_ZSTD = tuple(bytes([low]) + b"\x2a\x4d\x18" for low in range(0x50, 0x60))
_KINDS = {
    "gzip": _Kind((b"\x1f\x8b\x08",), _gzip_machine, _step_gzip, 1 << 16),
    "bzip2": _Kind(
        tuple(
            b"BZh%d" % level + block
            for level in range(1, 10)
            for block in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
        ),
        _bzip2_machine,
        _step_block,
        1 << 16,
    ),
    "xz": _Kind((b"\xfd7zXZ\x00",), _xz_machine, _step_block, 1 << 16),
    # Small pieces: a zstd step cannot be told where to stop, and 4 bytes can mean 128 KiB.
    "zstd": _Kind((b"\x28\xb5\x2f\xfd", *_SKIPPABLE_ZSTD), _zstd_machine, _step_zstd, 1 << 13),
}


def compression_of(start: bytes) -> str | None:
    """What data that starts like this is compressed with: `b"\\x1f\\x8b\\x08..."` -> "gzip"."""
    return next((name for name, kind in _KINDS.items() if start.startswith(kind.magics)), None)


def compression_named(shown: str) -> str | None:
    """What a file name says: "x.jsonl.gz" -> "gzip"."""
    suffix = os.path.splitext(shown.lower())[1]  # noqa: PTH122  (also names inside archives)
    return COMPRESSED_SUFFIXES.get(suffix) or _SHORT_TAR_SUFFIXES.get(suffix)


def decompressed(raw: ByteStream, shown: str) -> ByteStream:
    start = raw.peek(10)
    found, named = compression_of(start), compression_named(shown)
    if found is None:
        if named is not None:
            begins = f"it starts with {start!r}" if start else "it is empty"
            raise InputError(
                f"{shown} is not {named} data ({begins})",
                hint="if it is not compressed, rename it without the suffix",
            )
        return raw
    return ByteStream(Pieces(_inflate(raw, found, shown)), below=raw)


def _inflate(raw: ByteStream, name: str, shown: str) -> Iterator[bytes]:
    """Undo the compression; several members or frames after each other are one stream."""
    kind = _KINDS[name]
    data = raw.read(kind.piece_bytes)
    while data:
        machine = kind.machine()
        while not machine.eof:
            if not data and getattr(machine, "needs_input", True):
                data = raw.read(kind.piece_bytes)
            try:
                out, rest = kind.step(machine, data)
            except Exception as error:  # each library has an error class of its own
                raise _damaged(shown, name, raw, error) from error
            if not out and not data and not machine.eof and getattr(machine, "needs_input", True):
                if raw.grew:
                    return
                raise InputError(
                    f"{shown} ends early: truncated {name} after {raw.bytes_read:,} bytes",
                    hint="was the download or the copy interrupted?",
                )
            data = rest
            if out:
                yield out
        data = _next_member(raw, kind, name, shown, machine.unused_data)


def _next_member(raw: ByteStream, kind: _Kind, name: str, shown: str, data: bytes) -> bytes:
    """What follows a finished member: nothing, padding with zeros, or another member."""
    data = data.lstrip(b"\0")
    while not data and (more := raw.read(kind.piece_bytes)):
        data = more.lstrip(b"\0")
    while 0 < len(data) < 10 and (more := raw.read(kind.piece_bytes)):
        data += more
    if data and not data.startswith(kind.magics):
        raise InputError(
            f"{shown} has something else after its {name} data (it starts with {data[:10]!r})",
            hint="the rows before it were read; the file may be damaged",
        )
    return data


def _damaged(shown: str, name: str, raw: ByteStream, error: Exception) -> InputError:
    if isinstance(error, ImportError):
        return InputError(
            f"{shown} is {name} data, which needs the package zstandard",
            hint="pip install zstandard",
        )
    return InputError(
        f"{shown} is damaged: bad {name} data before byte {raw.bytes_read:,} ({error})",
        hint="fetch or compress the file again",
    )


# --- text encodings --------------------------------------------------------------------------

_BAD_BYTES = "chunkscope.bad-bytes"


def _mark_bad_bytes(error: UnicodeError) -> tuple[str | bytes, int]:
    """Put a byte that no UTF-8 has where text cannot be decoded, so that its row is found bad."""
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    if isinstance(error, UnicodeEncodeError):
        return b"\xff", error.end
    raise error


codecs.register_error(_BAD_BYTES, _mark_bad_bytes)


def as_utf8(raw: ByteStream, shown: str, encoding: str) -> ByteStream:
    codec = _codec(encoding)
    if codec.name not in ("utf-8", "utf-8-sig"):
        return _recoded(raw, codec, shown)
    start = raw.peek(4)
    if start.startswith(codecs.BOM_UTF8):
        raw.read(len(codecs.BOM_UTF8))
        return raw
    for bom, name in _TEXT_BOMS:
        if start.startswith(bom):
            return _recoded(raw, codecs.lookup(name), shown)
    return raw


def _codec(encoding: str) -> codecs.CodecInfo:
    try:
        codec = codecs.lookup(encoding)
    except (LookupError, ValueError):
        codec = None
    if codec is None or not getattr(codec, "_is_text_encoding", True):
        raise UsageError(
            f"unknown text encoding: {encoding}", hint="try utf-8, latin-1, cp1252 or utf-16"
        )
    return codec


def _recoded(raw: ByteStream, codec: codecs.CodecInfo, shown: str) -> ByteStream:
    return ByteStream(Pieces(_recode(raw, codec, shown)), below=raw)


def _recode(raw: ByteStream, codec: codecs.CodecInfo, shown: str) -> Iterator[bytes]:
    if codec.incrementaldecoder is None:
        raise UsageError(f"the encoding {codec.name} cannot be read", hint="try utf-8 or latin-1")
    decoder = codec.incrementaldecoder(errors=_BAD_BYTES)
    first = True
    while True:
        data = raw.read(CHUNK_BYTES)
        try:
            text = decoder.decode(data, final=not data)
        except (UnicodeError, ValueError) as error:
            raise InputError(
                f"{shown} is not {codec.name} text ({error})", hint="try another --encoding"
            ) from error
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        if text:
            yield text.encode("utf-8", errors=_BAD_BYTES)
        if not data:
            return


# --- what is it? -----------------------------------------------------------------------------


def looks_binary(start: bytes) -> bool:
    """Is this the start of something that is no text? A stray NUL in UTF-8 is still text."""
    if b"\0" not in start or start.startswith(tuple(bom for bom, _ in _TEXT_BOMS)):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return True
    return start.count(b"\0") * 20 > len(start)
