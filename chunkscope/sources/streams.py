"""The door for all bytes: of a file, standard input, another machine or a member of an archive,
their compression undone, their text UTF-8. What is too large or unpacks to too much stays outside.

Compression is found by the first bytes, not by the name, and undone in bounded memory. Rows before
the place where a file is cut or damaged are still delivered: the error comes after them.
"""

import atexit
import codecs
import io
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import IO, Any, cast

from chunkscope.errors import ChunkscopeError, InputError, UsageError
from chunkscope.sources.base import (
    CHUNK_BYTES,
    MOST_ROW_BYTES,
    Source,
    cannot_read,
    first_line,
    too_long,
)
from chunkscope.sources.remote import explained, is_web, open_remote

COMPRESSED_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
COMPRESSED = re.compile(
    rb"(?P<gzip>\x1f\x8b\x08)"
    rb"|(?P<bzip2>BZh[1-9](1AY&SY|\x17rE8P\x90))"  # a block, or the end at once
    rb"|(?P<xz>\xfd7zXZ\x00)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"  # a frame, or one that is skipped
)
_MOST_RATIO = 1000
_RATIO_FROM_BYTES = 16 << 20
_PACKED_BYTES = 1 << 17  # compressed, at a time
_WIDE_BOMS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Stream(io.BufferedIOBase):
    """Bytes read once from front to back, in blocks and with a look ahead.

    An error among the blocks becomes one of ours by `explain`, and waits until all bytes that came
    before it have been read. `below` is closed with the stream; if it is a stream, too, that one
    knows how much of the file on disk was read.
    """

    def __init__(
        self,
        blocks: Iterator[bytes],
        below: "IO[bytes] | Stream | None",
        explain: Callable[[Exception], ChunkscopeError],
    ) -> None:
        self._blocks = blocks
        self._below = below
        # Whether the bytes are those of the file: nothing had to be made of them first.
        self.is_raw = not isinstance(below, Stream)
        self._explain = explain
        self._ahead = b""
        self._at = 0  # how much of it was read
        self._taken = 0
        self._is_end = False
        self._error: ChunkscopeError | None = None

    @property
    def bytes_read(self) -> int:
        """How much of the file (as it is on disk) was read, for progress."""
        return self._taken if self.is_raw else self._below.bytes_read  # type: ignore[union-attr]

    def readable(self) -> bool:
        return True

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end; they stay unread."""
        have = len(self._ahead) - self._at
        if have < size and not self._is_end:
            parts = [self._ahead[self._at :]] if have else []
            while have < size and not self._is_end:
                try:
                    block = next(self._blocks, b"")
                except ChunkscopeError as error:
                    self._error, block = error, b""
                except Exception as error:  # each library has error classes of its own
                    self._error, block = self._explain(error), b""
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


def open_raw(source: Source, *, start: int = 0) -> Stream:
    """The source's bytes as they are, from one of them on."""
    shown = source.path
    if source.member is not None:
        return open_archive(source).open(source.member, shown)
    if source.url is not None:
        remote = open_remote(source.url, ahead=True, size=source.bytes, start=start)
        most = None if source.bytes is None else source.bytes - start
        return Stream(_all_blocks(remote, most, shown), remote, partial(explained, shown))
    if source.file is None:
        # Tests and notebooks may have put something else there.
        if (stdin := getattr(sys.stdin, "buffer", None)) is None:
            hint = "name a file instead of `-`"
            raise InputError("there is no standard input to read", hint=hint)
        return Stream(blocks_of(stdin), None, partial(cannot_read, "standard input"))
    try:
        file = cast("IO[bytes]", io.FileIO(str(source.file)))
        if start:
            file.seek(start)
    except OSError as error:
        raise cannot_read(shown, error) from error
    return Stream(blocks_of(file), file, partial(cannot_read, shown))


def blocks_of(file: IO[bytes]) -> Iterator[bytes]:
    return iter(partial(file.read, CHUNK_BYTES), b"")


def _all_blocks(file: IO[bytes], expected: int | None, shown: str) -> Iterator[bytes]:
    """That a file ends early is an error, which comes at the end."""
    count = 0
    for block in blocks_of(file):
        count += len(block)
        yield block
    if expected is not None and count < expected:
        raise InputError(
            f"{shown} ends early: {count:,} of {expected:,} bytes came",
            hint="was it replaced meanwhile? Run it again",
        )


def open_whole(source: Source) -> IO[bytes]:
    """The bytes of a file, or of a member's archive, to be read in any order; what is on the web
    is copied first.
    """
    try:
        if source.file is not None:
            return source.file.open("rb")
    except OSError as error:
        raise cannot_read(source.path, error) from error
    if source.url is None:
        raise InputError(f"{source.path} is no file", hint="save it to one")
    if not is_web(source.url):
        return open_remote(source.url)
    with open_raw(replace(source, member=None)) as stream:
        return spooled(stream, source.path)


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


def decompressed(raw: Stream, shown: str) -> Stream:
    """What a stream holds, a megabyte at most at a time: a bomb cannot fill the memory."""
    start = raw.peek(10)
    if (match := COMPRESSED.match(start)) and (name := match.lastgroup):
        return Stream(_unpacked(raw, name), raw, partial(_damaged, raw, name, shown))
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


def _unpacked(raw: Stream, name: str) -> Iterator[bytes]:
    """All members of a compressed file, one after the other. The file objects of the libraries
    would give nothing of the last megabyte before a cut.
    """
    data = raw.read(_PACKED_BYTES)
    while data.strip(b"\0"):  # zeros may fill up the last block of a tape
        member, block, wants_more = _decompressor(name), b"", True
        while not member.eof:
            if wants_more and not data and len(block) < CHUNK_BYTES:
                raise EOFError
            if block := member.decompress(data, CHUNK_BYTES):
                yield block
            wants_more = getattr(member, "needs_input", True)
            data = member.unused_data if member.eof else getattr(member, "unconsumed_tail", b"")
            if not data and (member.eof or wants_more):
                data = raw.read(_PACKED_BYTES)


def _decompressor(name: str) -> Any:
    if name == "bzip2":
        return import_module("bz2").BZ2Decompressor()
    if name == "xz":
        return import_module("lzma").LZMADecompressor()
    if name == "zstd":
        zstd: Any = import_module(
            "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        )
        # 2 GiB windows are what `zstd --long=31` writes; memory follows the file's own window.
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 31})
    try:
        return import_module("isal.isal_zlib").decompressobj(31)
    except ImportError:
        return import_module("zlib").decompressobj(31)


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
        (
            part.encode("utf-8", "surrogateescape")
            for part in iter(partial(text.read, CHUNK_BYTES), "")
        ),
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


# --- archives --------------------------------------------------------------------------------

_HINT = "fetch or pack the archive again"
_MOST_ARCHIVES = 16
_LINK, _KIND = 0o120000, 0o170000  # of a file, in the upper half of its attributes


_archives: dict[Hashable, "Zip | Tar"] = {}  # open ones, for all threads that read their members


def open_archive(source: Source) -> "Zip | Tar":
    """The archive that a source is, or is a member of; open until `close_archives`."""
    try:
        key = source.file, source.url, source.file and source.file.stat().st_mtime_ns
    except OSError as error:
        raise cannot_read(source.path, error) from error
    if archive := _archives.get(key):
        return archive
    file, shown = open_whole(source), source.path.removesuffix(f"/{source.member}")
    try:
        archive = (Zip if file.read(4)[:2] == b"PK" else Tar)(file, shown)
    except BaseException:
        file.close()
        raise
    while len(_archives) >= _MOST_ARCHIVES:  # closed when nobody reads from it any more
        _archives.pop(next(iter(_archives)))
    _archives[key] = archive
    return archive


@atexit.register
def close_archives() -> None:
    """To be called when all members are read."""
    while _archives:
        _archives.popitem()[1].close()


class Zip:
    """A zip that was opened; `infos` are its files."""

    def __init__(self, file: IO[bytes], shown: str) -> None:
        knows_zstd = sys.version_info >= (3, 14)
        zipfile: Any = import_module("zipfile" if knows_zstd else "backports.zstd.zipfile")
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise InputError(
                f"{shown} is not a readable zip archive: cut off or damaged ({first_line(error)})",
                hint=_HINT,
            ) from error
        self.infos: list[Any] = [
            info
            for info in self._zip.infolist()
            if not info.filename.endswith("/") and (info.external_attr >> 16) & _KIND != _LINK
        ]

    def close(self) -> None:
        self._file.close()

    __del__ = close

    def members(self) -> list[tuple[str, int]]:
        return [(info.filename, info.file_size) for info in self.infos]

    def open(self, member: Any, shown: str) -> Stream:
        """The bytes of a member, given its name or what `infos` has of it."""
        try:
            info = self._zip.getinfo(member) if isinstance(member, str) else member
            file = self._zip.open(info)
        except Exception as error:  # encrypted, gone, a method nobody knows
            raise _damaged_member(shown, error) from error
        return Stream(self._blocks(file, info, shown), file, partial(_damaged_member, shown))

    def _blocks(self, file: IO[bytes], info: Any, shown: str) -> Iterator[bytes]:
        for block in blocks_of(file):  # which hold on to the archive
            refuse_bomb(file.tell(), info.compress_size, shown)
            yield block


def _damaged_member(shown: str, error: Exception) -> InputError:
    words = first_line(error).strip("'\"")
    return InputError(f"cannot read {shown}: {words}", hint=_HINT)


class Tar:
    """A tar that was opened, which threads read one after the other. A compressed one is unpacked
    to a temporary file, so that its members can be read in any order.
    """

    def __init__(self, file: IO[bytes], shown: str) -> None:
        import tarfile

        self._lock, self._files = threading.Lock(), [file]
        file.seek(0)
        plain = decompressed(Stream(blocks_of(file), None, partial(cannot_read, shown)), shown)
        self._files += [] if plain.is_raw else [spooled(plain, shown)]
        try:
            self._files[-1].seek(0)
            self._tar = tarfile.open(fileobj=self._files[-1], mode="r:")  # noqa: SIM115
            self._infos = [info for info in self._tar.getmembers() if info.isreg()]
            # Python takes a broken header for the end of the archive.
            self._files[-1].seek(self._tar.offset)
            if self._files[-1].read(tarfile.BLOCKSIZE).strip(b"\0"):
                raise tarfile.ReadError("bad header")
        except (tarfile.TarError, EOFError, ValueError, OverflowError, OSError) as error:
            what = f"{shown} is not a readable tar archive ({error})"
            raise InputError(what, hint=_HINT) from error

    def close(self) -> None:
        for file in self._files:
            file.close()

    __del__ = close

    def members(self) -> list[tuple[str, int]]:
        return [(info.name, info.size) for info in self._infos]

    def open(self, member: str, shown: str) -> Stream:
        file: Any = self._tar.extractfile(member)
        return Stream(self._blocks(file), file, partial(_damaged_member, shown))

    def _blocks(self, file: IO[bytes]) -> Iterator[bytes]:
        while True:
            with self._lock:
                block = file.read(CHUNK_BYTES)
            if not block:
                return
            yield block
