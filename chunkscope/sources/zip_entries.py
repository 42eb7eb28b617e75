"""The entries of a zip file, found and unpacked one by one.

Python's `zipfile` knows nothing of zstd (method 93) before 3.14, and nothing of a file that was
cut: the list of its entries is at its end. Here an entry's own header is enough.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from chunkscope.errors import InputError
from chunkscope.sources.base import CHUNK_BYTES, MOST_ROW_BYTES, first_line, printable, too_long
from chunkscope.sources.byte_stream import FileStream
from chunkscope.sources.compression import inflated

_METHODS = {0: None, 8: "deflate", 93: "zstd"}
_HEADER = struct.Struct("<4s5HL2L2H")
_SIGNATURE = b"PK\x03\x04"
_IN_EXTRA = 0xFFFFFFFF  # a size that stands among the extra fields, which have room for it
_ENCRYPTED, _SIZES_FOLLOW, _UTF8 = 1, 8, 0x800
# Text is packed to a hundredth, at most: what unpacks to a thousand times its size is no log.
_MOST_RATIO = 1000
_RATIO_FROM_BYTES = 16 << 20
_HINT = "fetch or copy the file again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipEntry:
    """One file in a zip: where its header is, and what its packed data should become."""

    name: str
    offset: int
    packed: int
    size: int
    crc: int
    method: int
    flags: int


def entries(file: IO[bytes], shown: str) -> tuple[list[ZipEntry], InputError | None]:
    """The entries of a zip, the last of each name, in the order in which they lie there.

    Of a zip that was cut they are those before the cut; the error says that it was.
    """
    import zipfile

    try:
        with zipfile.ZipFile(file) as listed:
            found = [
                ZipEntry(
                    name=printable(info.filename),
                    offset=info.header_offset,
                    packed=info.compress_size,
                    size=info.file_size,
                    crc=info.CRC,
                    method=info.compress_type,
                    flags=info.flag_bits,
                )
                for info in listed.infolist()
            ]
        cut = None
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        found = list(_before_the_cut(file))
        cut = InputError(
            f"{shown} is cut off or damaged ({first_line(error)}): what comes after "
            + (f"{found[-1].name} is lost" if found else "its start is lost"),
            hint=_HINT,
        )
    return sorted({entry.name: entry for entry in found}.values(), key=lambda e: e.offset), cut


def _before_the_cut(file: IO[bytes]) -> Iterator[ZipEntry]:
    """Entry after entry, by their own headers, up to the first that is not whole."""
    end = file.seek(0, io.SEEK_END)
    offset = 0
    while header := _header(file, offset):
        entry, data_at = header
        if entry.flags & _SIZES_FOLLOW or data_at + entry.packed > end:
            return
        yield entry
        offset = data_at + entry.packed


def _header(file: IO[bytes], offset: int) -> tuple[ZipEntry, int] | None:
    """The entry whose header is here, and where its data starts; None where no header is."""
    file.seek(offset)
    fixed = file.read(_HEADER.size)
    if len(fixed) < _HEADER.size or not fixed.startswith(_SIGNATURE):
        return None
    _, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _HEADER.unpack(fixed)
    name, extra = file.read(name_bytes), file.read(extra_bytes)
    if _IN_EXTRA in (packed, size):
        size, packed = _large_sizes(extra) or (size, packed)
    entry = ZipEntry(
        name=printable(name.decode("utf-8" if flags & _UTF8 else "cp437", errors="replace")),
        offset=offset,
        packed=packed,
        size=size,
        crc=crc,
        method=method,
        flags=flags,
    )
    return entry, offset + _HEADER.size + name_bytes + extra_bytes


def _large_sizes(extra: bytes) -> tuple[int, int] | None:
    """Size and packed size from the zip64 field of a header."""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == 1 and length >= 16:
            size, packed = struct.unpack_from("<2Q", extra, 4)
            return size, packed
        extra = extra[4 + length :]
    return None


def unpacked(file: IO[bytes], entry: ZipEntry, shown: str) -> bytes:
    """What an entry holds. Raises InputError when that is damaged, or too much."""
    if entry.flags & _ENCRYPTED or entry.method not in _METHODS:
        what = "is encrypted" if entry.flags & _ENCRYPTED else f"is packed by method {entry.method}"
        raise InputError(f"{shown} {what}, which cannot be read", hint=_HINT)
    header = _header(file, entry.offset)
    if header is None:
        raise InputError(f"{shown} is damaged: its header is not where it should be", hint=_HINT)
    file.seek(header[1])
    stream = FileStream(io.BytesIO(file.read(entry.packed)), shown)
    method = _METHODS[entry.method]
    plain = inflated(stream, method, shown) if method else stream
    parts: list[bytes] = []
    size = crc = 0
    while part := plain.read(CHUNK_BYTES):
        size, crc = size + len(part), zlib.crc32(part, crc)
        _refuse_bomb(entry, size, shown)
        parts.append(part)
    if crc != entry.crc:
        raise InputError(f"{shown} is damaged: it does not have the checksum it should", hint=_HINT)
    return b"".join(parts)


def _refuse_bomb(entry: ZipEntry, size: int, shown: str) -> None:
    if size > MOST_ROW_BYTES:
        raise too_long(shown, "what it holds")
    if size > max(_RATIO_FROM_BYTES, _MOST_RATIO * entry.packed):
        raise InputError(
            f"{shown} unpacks to more than {_MOST_RATIO:,} times its size: a zip bomb?",
            hint="no evaluation writes such a file: where does it come from?",
        )
