"""The formats there are: which a name or the first bytes speak of, and how its rows are read.

Whoever reads a format registers it when it is imported, also the forms that only a harness writes
(`chunkscope.prompts.harness`); discovery and the reader ask all that are registered.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from posixpath import splitext
from typing import Protocol

from chunkscope.sources.base import Chunk, Source
from chunkscope.sources.streams import COMPRESSED_SUFFIXES, looks_binary

START_BYTES = 4096
_ARCHIVE = re.compile(r"\.(zip|tar|t(ar\.)?(gz|bz2|xz|zst))$", re.IGNORECASE)

# Reads the rows of a source, given its RecordReader and, of formats with columns, those to read.
RowFunction = Callable[..., Iterator[Chunk]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Every claim is optional.

    `rows` reads files of this format: those with one of the `suffixes`, archives whose members are
    claimed, and text whose first bytes are.
    `skip_reason` says why a file of a folder is no data, given its path and first bytes.
    `task_name` matches a file's name (without suffix) that holds the name of a task, as `task`.
    """

    name: str = ""
    suffixes: tuple[str, ...] = ()
    rows: RowFunction | None = None
    is_columnar: bool = False  # some of its columns can be read without the others
    claims_start: Callable[[bytes], bool] = lambda _: False
    claims_members: Callable[[Collection[str]], bool] = lambda _: False
    skip_reason: Callable[[Path, bytes], str | None] = lambda _path, _start: None
    task_name: re.Pattern[str] | None = None


class TaskRenderer(Protocol):
    """Turns a task's address, such as `lm-eval:gsm8k`, into the datasets that it would send."""

    def is_task(self, text: str) -> bool: ...

    def sources(self, text: str) -> list[Source]: ...


FORMATS: list[Format] = []
READERS: dict[str, Format] = {}  # those that read rows, by name
_BY_SUFFIX: dict[str, str] = {}


def register(*formats: Format) -> None:
    FORMATS.extend(formats)
    READERS.update((one.name, one) for one in formats if one.rows)
    _BY_SUFFIX.update((suffix, one.name) for one in formats for suffix in one.suffixes)


def input_formats() -> list[str]:
    """What `input_format` may be; "saved" and "hub" show by themselves."""
    return sorted({*_BY_SUFFIX.values()})


def format_of_name(name: str) -> tuple[str, str]:
    """The format and the suffixes that say so: "x.v2.jsonl.gz" -> ("jsonl", ".jsonl.gz"); an
    archive is "archive"; "" where the name says nothing.
    """
    if archive := _ARCHIVE.search(name):
        return "archive", archive[0]
    stem, suffix = splitext(name.lower())
    packing = suffix if suffix in COMPRESSED_SUFFIXES else ""
    suffix = splitext(stem)[1] if packing else suffix
    kind = _BY_SUFFIX.get(suffix, "")
    size = len(packing) + (len(suffix) if kind else 0)
    return kind, name[len(name) - size :]


def kind_of_bytes(start: bytes) -> str | None:
    """What data that starts like this is: a format, "zip", "tar", or None for who knows."""
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if start[257:262] == b"ustar":
        return "tar"
    if looks_binary(start):
        return None
    if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b""):
        return "json"  # its reader finds out whether it is one document or a value per line
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        # A character may be cut at the end of the sample; anywhere else it is not UTF-8.
        return "text" if error.start >= len(start) - 3 else None
    return "text"
