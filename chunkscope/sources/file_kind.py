"""What a file is that was met on the way: which format it has, or why it is left out."""

import io
import re
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from chunkscope.errors import InputError
from chunkscope.prompts.harness import lm_eval, small
from chunkscope.sources.archives import is_zip
from chunkscope.sources.base import cannot_read
from chunkscope.sources.byte_stream import FileStream
from chunkscope.sources.compression import compression_of, decompressed
from chunkscope.sources.encodings import looks_binary
from chunkscope.sources.formats import format_of_name, kind_of_bytes
from chunkscope.sources.opening import open_bytes
from chunkscope.sources.tables import looks_like_table

_ABOUT_THE_DATA = ("readme", "license", "licence", "changelog")
_OWN_ARTEFACT = re.compile(rb'\s*\{\s*"schema":\s*"chunkscope/')
START_BYTES = 4096


class LeftOut(Exception):  # noqa: N818  (a way out, not a mistake)
    """This file is left out; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file or folder: where it is, how people call it, and where below the root it lies.

    One that was named itself is `explicit`: it must be readable. Others are left out if they are
    not.
    """

    file: Path
    shown: str
    below: str
    group: str
    explicit: bool = False

    def size(self) -> int | None:
        """In bytes; None for a pipe or a device, which has none."""
        try:
            status = self.file.stat()
        except OSError as error:
            raise self._cannot_use(error) from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def start(self) -> bytes:
        try:
            with self.file.open("rb") as file:
                return file.read(START_BYTES)
        except OSError as error:
            raise self._cannot_use(error) from error

    def _cannot_use(self, error: OSError) -> Exception:
        return cannot_read(self.shown, error) if self.explicit else LeftOut(why(error))


def format_of(found: FoundFile, forced: str | None) -> str:
    """By force, by suffix or, for a file that was named, by content: a format, "zip" or "tar"."""
    told = forced or format_of_name(found.file.name)
    if not found.explicit:
        _leave_out_what_is_no_data(found, told)
    elif found.size() is None:
        return told or "jsonl"  # a pipe, such as <(zcat x.gz): looking at it would use it up
    else:
        found.start()  # says so if it cannot be read
    return told or _format_by_content(found)


def _leave_out_what_is_no_data(found: FoundFile, told: str | None) -> None:
    if is_about_the_data(found.file.name):
        raise LeftOut("about the data, not data")
    if found.size() is None:
        raise LeftOut("a pipe or a device")
    start = found.start()
    is_packed = compression_of(start) is not None
    named = format_of_name(found.file.name)
    if named == "inspect" and not is_zip(start):
        raise LeftOut("no Inspect log")
    if looks_binary(start) and not is_packed and named not in ("parquet", "arrow", "inspect"):
        raise LeftOut("binary")
    if told is None:
        raise LeftOut("binary" if is_packed or looks_binary(start) else "unknown suffix")
    if _OWN_ARTEFACT.match(start):
        raise LeftOut("written by chunkscope itself")
    if reason := small.skip_reason(found.file, start) or lm_eval.skip_reason(found.file, start):
        raise LeftOut(reason)


def is_about_the_data(name: str) -> bool:
    """ "README.md", "LICENSE"; not "readme.jsonl"."""
    name = PurePosixPath(name).name.lower()
    return name.startswith(_ABOUT_THE_DATA) and format_of_name(name) in (None, "text")


def _format_by_content(found: FoundFile) -> str:
    stream = open_bytes(found.file, shown=found.shown)
    try:
        kind = _kind_of_start(stream.peek(START_BYTES))
    finally:
        stream.close()
    if kind is None:
        raise InputError(f"cannot tell what {found.shown} is", hint="say so: --input-format jsonl")
    return kind


def kind_of_packed(start: bytes) -> str | None:
    """What data that starts like this is, once its compression is undone; None for who knows."""
    if compression_of(start) is not None:
        stream = FileStream(io.BytesIO(start), "standard input")
        try:
            start = decompressed(stream, "standard input").read(START_BYTES)
        except InputError:
            start = b""
    return _kind_of_start(start)


def _kind_of_start(start: bytes) -> str | None:
    """Nothing at all counts as JSON Lines without a line."""
    kind = kind_of_bytes(start) if start else "jsonl"
    if kind != "text":
        return kind
    sample = start.decode("utf-8-sig", errors="replace")
    return "csv" if looks_like_table(sample, cut=len(start) >= START_BYTES) else kind


def why(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, FileNotFoundError):
        return "a link that leads nowhere"
    return (error.strerror or str(error)).lower()
