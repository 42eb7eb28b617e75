"""Which format a name or the first bytes speak of."""

import sys
from posixpath import basename, splitext
from typing import IO

from chunkscope.errors import InputError
from chunkscope.sources.archives import is_tar, is_zip
from chunkscope.sources.compression import ARCHIVE_SUFFIXES, COMPRESSED_SUFFIXES
from chunkscope.sources.encodings import looks_binary

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonlines": "jsonl",
    ".json": "json",
    ".traj": "json",  # SWE-agent's
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".txt": "text",
    ".md": "text",
    ".eval": "inspect",
}
# What --input-format takes; "saved" and "hub" show by themselves.
FORMATS = frozenset(SUFFIXES.values())


def archive_suffix(name: str) -> str | None:
    """ "packs.tar.gz" -> ".tar.gz"; None for a file that is no archive."""
    fits = [suffix for suffix in ARCHIVE_SUFFIXES if name.lower().endswith(suffix)]
    return max(fits, key=len, default=None)


def known_suffix(name: str) -> str:
    """The part of a name that says how to read it: "a/x.v2.jsonl.gz" -> ".jsonl.gz"."""
    stem, suffix = splitext(basename(name))  # pathlib takes ten times as long: files are many
    compression = suffix if suffix.lower() in COMPRESSED_SUFFIXES else ""
    inner = splitext(stem)[1] if compression else suffix
    return (inner if inner.lower() in SUFFIXES else "") + compression


def format_of_name(name: str) -> str | None:
    """ "x.jsonl.gz" -> "jsonl"; None when the suffix says nothing."""
    suffix = known_suffix(name.lower())
    return SUFFIXES.get("." + suffix.split(".")[1]) if suffix else None


def kind_of_bytes(start: bytes) -> str | None:
    """What data that starts like this is: a format, "zip", "tar", or None for who knows."""
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if is_zip(start):
        return "zip"
    if is_tar(start):
        return "tar"
    if looks_binary(start):
        return None
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith((b"{", b"[")):
        return "json"  # its reader finds out whether it is one document or a value per line
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut at the end of the sample; anywhere else it is not UTF-8.
        return "text" if error.start >= len(start) - 3 else None
    return "text"


def stdin_bytes() -> IO[bytes]:
    """Standard input as bytes; tests and notebooks may have put something else there."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise InputError("there is no standard input to read", hint="name a file instead of `-`")
    binary: IO[bytes] = stream
    return binary


def peek_stdin(size: int = 4096) -> bytes:
    """What standard input starts with, left there to be read."""
    stream = stdin_bytes()
    if hasattr(stream, "peek"):
        ahead: bytes = stream.peek(size)
        return ahead[:size]
    if stream.seekable():
        at = stream.tell()
        start = stream.read(size)
        stream.seek(at)
        return start
    return b""
