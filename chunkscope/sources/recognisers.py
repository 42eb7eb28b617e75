"""What others say of files that `sources` alone would take for plain data, or not read at all.

A harness writes files in ways of its own. Whoever knows them registers a `Recogniser` when it is
imported (`chunkscope.prompts.harness` does); discovery and the readers ask all that are registered.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from chunkscope.sources.base import Chunk, Source

if TYPE_CHECKING:
    from chunkscope.sources.reader import RecordReader

# Reads the rows of a source from its start; of formats with columns only those that are named.
RowFunction = Callable[["RecordReader", Sequence[str] | None], Iterator[Chunk]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recogniser:
    """Every claim is optional.

    `rows` reads files of `format`: those with the `suffix`, archives whose members are claimed,
    and JSON documents whose first bytes are.
    `skip_reason` says why a file of a folder is no data, given its path and first bytes.
    `task_name` is the name of a dataset, where the file's name (without suffix) has it inside.
    """

    format: str = ""
    suffix: str = ""
    rows: RowFunction | None = None
    claims_start: Callable[[bytes], bool] = lambda _: False
    claims_members: Callable[[Collection[str]], bool] = lambda _: False
    skip_reason: Callable[[Path, bytes], str | None] = lambda _path, _start: None
    task_name: Callable[[str], str | None] = lambda _: None


class TaskRenderer(Protocol):
    """Turns a task's address, such as `lm-eval:gsm8k`, into the datasets that it would send."""

    def is_task(self, text: str) -> bool: ...

    def sources(self, text: str) -> list[Source]: ...


RECOGNISERS: list[Recogniser] = []
CLAIMED_SUFFIXES: dict[str, str] = {}  # suffix -> format


def register(recogniser: Recogniser) -> None:
    RECOGNISERS.append(recogniser)
    if recogniser.suffix:
        CLAIMED_SUFFIXES[recogniser.suffix] = recogniser.format


def recogniser_of(format_name: str | None) -> Recogniser | None:
    return next((r for r in RECOGNISERS if r.format and r.format == format_name), None)


def claimed_format(*, start: bytes = b"", members: Collection[str] = ()) -> str | None:
    """The format of a JSON document that starts like this, or of an archive of such members."""
    for one in RECOGNISERS:
        if (start and one.claims_start(start)) or (members and one.claims_members(members)):
            return one.format
    return None


def task_name(stem: str) -> str | None:
    return next(filter(None, (one.task_name(stem) for one in RECOGNISERS)), None)


def skip_reason(file: Path, start: bytes) -> str | None:
    return next(filter(None, (one.skip_reason(file, start) for one in RECOGNISERS)), None)
