"""Patterns for paths: --include, --exclude and globs, in which `**` is any number of folders."""

import glob
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path, PurePosixPath


def matches(below: str, pattern: str) -> bool:
    """Does the path below the root, or the name alone, fit the pattern?"""
    return fnmatchcase(below, pattern) or fnmatchcase(PurePosixPath(below).name, pattern)


def fixed_part(pattern: str) -> Path:
    """ "data/*/x.csv" -> "data": the folder before the first `*`."""
    parts: list[str] = []
    for part in Path(pattern).parent.parts:
        if glob.has_magic(part):
            break
        parts.append(part)
    return Path(*parts)


def fitting(pattern: str) -> list[str]:
    """The paths that fit a glob, sorted; with `**` in it, only files."""
    if "**" in pattern:
        return sorted(_fitting_below(fixed_part(pattern), pattern))
    return sorted(glob.glob(pattern))  # noqa: PTH207


def _fitting_below(fixed: Path, pattern: str) -> Iterator[str]:
    """Each folder is gone through once: Python's own glob follows links round and round."""
    given = Path(pattern).parts[len(fixed.parts) :]
    # `**/**` means no more than `**`, but would be tried in all combinations.
    wanted = [p for part, same in groupby(given) for p in ([part] if part == "**" else same)]
    seen: set[tuple[int, int]] = set()
    waiting: list[tuple[Path, tuple[str, ...]]] = [(fixed, ())]
    while waiting:
        folder, above = waiting.pop()
        try:
            known, entries = identity(folder), list(os.scandir(folder))
        except OSError:
            continue
        if known in seen:
            continue
        seen.add(known)
        for entry in entries:
            parts = (*above, entry.name)
            if entry.name.startswith("."):
                continue
            if is_folder(entry):
                waiting.append((Path(entry.path), parts))
            elif _fits(parts, wanted):
                yield str(Path(entry.path))


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a path fits a pattern, `**` being any number of folders (at the end, any file).

    >>> _fits(("a", "b", "x.csv"), ("**", "*.csv")), _fits(("x.csv",), ("**", "*.csv"))
    (True, True)
    """
    if not wanted:
        return not parts
    first, rest = wanted[0], wanted[1:]
    if first == "**":
        return bool(parts) and (not rest or any(_fits(parts[i:], rest) for i in range(len(parts))))
    return bool(parts) and fnmatchcase(parts[0], first) and _fits(parts[1:], rest)


def identity(folder: Path) -> tuple[int, int]:
    """What a folder is, however many links lead to it."""
    status = folder.stat()
    return status.st_dev, status.st_ino


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
