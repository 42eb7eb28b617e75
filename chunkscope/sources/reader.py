"""One source read: its first records, and all of them in chunks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from chunkscope.sources.archive import open_archive
from chunkscope.sources.base import (
    CHUNK_BYTES,
    Chunk,
    DataError,
    Problems,
    ReadOptions,
    Source,
)
from chunkscope.sources.formats import ARCHIVE, FORMATS, LOGS, Rows
from chunkscope.sources.input import START_BYTES, UNKNOWN_TEXT, Input, kind_of_bytes

# Two lines of JSON, or an array of objects to its end, whatever the name of the file.
ROWS = re.compile(
    rb'\{".*\}\s*\n\{"'
    rb'|\[\s*\{\s*"[^"]+":[\s\S]*(\]\s*|[\s\S]{500000})\Z'
)
# What `head` shows: enough to see a field that only some records have.
HEAD_RECORDS = 100
_HEAD_CHUNKS = 3  # may hold a row of 100 MB each, so not more are kept waiting


class RecordReader:
    """Reads one source once; a context manager, which opens and closes it.

    Bad rows go to `problems`. What was learned on opening stands in `rows`.
    """

    rows: Rows

    def __init__(
        self, source: Source, options: ReadOptions, problems: Problems
    ) -> None:
        self.source = source
        self._input = Input(source, options, problems)
        self._waiting: Iterator[Chunk] | None = None

    def __enter__(self) -> "RecordReader":
        try:
            form = FORMATS[format_of(self._input)]
            self.rows = form.open(self._input)
        except BaseException:
            self._input.close()
            raise
        self._is_columnar = form.is_columnar
        return self

    def __exit__(self, *_: object) -> None:
        self._input.close()

    @property
    def format(self) -> str:
        return self.rows.format

    @property
    def unit(self) -> str:
        return self.rows.unit

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.rows.metadata

    @property
    def bytes_read(self) -> int:
        """How much of the file (as it is on disk) was read, for progress."""
        return self._input.bytes_read

    def head(self) -> list[Any]:
        """Some of the first records; `chunks` gives them again.

        They are spread over the first chunks, as sets may be sorted.
        """
        chunks = self.rows.chunks()
        first: list[Chunk] = []
        records: list[Any] = []
        for chunk in chunks:
            first.append(chunk)
            records += chunk.records
            if len(records) >= HEAD_RECORDS or len(first) == _HEAD_CHUNKS:
                break
        self._waiting = chain(first, chunks)
        count = min(len(records), HEAD_RECORDS)
        return [records[len(records) * place // count] for place in range(count)]

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        """All records, once. `columns` names the fields that are needed; None is all.

        Of tables all columns are read for the head, then anew those that are needed.
        """
        if self._waiting is None or self._is_columnar:
            self._waiting = None
            return self.rows.chunks(columns)
        return self._waiting


def format_of(opened: Input) -> str:
    """The format that the name says where the content agrees, else by the content."""
    source = opened.source
    if source.format == ARCHIVE:
        open_archive(source)  # says why it could not be opened before
    form = source.format or kind_of_bytes(opened.plain.peek(START_BYTES)[:START_BYTES])
    is_told = opened.options.input_format or opened.options.per_line
    if opened.options.per_line and form == UNKNOWN_TEXT:
        form = "text"
    if form in ("csv", "text", UNKNOWN_TEXT) and not is_told:
        if ROWS.match(opened.text.peek(CHUNK_BYTES)):
            form = "json"
    if form == "json":
        form = log_of_json(opened) or "json"
    if form not in FORMATS:
        raise DataError("unknown_data", path=source.path, kind=form)
    return form


def log_of_json(opened: Input) -> str | None:
    """The format of a harness's log that begins like this."""
    start = opened.text.peek(START_BYTES)
    for log in LOGS:
        if log.claims_start is not None and log.claims_start(start):
            return log.name
    return None
