"""Compression: found by the first bytes, not by the name, and undone in bounded memory."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from chunkscope.errors import InputError
from chunkscope.sources.base import CHUNK_BYTES
from chunkscope.sources.byte_stream import ByteStream, DerivedStream

COMPRESSED_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
ARCHIVE_SUFFIXES = (
    ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst", ".zip",
)  # fmt: skip
_SHORT_TAR_SUFFIXES = {".tgz": "gzip", ".tbz2": "bzip2", ".txz": "xz", ".tzst": "zstd"}
# The most that one step of decompression may hand out, so that a bomb cannot fill the memory.
_STEP_BYTES = CHUNK_BYTES


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


def _deflate_machine() -> Any:
    import zlib

    return zlib.decompressobj(wbits=-15)


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
    # What most zip archives hold: nothing at its start says so.
    "deflate": _Kind((), _deflate_machine, _step_gzip, 1 << 16),
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
    return inflated(raw, found, shown)


def inflated(raw: ByteStream, name: str, shown: str) -> ByteStream:
    """What data compressed like that holds: `name` is one of `_KINDS`."""
    return DerivedStream(_inflate(raw, name, shown), raw)


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
    return InputError(
        f"{shown} is damaged: bad {name} data before byte {raw.bytes_read:,} ({error})",
        hint="fetch or compress the file again",
    )
