"""Parquet, Arrow/Feather and `datasets.save_to_disk`, all through pyarrow (imported when needed).

The data is checked before it becomes Python objects: Arrow trusts the offsets in a file, and a
damaged one would otherwise be read out of bounds.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from chunkscope.errors import ChunkscopeError, InputError
from chunkscope.sources.base import Chunk, Problems, Source, first_line
from chunkscope.sources.reader import RestartingReader
from chunkscope.sources.remote import explained

# About what one chunk holds, in Arrow's memory; as Python objects it is somewhat more.
_BATCH_BYTES = 2 << 20
_BATCH_ROWS = 4096
_PROBE_ROWS = 16
_IPC_FILE_MAGIC = b"ARROW1"
_FEATHER_1_MAGIC = b"FEA1"

# Opens a file that can jump about; pyarrow's own files are as good as Python's.
Opener = Callable[[], Any]


class ColumnarReader(RestartingReader):
    """Reads record batches; only the columns that are asked for, once it is known which.

    `files` open the parts of the dataset; `spool` is a temporary file to close with the reader.
    Of a parquet file, `between` two bytes are the row groups that begin there.
    """

    def __init__(
        self,
        source: Source,
        problems: Problems,
        files: Sequence[Opener],
        spool: IO[bytes] | None = None,
        between: tuple[int, int | None] = (0, None),
    ) -> None:
        super().__init__(source, problems)
        self._between = between
        self._openers = files
        self._spool = spool
        self._bytes_read = 0

    @property
    def bytes_read(self) -> int:
        return self._bytes_read

    @property
    def is_divisible(self) -> bool:
        return self._spool is None and self.source.format == "parquet"

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()

    def _read(self, columns: Sequence[str] | None, problems: Problems) -> Iterator[Chunk]:
        self._bytes_read = 0
        row = 1
        for opener in self._openers:
            with opener() as file:
                for batch, sound in self._safe_batches(file, columns):
                    yield (_chunk if sound else _row_by_row)(batch, row, problems)
                    row += batch.num_rows
                    self.positions = row - 1
                    self._bytes_read += batch.nbytes if sound else 0

    def _safe_batches(self, file: Any, columns: Sequence[str] | None) -> Iterator[tuple[Any, bool]]:
        try:
            yield from _batches(file, columns, self.source.path, self._between)
        except (ChunkscopeError, MemoryError, GeneratorExit):
            raise
        except Exception as error:  # pyarrow borrows from all over Python's own error tree
            if self.source.url is not None and not isinstance(error, ValueError):
                raise explained(self.source.path, error) from error
            raise InputError(
                f"cannot read {self.source.path} as {self.format}: {first_line(error)}",
                hint="the file may be damaged or cut off; fetch or write it again",
            ) from error


def _chunk(batch: Any, first: int, problems: Problems) -> Chunk:
    try:
        records = batch.to_pylist()
    except Exception:  # pyarrow raises all sorts; row by row it is found out which row it is
        return _row_by_row(batch, first, problems)
    return Chunk(range(first, first + len(records)), records)


def _row_by_row(batch: Any, first: int, problems: Problems) -> Chunk:
    positions: list[int] = []
    records: list[Any] = []
    for index in range(batch.num_rows):
        row = batch.slice(index, 1)
        try:
            row.validate(full=True)
            records += row.to_pylist()
        except Exception as error:  # the row is lost, the file is not
            problems.bad(first + index, f"not readable: {first_line(error)}")
        else:
            positions.append(first + index)
    return Chunk(positions, records)


def _batches(
    file: Any, columns: Sequence[str] | None, shown: str, between: tuple[int, int | None]
) -> Iterator[tuple[Any, bool]]:
    start = file.read(8)
    file.seek(0)
    if start.startswith(b"PAR1"):
        batches = _parquet_batches(file, columns, between)
    elif start.startswith(_FEATHER_1_MAGIC):
        raise InputError(
            f"{shown} is Feather version 1, which is not read",
            hint="write it again as version 2, with pyarrow.feather.write_feather",
        )
    else:
        batches = _ipc_batches(file, columns, is_file=start.startswith(_IPC_FILE_MAGIC))
    for batch in batches:
        yield from _sliced(batch)


def _parquet_batches(
    file: Any, columns: Sequence[str] | None, between: tuple[int, int | None]
) -> Iterator[Any]:
    import pyarrow.parquet

    # Without pre-buffering a row group is read page by page, not whole.
    with pyarrow.parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20) as parquet:
        meta = parquet.metadata
        groups = [i for i in range(meta.num_row_groups) if _begins(meta.row_group(i), *between)]
        size = sum(meta.row_group(i).total_byte_size for i in groups)
        num_rows = sum(meta.row_group(i).num_rows for i in groups)
        rows = max(1, min(_BATCH_ROWS, num_rows * _BATCH_BYTES // max(size, 1)))
        wanted = _existing(parquet.schema_arrow.names, columns)
        # A text that comes again and again is written once: rows can hold far more than the file.
        probe = min(rows, _PROBE_ROWS)
        for first in parquet.iter_batches(batch_size=probe, row_groups=groups, columns=wanted):
            rows = max(1, min(rows, first.num_rows * _BATCH_BYTES // max(first.nbytes, 1)))
            break
        yield from parquet.iter_batches(batch_size=rows, row_groups=groups, columns=wanted)


def _begins(group: Any, start: int, end: int | None) -> bool:
    """Whether a row group's first page is there."""
    column = group.column(0)
    place = column.data_page_offset
    if column.has_dictionary_page:
        place = min(place, column.dictionary_page_offset)
    return bool(start <= place and (end is None or place < end))


def _ipc_batches(file: Any, columns: Sequence[str] | None, *, is_file: bool) -> Iterator[Any]:
    import pyarrow.ipc

    opened = pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream
    with opened(file) as reader:
        names = reader.schema.names
    file.seek(0)
    wanted = _existing(names, columns)
    fields = [i for i, name in enumerate(names) if wanted is None or name in wanted]
    options = pyarrow.ipc.IpcReadOptions(included_fields=fields if wanted is not None else None)
    with opened(file, options=options) as reader:
        if is_file:
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
        else:
            yield from reader


def _existing(names: Sequence[str], columns: Sequence[str] | None) -> list[str] | None:
    """The wanted columns that there are; all of them (None) when there is not one."""
    wanted = [name for name in names if columns is not None and name in columns]
    return wanted or None


def _sliced(batch: Any) -> Iterator[tuple[Any, bool]]:
    """A batch in parts of bounded size (Feather writes 64 Ki rows at once, however long), and
    whether it is sound all through. Before that is known nothing may look inside, not even nbytes.
    """
    batch.validate()  # are its buffers as long as it says? If not, the file is of no use
    rows, step, sound = batch.num_rows, _BATCH_ROWS, _is_sound(batch)
    if sound:
        step = max(1, min(_BATCH_ROWS, rows * _BATCH_BYTES // max(_unpacked_bytes(batch), 1)))
    for start in range(0, rows, step):
        yield batch.slice(start, step), sound


def _unpacked_bytes(batch: Any) -> int:
    """About what a batch holds as Python objects: a dictionary's words come again in each row."""
    coded = [column for column in batch.columns if hasattr(column, "dictionary")]
    words = sum(
        batch.num_rows * column.dictionary.nbytes // max(len(column.dictionary), 1)
        for column in coded
    )
    return int(batch.nbytes + words)


def _is_sound(batch: Any) -> bool:
    try:
        batch.validate(full=True)
    except (ValueError, LookupError, NotImplementedError, TypeError):
        return False
    return True


# --- datasets.save_to_disk -------------------------------------------------------------------


def saved_splits(folder: Path) -> list[str] | None:
    """The splits of a saved `DatasetDict`, [""] for a single saved dataset, None for neither."""
    if (folder / "dataset_dict.json").is_file():
        listed = _json_object(folder / "dataset_dict.json").get("splits")
        splits = listed if isinstance(listed, list) else []
        return [
            split
            for split in splits
            if isinstance(split, str) and _is_plain_name(split) and (folder / split).is_dir()
        ]
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        return [""]
    return None


def saved_files(folder: Path, shown: str) -> list[Path]:
    """The data files of a saved dataset, in order, as its state.json lists them."""
    state = _json_object(folder / "state.json")
    listed = state.get("_data_files")
    names = [entry.get("filename") for entry in listed or [] if isinstance(entry, dict)]
    if not names or not all(isinstance(name, str) and _is_plain_name(name) for name in names):
        raise InputError(
            f"{shown}/state.json lists no data files", hint="save the dataset again: save_to_disk"
        )
    if state.get("_indices_data_files"):
        raise InputError(
            f"{shown} was saved with an index on top, by an old version of datasets",
            hint="load it and save it again with save_to_disk",
        )
    return [folder / str(name) for name in names]


def _json_object(path: Path) -> dict[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}", hint="save the dataset again") from error
    return value if isinstance(value, dict) else {}


def _is_plain_name(name: str) -> bool:
    """A name inside the folder, not a way out of it."""
    return bool(name) and "/" not in name and "\\" not in name and name not in (".", "..")
