"""`analyze --order`: the rows of a dataset written in the order in which most is found again."""

from collections.abc import Sequence
from pathlib import Path

from chunkscope.artefacts import codec
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.row_bytes import rows_in_order
from chunkscope.lengths.tally import Counted
from chunkscope.sources.base import Source
from chunkscope.sources.streams import compression_of

_TABLE = "csv"
_LINES = ("jsonl", _TABLE, "text")


def check_order(sources: Sequence[Source], options: AnalyzeOptions) -> None:
    """Say what cannot be done before anything is counted."""
    if not options.prefixes:
        raise UsageError(
            "--order needs what prompts share, which --no-prefixes leaves out",
            hint="leave one of them out",
        )
    if options.sample is not None:
        raise UsageError(
            "--order writes all rows, and --sample counts only some", hint="leave one of them out"
        )
    if len(sources) != 1:
        raise UsageError(
            f"--order writes one dataset, and there are {len(sources)}",
            hint="name one file: `chunkscope analyze data.jsonl --order sorted.jsonl`",
        )
    (source,) = sources
    if source.rendered:
        raise _refused(source, "its requests come from a harness's task, not from a file's rows")
    if source.file is None or source.member is not None or not source.file.is_file():
        raise _refused(source, "it is not a file by itself")
    if options.order and options.order.exists() and options.order.samefile(source.file):
        raise UsageError(
            f"--order {options.order} would replace the data", hint="name another file"
        )
    with source.file.open("rb") as file:
        start = file.read(16)
    if compression := compression_of(start):
        raise _refused(source, f"it is compressed ({compression})")
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or not _is_like_ascii(options.read.encoding):
        raise _refused(source, "its encoding is not one in which a line break is one byte")


def _is_like_ascii(encoding: str) -> bool:
    try:
        return "\r\n".encode(encoding.removesuffix("-sig")) == b"\r\n"
    except (LookupError, UnicodeError):
        return False


def write_order(source: Source, counted: Counted, place: Path) -> int:
    """Write them and say how many rows there are; every byte of the file is in it."""
    dataset = counted.profile
    if dataset.log is not None:
        raise _refused(source, "it is a harness's log: the harness chooses the order")
    if dataset.kind == "lengths":
        raise _refused(source, "it is a trace, whose requests come when they come")
    if dataset.failure:
        raise _refused(source, "it could not be read to its end")
    if dataset.format not in _LINES or dataset.unit != "line":
        raise _refused(source, f"rows of {dataset.format} cannot be moved one by one")
    if not counted.order or source.file is None:
        raise _refused(source, "its prompts were not compared")
    lines = list(dict.fromkeys(counted.order))  # a row may hold several prompts
    rows = rows_in_order(source.file, lines, lone_returns=dataset.format == _TABLE)
    codec.write_atomically(place, rows)
    return len(lines)


def _refused(source: Source, why: str) -> InputError:
    return InputError(
        f"--order cannot write {source.path} in another order: {why}",
        hint="it takes JSON Lines, CSV and text with --per-line, as plain files",
    )
