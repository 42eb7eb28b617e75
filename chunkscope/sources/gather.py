"""Samples that are files of their own, which together are one dataset.

Agents' harnesses write a file for each sample, in a folder of its own, and beside it
what else they know of it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chunkscope.artefacts.note import Note, note
from chunkscope.sources.base import DataError, Source
from chunkscope.sources.formats import LOGS
from chunkscope.sources.input import START_BYTES
from chunkscope.sources.open import open_stream


@dataclass(frozen=True, slots=True)
class Gathered:
    sources: list[Source]
    skipped: list[Note]  # what lies in a folder of samples


def gathered(sources: Sequence[Source]) -> Gathered:
    """The sources, with all samples of one folder as one of them.

    Samples that were named one by one are one dataset, too. Other JSON in the folder
    that all samples are in is what the harness says about them, and is left out.
    """
    samples: dict[str, list[Source]] = {}  # by the folder that was named
    files: set[Path | None] = set()
    for source in sources:
        form = format_of_sample(source)
        if form is not None:
            sample = replace(source, format=form)
            samples.setdefault(root_of(source), []).append(sample)
            files.add(source.file)
    joined = {root: one_source(found) for root, found in samples.items()}
    datasets: list[Source] = []
    skipped: list[Note] = []
    for source in sources:
        root = root_of(source)
        if source.file in files:
            if source.file == samples[root][0].file:
                datasets.append(joined[root])
        elif root in joined and is_about(source, joined[root]):
            reason = "about the samples beside it"
            skipped.append(note("skipped", file=source.path, reason=reason))
        else:
            datasets.append(source)
    return Gathered(datasets, skipped)


def is_about(source: Source, joined: Source) -> bool:
    """Whether it is JSON in the folder of the samples."""
    if source.format != "json" or source.file is None or not source.group:
        return False
    return source.file.is_relative_to(common_folder(joined.files))


def root_of(source: Source) -> str:
    """The folder that was named on the command line; "" for a file."""
    return source.group.partition("/")[0]


def format_of_sample(source: Source) -> str | None:
    """The format of a JSON file that holds one sample of a log; None for others."""
    if source.format != "json" or source.file is None or source.member is not None:
        return None
    if source.is_read_once or source.rendered:
        return None
    try:
        with open_stream(source) as stream:
            start = stream.peek(START_BYTES)[:START_BYTES]
    except (DataError, OSError):
        return None  # it will fail when it is read
    for log in LOGS:
        if log.is_sample and log.claims_start is not None and log.claims_start(start):
            return log.name
    return None


def one_source(samples: Sequence[Source]) -> Source:
    """Named for the folder; one file keeps its own name."""
    first = samples[0]
    files = tuple(source.file or Path() for source in samples)
    if len(samples) == 1:
        return replace(first, files=files)
    root = root_of(first)
    folder = common_folder(files)
    return replace(
        first,
        name=root or folder.name or first.name,
        group="",
        path=str(folder),
        file=None,
        files=files,
        bytes=sum(source.bytes or 0 for source in samples),
    )


def common_folder(files: Sequence[Path]) -> Path:
    try:
        return Path(os.path.commonpath([file.parent for file in files]))
    except ValueError:  # some are named from the root, some from here
        return files[0].parent
