"""Trajectories: files with one sample each, of Harbor and of mini-SWE-agent.

A record is a document with the name of its file; its position is the file's number.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chunkscope.sources.base import (
    Chunk,
    DataError,
    Row,
    Source,
    in_chunks,
    printable,
)
from chunkscope.sources.input import Input
from chunkscope.sources.jsonl import parse_value
from chunkscope.sources.open import open_stream, read_whole

FORMAT = "trajectory"
# {"schema_version": "ATIF-v1.7", or mini-SWE-agent's {"info": {"model_stats": {
STARTS = re.compile(
    rb'\s*\{\s*("schema_version":\s*"ATIF-v|"info":\s*\{\s*"model_stats":)'
)
MAIN = "trajectory.json"  # of a trial of Harbor's
CONTINUATION = re.compile(r"trajectory\.cont-(\d+)\.json")


class TrajectoryRows:
    """The documents of one or several files, in the order of their names.

    What a trajectory is continued in comes after it.
    """

    format = FORMAT
    unit = "trajectory"

    def __init__(self, source: Input) -> None:
        self._input = source
        self._files = sorted(each_once(source.source.files), key=place_of)
        self.metadata: Mapping[str, Any] = {}

    def chunks(self, _: Sequence[str] | None = None) -> Iterator[Chunk]:
        return in_chunks(self._rows())

    def _rows(self) -> Iterator[Row]:
        source = self._input.source
        if not self._files:  # it came through a pipe, or out of an archive
            data = read_whole(self._input.text, source.path)
            yield Row(1, record_of(Path(source.path), data), len(data))
        for number, file in enumerate(self._files, start=1):
            shown = printable(str(file))
            try:
                with open_stream(Source(path=shown, file=file)) as stream:
                    data = read_whole(stream, shown)
                yield Row(number, record_of(file, data), len(data))
            except DataError as error:
                self._input.problems.bad(number, error)


def record_of(file: Path, data: bytes) -> dict[str, Any]:
    try:
        return {"file": str(file), "document": parse_value(data)}
    except DataError as error:
        path = printable(str(file))
        raise DataError("not_a_document", path=path, reason=error.note) from None


def each_once(files: Sequence[Path]) -> list[Path]:
    """Without an agent's own trajectories where Harbor wrote them down as well."""
    converted = {file.parent for file in files if file.name == MAIN}
    once = []
    for file in files:
        if file.parent not in converted or file.name.startswith("trajectory."):
            once.append(file)
    return once


def place_of(file: Path) -> tuple[str, int, str]:
    match = CONTINUATION.fullmatch(file.name)
    number = int(match[1]) if match else 0
    return str(file.parent), number, file.name
