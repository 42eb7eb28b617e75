"""The formats there are: how their rows are read, and the names of their files.

The logs of harnesses are formats as well. What reads them stands above this layer and
adds them with `add_logs`.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import splitext
from typing import Any, Protocol

from chunkscope.sources.base import Chunk
from chunkscope.sources.columnar import ColumnarRows
from chunkscope.sources.csv_rows import CsvRows
from chunkscope.sources.hub import HubRows
from chunkscope.sources.input import Input
from chunkscope.sources.json_document import open_json
from chunkscope.sources.jsonl import open_text
from chunkscope.sources.open import COMPRESSED_SUFFIXES

ARCHIVE = "archive"  # the format of zip and tar
ARCHIVE_SUFFIX = re.compile(r"\.(zip|tar|t(ar\.)?(gz|bz2|xz|zst))$", re.IGNORECASE)


class Rows(Protocol):
    """The rows of an opened source, and what was learned when it was opened.

    `format` is what the source turned out to be, `unit` what its positions count, and
    `metadata` what a document says beside its rows. `chunks` gives all rows; of formats
    with columns, it can be told which are needed, and called again.
    """

    @property
    def format(self) -> str: ...

    @property
    def unit(self) -> str: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    def chunks(self, columns: Sequence[str] | None = None, /) -> Iterator[Chunk]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    name: str
    suffixes: tuple[str, ...] = ()
    open: Callable[[Input], Rows]
    is_columnar: bool = False  # some of its columns can be read without the others
    is_archive: bool = False  # a file of it is a zip

    @property
    def is_binary(self) -> bool:
        return self.is_columnar or self.is_archive


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRules:
    """How the logs of a harness are recognised; each rule is optional.

    `claims_start` knows a log in JSON by its first bytes, `claims_members` one that is
    an archive by its members: both are then of the format `name`. `skip_reason` says
    why a file of a folder is no data, given its path and first bytes. `task_name`
    matches a file's name (without suffix) that holds the name of a task, as `task`.
    `is_sample` says that a file holds one sample: those of a folder are one dataset.
    """

    name: str = ""
    claims_start: Callable[[bytes], object] | None = None
    claims_members: Callable[[Collection[str]], bool] | None = None
    skip_reason: Callable[[Path, bytes], str | None] | None = None
    task_name: re.Pattern[str] | None = None
    is_sample: bool = False


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format(
            name="jsonl", suffixes=(".jsonl", ".ndjson", ".jsonlines"), open=open_json
        ),
        # SWE-agent's logs are .traj.
        Format(name="json", suffixes=(".json", ".traj"), open=open_json),
        Format(name="text", suffixes=(".txt", ".md"), open=open_text),
        Format(name="csv", suffixes=(".csv", ".tsv"), open=CsvRows),
        Format(
            name="parquet",
            suffixes=(".parquet", ".pq"),
            open=ColumnarRows,
            is_columnar=True,
        ),
        Format(
            name="arrow",
            suffixes=(".arrow", ".feather", ".ipc"),
            open=ColumnarRows,
            is_columnar=True,
        ),
        Format(name="hub", open=HubRows, is_columnar=True),
    )
}
LOGS: list[LogRules] = []


def add_logs(formats: Sequence[Format], rules: Sequence[LogRules]) -> None:
    """Let files be read and recognised as the logs of harnesses."""
    for form in formats:
        FORMATS[form.name] = form
    LOGS.extend(rules)


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """What a file's name says: "x.v2.jsonl.gz" is jsonl by its suffix .jsonl.gz.

    The format of an archive is "archive"; it is "" where the name says nothing.
    """

    format: str
    suffix: str


def format_of_name(name: str) -> NamedFormat:
    archive = ARCHIVE_SUFFIX.search(name)
    if archive is not None:
        return NamedFormat(ARCHIVE, archive[0])
    stem, suffix = splitext(name)
    packing = ""
    if suffix.lower() in COMPRESSED_SUFFIXES:
        packing = suffix
        suffix = splitext(stem)[1]
    for form in FORMATS.values():
        if suffix.lower() in form.suffixes:
            return NamedFormat(form.name, suffix + packing)
    return NamedFormat("", packing)
