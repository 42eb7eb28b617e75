"""Samples that are files of their own, which together are one dataset.

Agents' harnesses write a file for each sample, in a folder of its own, and beside it
what else they know of it.
"""

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

    Samples that were named one by one are one dataset, too. Of a folder that has
    samples, other JSON is what the harness says about them, and is left out.
    """
    samples: dict[str, list[Source]] = {}  # by the folder that was named
    for source in sources:
        form = format_of_sample(source)
        if form is not None:
            sample = replace(source, format=form)
            samples.setdefault(root_of(source), []).append(sample)
    datasets: list[Source] = []
    skipped: list[Note] = []
    for source in sources:
        root = root_of(source)
        of_root = samples.get(root, [])
        files = [sample.file for sample in of_root]
        if source.file is not None and source.file in files:
            if source.file == files[0]:
                datasets.append(one_source(of_root))
        elif of_root and root and source.format == "json":
            reason = "about the samples beside it"
            skipped.append(note("skipped", file=source.path, reason=reason))
        else:
            datasets.append(source)
    return Gathered(datasets, skipped)


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
    folder = files[0].parent
    for file in files[1:]:
        while not file.is_relative_to(folder):
            folder = folder.parent
    return folder
