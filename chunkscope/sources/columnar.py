"""Rows of Parquet, Arrow, and what `datasets.save_to_disk` wrote."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePath
from typing import IO, Any

import orjson

from chunkscope.sources.base import Chunk, DataError, Source, unique_names
from chunkscope.sources.input import Input
from chunkscope.sources.open import open_packed, open_seekable
from chunkscope.sources.remote import explaining

# About what one chunk holds, in Arrow's memory; as Python objects it is somewhat more.
_BATCH_BYTES = 2 << 20
_BATCH_ROWS = 4096
_START_BYTES = 8
_SAMPLE_ROWS = 16


class ColumnarRows:
    """Parquet, or Arrow's file and stream formats, whatever the name says."""

    unit = "row"
    metadata: Mapping[str, Any] = {}

    def __init__(self, source: Input) -> None:
        self._input = source
        self.format = source.source.format or "parquet"

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        source = self._input.source
        with explaining(source.path):
            file = self._input.file
            first = 1
            if source.row_group is not None:
                first += rows_before(file, source.row_group)
            batches = _batches(file, source.row_group, columns)
            yield from _numbered(batches, first)


class SavedRows:
    """A folder that `datasets.save_to_disk` wrote: its Arrow files."""

    format = "saved"
    unit = "row"
    metadata: Mapping[str, Any] = {}

    def __init__(self, source: Input) -> None:
        self._path = source.source.path
        self._files = saved_files(source.source.file or Path(), self._path)

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        return _numbered(self._batches(columns))

    def _batches(self, columns: Sequence[str] | None) -> Iterator[Any]:
        for path in self._files:
            source = Source(path=str(path), file=path)
            with explaining(source.path), open_packed(source) as file:
                yield from _batches(file, None, columns)


def saved_files(folder: Path, shown: str) -> list[Path]:
    """The data files of a saved dataset, in order, as its state.json lists them."""
    error = DataError("no_saved_files", path=f"{shown}/state.json")
    try:
        state = orjson.loads((folder / "state.json").read_bytes())
        names = [str(entry["filename"]) for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise error from None
    points_outside = any(name != PurePath(name).name for name in names)
    if not names or points_outside:
        raise error
    return [folder / name for name in names]


def row_groups(source: Source) -> int:
    """How many row groups a Parquet file has."""
    import pyarrow.parquet

    with explaining(source.path), open_seekable(source) as file:
        return int(pyarrow.parquet.read_metadata(file).num_row_groups)


def rows_before(file: IO[bytes], row_group: int) -> int:
    """How many rows of a Parquet file stand before a row group."""
    import pyarrow.parquet

    metadata = pyarrow.parquet.read_metadata(file)
    return sum(metadata.row_group(group).num_rows for group in range(row_group))


def _batches(
    file: IO[bytes], row_group: int | None, columns: Sequence[str] | None
) -> Iterator[Any]:
    file.seek(0)
    start = file.read(_START_BYTES)
    file.seek(0)
    if start.startswith(b"PAR1"):
        return _parquet_batches(file, row_group, columns)
    return _arrow_batches(file, columns, is_file=start.startswith(b"ARROW1"))


def _parquet_batches(
    file: IO[bytes], row_group: int | None, columns: Sequence[str] | None
) -> Iterator[Any]:
    import pyarrow.parquet

    with ExitStack() as stack:
        # Without pre-buffering a row group is read page by page, not whole.
        parquet = stack.enter_context(
            pyarrow.parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
        )
        groups = list(range(parquet.num_row_groups))
        if row_group is not None:
            groups = [row_group]
        names = _present(columns, parquet.schema_arrow.names)
        sizes = [parquet.metadata.row_group(group).num_rows for group in groups]
        rows = min(_BATCH_ROWS, max(sizes, default=1))
        # A text that comes again and again is written once, so rows can hold far more
        # than the file: a few of them say how many a batch may have.
        for sample in parquet.iter_batches(_SAMPLE_ROWS, groups, names):
            rows = min(rows, sample.num_rows * _BATCH_BYTES // max(sample.nbytes, 1))
            break
        yield from parquet.iter_batches(max(1, rows), groups, names)


def _arrow_batches(
    file: IO[bytes], columns: Sequence[str] | None, *, is_file: bool
) -> Iterator[Any]:
    """Each is checked before anything looks inside: Arrow trusts the offsets in a file,
    and a damaged one would be read out of bounds.
    """
    import pyarrow.ipc

    if is_file:
        with pyarrow.ipc.open_file(file) as arrow:
            names = _present(columns, arrow.schema.names)
            for index in range(arrow.num_record_batches):
                yield _checked(arrow.get_batch(index), names)
    else:
        with pyarrow.ipc.open_stream(file) as arrow:
            names = _present(columns, arrow.schema.names)
            for batch in arrow:
                yield _checked(batch, names)


def _checked(batch: Any, names: list[str] | None) -> Any:
    if names is not None:
        batch = batch.select(names)
    batch.validate(full=True)
    return batch


def _present(columns: Sequence[str] | None, names: list[str]) -> list[str] | None:
    """The columns of a table that are wanted; None for all of them."""
    return [name for name in names if name in (columns or ())] or None


def _numbered(batches: Iterator[Any], position: int = 1) -> Iterator[Chunk]:
    """Batches as chunks of records, from a position on."""
    for batch in batches:
        for part in _sliced(batch):
            named = part.rename_columns(unique_names(part.schema.names, "_"))
            # Spark's messages are maps; without any, asking takes five times as long.
            has_maps = "map<" in str(part.schema.types)
            maps = "lossy" if has_maps else None
            records = named.to_pylist(maps_as_pydicts=maps)
            yield Chunk(range(position, position + len(records)), records)
            position += len(records)


def _sliced(batch: Any) -> Iterator[Any]:
    """A batch in parts of bounded size: Feather writes 64 Ki rows at once, however
    long they are.
    """
    size = batch.nbytes
    for column in batch.columns:
        if hasattr(column, "dictionary"):  # whose words come again in each row
            words = column.dictionary
            size += batch.num_rows * words.nbytes // max(len(words), 1)
    rows = batch.num_rows * _BATCH_BYTES // max(size, 1)
    step = max(1, min(_BATCH_ROWS, rows))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
