"""Datasets counted before: content-addressed, so an unchanged file is never counted twice.

The key is the file's digest, the tokenizer's digest and every option that changes the result.
Entries are written in one step and read without locks. Each begins with its own checksum: a
damaged one counts as absent.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from chunkscope._version import __version__
from chunkscope.artefacts import codec
from chunkscope.artefacts.folders import cache_folder
from chunkscope.errors import ChunkscopeError
from chunkscope.lengths.profile import DatasetProfile, dataset_from_json
from chunkscope.sources.base import Source
from chunkscope.sources.formats import known_suffix

_LAYOUT = 2  # raise when the same bytes would be counted or described differently


def key(source: Source, sha256: str, tokenizer: str, options: dict[str, Any]) -> str:
    suffix = known_suffix(source.path)  # a .tsv is more likely to be split at tabs than a .csv
    what = [sha256, source.member, source.format, suffix]
    parts = [_LAYOUT, __version__, *what, tokenizer, options]
    # Not orjson: names and options may hold what is no Unicode, or numbers of any size.
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def load(source: Source, entry: str) -> DatasetProfile | None:
    """What an earlier run found, under the name the dataset has in this one."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        checksum, _, found = _place(entry).read_bytes().partition(b"\n")
        if checksum == _checksum(found):
            dataset = dataset_from_json(orjson.loads(found))
            return replace(dataset, name=source.name, group=source.group, path=source.path)
    return None


def store(entry: str, dataset: DatasetProfile) -> None:
    data = orjson.dumps(dataset.to_json())
    with suppress(ChunkscopeError):  # a cache that cannot be written costs time, not truth
        whole = _checksum(data) + b"\n" + data
        codec.write_atomically(_place(entry), whole, durable=False)


def _checksum(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _place(entry: str) -> Path:
    return cache_folder() / "results" / entry[:2] / f"{entry}.json"
