"""Datasets counted before: content-addressed, so an unchanged file is never counted twice.

The key is the file's digest, what the tokenizer is, and every option that changes the result.
Entries are written in one step and read without locks. Each begins with its own checksum: a
damaged one counts as absent. Old ones go.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG

import orjson

from chunkscope.artefacts import codec, folders
from chunkscope.artefacts.digests import DigestMemo
from chunkscope.artefacts.schema import built, dumped
from chunkscope.console import say
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.prompts.harness.lm_eval import results_file
from chunkscope.sources.base import Source
from chunkscope.sources.formats import format_of_name

# Of what is kept and what it means, not of the package: raise it when the same bytes would be
# read, counted or described differently.
_LAYOUT = 15
_MOST_BYTES = 256 << 20

Stamp = list[tuple[int, ...]]


def entry(source: Source, sha256: str, options_key: str, memo: DigestMemo) -> str:
    """What a result depends on, but for the tokenizer, which may not be known yet."""
    results = results_file(source)  # what a run's settings were changes what is counted
    beside = memo.sha256(results) if results else ""
    suffix = format_of_name(source.path)[1]  # a .tsv is more likely to be split at tabs than a .csv
    what = [sha256, beside, source.member, source.format, suffix]
    return repr((_LAYOUT, *what, options_key))


def _place(entry: str, counting_key: str | None) -> Path:
    # Of a tokenizer that was never used, only lengths that came with the data can be there.
    digest = hashlib.sha256(f"{entry}{counting_key or ''}".encode()).hexdigest()
    return folders.cache_folder() / "results" / digest[:2] / f"{digest}.json"


def load(source: Source, entry: str, counting_key: str | None) -> DatasetProfile | None:
    """What an earlier run counted, under the name the dataset has in this one."""
    place = _place(entry, counting_key)
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        dataset: DatasetProfile = built(DatasetProfile, orjson.loads(codec.read_checked(place)))
        folders.mark_used(place)
        return replace(dataset, name=source.name, group=source.group, path=source.path)
    return None


def store(counted: Sequence[tuple[str, DatasetProfile]], counting_key: str | None) -> None:
    """Keep new results, and make room for them."""
    if not counted:
        return
    try:
        for entry, dataset in counted:
            codec.write_checked(_place(entry, counting_key), dumped(dataset))
    except codec.CannotWriteError as error:  # it costs time, not truth
        say(f"{error.message}; nothing is kept for the next run")
    folders.prune(folders.cache_folder() / "results", "*/*", most_bytes=_MOST_BYTES)


def stamp(source: Source) -> Stamp | None:
    """What changes when the source's files do; None for a pipe, or where there is no file."""
    if source.file is None:
        return None
    with suppress(OSError):  # whoever reads it will say so
        files = sorted(source.file.iterdir()) if source.format == "saved" else [source.file]
        stats = [file.stat() for file in files]
        if all(S_ISREG(stat.st_mode) for stat in stats):
            return [(s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in stats]
    return None
