"""Datasets counted before: content-addressed, so an unchanged file is never counted twice.

The key is the file's digest, the tokenizer's digest and every option that changes the result.
Entries are written in one step and read without locks; a damaged one counts as absent.
"""

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from chunkscope import __version__, artefact
from chunkscope.errors import ChunkscopeError
from chunkscope.folders import cache_folder
from chunkscope.profile import DatasetProfile, dataset_from_json
from chunkscope.sources.base import Source

_LAYOUT = 2  # raise when the same bytes would be counted or described differently


def key(source: Source, sha256: str, tokenizer: str, options: dict[str, Any]) -> str:
    parts = [_LAYOUT, __version__, sha256, source.member, source.format, tokenizer, options]
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def load(source: Source, entry: str) -> DatasetProfile | None:
    """What an earlier run found, under the name the dataset has in this one."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = dataset_from_json(orjson.loads(_place(entry).read_bytes()))
        return replace(found, name=source.name, group=source.group, path=source.path)
    return None


def store(entry: str, dataset: DatasetProfile) -> None:
    with suppress(ChunkscopeError):  # a cache that cannot be written costs time, not truth
        artefact.write_atomically(_place(entry), orjson.dumps(dataset.to_json()))


def _place(entry: str) -> Path:
    return cache_folder() / "results" / entry[:2] / f"{entry}.json"
