"""Datasets counted before: content-addressed, so an unchanged file is never counted twice.

The key is the file's digest, what the tokenizer is, and every option that changes the result.
Entries are written in one step and read without locks. Each begins with its own checksum: a
damaged one counts as absent. Old ones go.
"""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR, S_ISREG

import orjson

from chunkscope.artefacts import codec, folders
from chunkscope.artefacts.folders import cache_folder
from chunkscope.artefacts.schema import built, dumped
from chunkscope.console import say
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.sources.base import Source
from chunkscope.sources.formats import format_of_name

# Of what is kept and what it means, not of the package: raise it when the same bytes would be
# read, counted or described differently.
_LAYOUT = 14
_MOST_BYTES = 256 << 20

Stamp = list[tuple[int, ...]]


def key(source: Source, sha256: str, tokenizer: str, options: str) -> str:
    suffix = format_of_name(source.path)[1]  # a .tsv is more likely to be split at tabs than a .csv
    what = [sha256, source.member, source.format, suffix]
    parts = json.dumps([_LAYOUT, *what, tokenizer, options])
    return hashlib.sha256(parts.encode()).hexdigest()


def load(source: Source, entry: str) -> DatasetProfile | None:
    """What an earlier run counted, under the name the dataset has in this one."""
    place = _folder() / entry[:2] / f"{entry}.json"
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        dataset: DatasetProfile = built(DatasetProfile, orjson.loads(codec.read_checked(place)))
        folders.mark_used(place)
        return replace(dataset, name=source.name, group=source.group, path=source.path)
    return None


def store(counted: Iterable[tuple[str, DatasetProfile]]) -> None:
    """Keep new results, and make room for them."""
    counted, folder = list(counted), _folder()
    try:
        for entry, dataset in counted:
            place = folder / entry[:2] / f"{entry}.json"
            codec.write_checked(place, dumped(dataset))
    except codec.CannotWriteError as error:  # it costs time, not truth
        say(f"{error.message}; nothing is kept for the next run")
    if counted:
        folders.prune(folder, "*/*", most_bytes=_MOST_BYTES)


def _folder() -> Path:
    return cache_folder() / "results"


def stamp(source: Source) -> Stamp | None:
    """What changes when the source's files do; None for a pipe, which can be read only once."""
    if source.file is None:
        return None
    try:
        stats = [source.file.stat()]
    except (FileNotFoundError, NotADirectoryError):
        return None  # whoever reads it will say so
    if S_ISDIR(stats[0].st_mode):
        stats = [file.stat() for file in sorted(source.file.iterdir())]
    elif not S_ISREG(stats[0].st_mode):
        return None
    return [(s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in stats]


def is_unchanged(source: Source, before: Stamp | None) -> bool:
    """Whether what was counted is what was hashed: others may have been writing to the file."""
    try:
        return stamp(source) == before
    except OSError:
        return False
