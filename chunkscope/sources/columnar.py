"""Rows of Parquet and Arrow."""

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from chunkscope.sources.base import Chunk, unique_names
from chunkscope.sources.input import Input
from chunkscope.sources.remote import explaining

# About what one chunk holds, in Arrow's memory; as Python objects it is somewhat more.
BATCH_BYTES = 2 << 20
BATCH_ROWS = 4096
SAMPLE_ROWS = 16


class ColumnarRows:
    """Parquet, or Arrow's file and stream formats, whatever the name says."""

    unit = "row"
    metadata: Mapping[str, Any] = {}

    def __init__(self, source: Input) -> None:
        self._input = source
        self.format = source.source.format or "parquet"

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        with explaining(self._input.source.path):
            file = self._input.file
            file.seek(0)
            start = file.read(8)
            file.seek(0)
            if start.startswith(b"PAR1"):
                batches = parquet_batches(file, columns)
            elif start.startswith(b"ARROW1"):
                batches = arrow_batches(file, columns)
            else:
                batches = streamed_batches(file, columns)
            yield from numbered(batches)


def parquet_batches(file: IO[bytes], columns: Sequence[str] | None) -> Iterator[Any]:
    import pyarrow.parquet

    # Without pre-buffering a row group is read page by page, not whole.
    with pyarrow.parquet.ParquetFile(
        file, pre_buffer=False, buffer_size=1 << 20
    ) as parquet:
        schema = parquet.schema_arrow.names
        names = [schema[place] for place in wanted(columns, schema)]
        rows = max(1, min(BATCH_ROWS, parquet.metadata.num_rows))
        # A text that comes again and again is written once, so rows can hold far more
        # than the file: a few of them say how many a batch may have.
        for sample in parquet.iter_batches(SAMPLE_ROWS, columns=names):
            rows = min(rows, sample.num_rows * BATCH_BYTES // max(sample.nbytes, 1))
            break
        yield from parquet.iter_batches(max(1, rows), columns=names)


# Each batch of Arrow is checked before anything looks inside: Arrow trusts the offsets
# in a file, and a damaged one would be read out of bounds.


def arrow_batches(file: IO[bytes], columns: Sequence[str] | None) -> Iterator[Any]:
    import pyarrow.ipc

    with pyarrow.ipc.open_file(file) as arrow:
        places = wanted(columns, arrow.schema.names)
        for index in range(arrow.num_record_batches):
            batch = arrow.get_batch(index).select(places)
            batch.validate(full=True)
            yield batch


def streamed_batches(file: IO[bytes], columns: Sequence[str] | None) -> Iterator[Any]:
    import pyarrow.ipc

    with pyarrow.ipc.open_stream(file) as arrow:
        places = wanted(columns, arrow.schema.names)
        for batch in arrow:
            selected = batch.select(places)
            selected.validate(full=True)
            yield selected


def wanted(columns: Sequence[str] | None, names: Sequence[str]) -> list[int]:
    """The places of the columns that are wanted; all where none of them is there."""
    places = range(len(names))
    return [place for place in places if names[place] in (columns or ())] or [*places]


def numbered(batches: Iterator[Any]) -> Iterator[Chunk]:
    """Batches as chunks of records."""
    position = 1
    for batch in batches:
        # Spark's messages are maps; without any, asking takes five times as long.
        maps = "lossy" if "map<" in str(batch.schema.types) else None
        named = batch.rename_columns(unique_names(batch.schema.names, "_"))
        step = rows_at_once(batch)
        for start in range(0, batch.num_rows, step):
            part = named.slice(start, step)
            records = part.to_pylist(maps_as_pydicts=maps)
            yield Chunk(range(position, position + len(records)), records)
            position += len(records)


def rows_at_once(batch: Any) -> int:
    """How many rows of a batch make a chunk: Feather writes 64 Ki rows at once, however
    long they are.
    """
    size = batch.nbytes
    for column in batch.columns:
        if hasattr(column, "dictionary"):  # whose words come again in each row
            words = column.dictionary
            size += batch.num_rows * words.nbytes // max(len(words), 1)
    rows = int(batch.num_rows * BATCH_BYTES // max(size, 1))
    return max(1, min(BATCH_ROWS, rows))
