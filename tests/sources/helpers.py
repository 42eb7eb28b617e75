"""What the tests of sources share: a file read to its end, and archives."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backports import zstd

from chunkscope.errors import ChunkscopeError
from chunkscope.report.notes import sentence
from chunkscope.sources.base import Problems, ReadOptions, Source
from chunkscope.sources.find import discover
from chunkscope.sources.reader import RecordReader

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": partial(lzma.compress, preset=0),
    "zst": partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1}),
}


@dataclass
class Read:
    """A source, read: records and where they were, bad rows, and the final error."""

    records: list[Any] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    head: list[Any] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    error: ChunkscopeError | None = None
    format: str = ""
    unit: str = ""


def read(
    place: Path | str | Source, columns: list[str] | None = None, **options: Any
) -> Read:
    """Everything in one source; a ChunkscopeError is kept, any other is a bug."""
    result, problems, chosen = Read(), Problems(), ReadOptions(**options)
    source = (
        place
        if isinstance(place, Source)
        else discover([str(place)], options=chosen)[0][0]
    )
    try:
        with RecordReader(source, chosen, problems) as reader:
            result.head = reader.head()
            for positions, records in reader.chunks(columns):
                assert len(positions) == len(records)
                result.positions += positions
                result.records += records
            result.format, result.unit = reader.format, reader.unit
    except ChunkscopeError as error:
        result.error = error
    assert result.error is None or result.error.hint, "every error says what to do"
    result.bad = [(row.position, sentence(row.reason)) for row in problems.rows]
    return result


def read_bytes(name: str, data: bytes | str, **options: Any) -> Read:
    """A file of this name and content."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return read(path, **options)


def archive(name: str, files: dict[str, bytes]) -> bytes:
    """A zip or tar of these files, packed as its name says; a tar has a link, too."""
    data = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.mkdir("inner")
            for member, content in files.items():
                packed.writestr(member, content)
        return data.getvalue()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for member, content in files.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link.jsonl")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    suffix = name.rpartition(".")[2].replace("tgz", "gz")
    return PACKERS.get(suffix, bytes)(data.getvalue())
