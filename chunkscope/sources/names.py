"""Names for the datasets that were found: as given, or such that no two are alike."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from chunkscope.errors import UsageError
from chunkscope.sources.base import Source, printable, unique_names
from chunkscope.sources.formats import known_suffix


def named_sources(sources: list[Source], names: Sequence[str]) -> list[Source]:
    """The sources with the names that were given, or else with names that differ."""
    if not names:
        return _with_unique_names(sources)
    if len(names) != len(sources):
        raise UsageError(
            f"{len(names)} names for {len(sources)} datasets",
            hint="give one for each, in order: " + ", ".join(source.name for source in sources),
        )
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"the name {twice[0]} is given twice", hint="names must differ")
    return [
        replace(source, name=printable(name)) for source, name in zip(sources, names, strict=True)
    ]


def _with_unique_names(sources: list[Source]) -> list[Source]:
    """Where names clash: add the suffix, then the parent folder, then count."""
    for longer in (_with_suffix, _with_parent):
        count = Counter(source.name for source in sources)
        sources = [
            replace(source, name=longer(source)) if count[source.name] > 1 else source
            for source in sources
        ]
    unique = unique_names((source.name for source in sources), "#")
    return [
        source if source.name == name else replace(source, name=name)
        for source, name in zip(sources, unique, strict=True)
    ]


def _with_suffix(source: Source) -> str:
    return source.name + known_suffix(source.member or source.path)


def _with_parent(source: Source) -> str:
    """The folder above what the name already says."""
    depth = len(PurePosixPath(source.name).parts)
    where = PurePosixPath(os.path.abspath(source.path) if source.file else source.path)  # noqa: PTH100
    return "/".join([*where.parts[-depth - 1 : -depth], source.name])
