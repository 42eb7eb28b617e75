"""Datasets counted before: content-addressed, so an unchanged file is never counted twice.

The key is the file's digest, what the tokenizer is, and every option that changes the result.
Entries are written in one step and read without locks. Each begins with its own checksum: a
damaged one counts as absent. Old ones go.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from stat import S_ISREG

import orjson

from chunkscope.artefacts.codec import built, dumped
from chunkscope.artefacts.files import (
    CannotWriteError,
    prune_cache,
    read_cached,
    sha256,
    write_cached,
)
from chunkscope.console import say
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.prompts.harness.lm_eval import results_file
from chunkscope.sources.base import Source
from chunkscope.sources.formats import format_of_name

# Of what is kept and what it means, not of the package: raise it when the same bytes would be
# read, counted or described differently.
_LAYOUT = 15

Stamp = list[tuple[int, ...]]


def entry(source: Source, digest: str, options_key: str) -> str:
    """What a result depends on, but for the tokenizer, which may not be known yet."""
    results = results_file(source)  # what a run's settings were changes what is counted
    beside = sha256(results) if results else ""
    suffix = format_of_name(source.path)[1]  # a .tsv is more likely to be split at tabs than a .csv
    what = [digest, beside, source.member, source.format, suffix]
    return repr((_LAYOUT, *what, options_key))


def load(source: Source, entry: str, counting_key: str | None) -> DatasetProfile | None:
    """What an earlier run counted, under the name the dataset has in this one.

    Of a tokenizer that was never used, only lengths that came with the data can be there.
    """
    if (data := read_cached("results", f"{entry}{counting_key or ''}")) is None:
        return None
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        dataset: DatasetProfile = built(DatasetProfile, orjson.loads(data))
        return replace(dataset, name=source.name, group=source.group, path=source.path)
    return None


def store(counted: Sequence[tuple[str, DatasetProfile]], counting_key: str | None) -> None:
    """Keep new results, and make room for them."""
    try:
        for entry, dataset in counted:
            write_cached("results", f"{entry}{counting_key or ''}", dumped(dataset))
    except CannotWriteError as error:  # it costs time, not truth
        say(f"{error.message}; nothing is kept for the next run")
    prune_cache()


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
