"""From what was named on the command line to the datasets there are.

Order is the order of the arguments, then names sorted; each real file counts once, however many
links lead to it. What is left out of a folder is said, never silently dropped.
"""

import glob
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from chunkscope.console import say
from chunkscope.errors import InputError, UsageError
from chunkscope.sources.base import (
    ReadOptions,
    Skipped,
    Source,
    cannot_read,
    printable,
    unique_names,
)
from chunkscope.sources.formats import (
    RECOGNISERS,
    START_BYTES,
    TaskRenderer,
    archive_suffix,
    format_of_name,
    formats,
    kind_of_bytes,
    known_suffix,
    recogniser_of,
)
from chunkscope.sources.hub import hub_source
from chunkscope.sources.opening import open_archive, open_raw
from chunkscope.sources.remote import is_remote, remote_files, without_secrets
from chunkscope.sources.streams import compression_of, decompressed, looks_binary
from chunkscope.sources.tables import saved_files

_SEARCH_HINT = (
    "name a file or a folder, a glob in quotes, `-`, s3://bucket/, hf:org/name, or lm-eval:task"
)
_ABOUT_THE_DATA = re.compile(
    r"(readme|licen[sc]e|changelog)(\.md|\.txt|[_-][^.]*(\.md|\.txt)?)?|dataset_dict\.json",
    re.IGNORECASE,
)
_ARTEFACT = re.compile(rb'\s*\{\s*"schema":\s*"chunkscope/')


class Candidate(NamedTuple):
    """Something that may be a dataset, or a folder of them.

    `below` is where it lies below what was named, and `pattern` what the rest of a glob says that
    it, or what is in it, must fit. One that was named itself is `explicit`: it must be readable.
    Others are left out if they are not.
    """

    path: str
    shown: str
    below: str
    group: str = ""
    is_folder: bool = False
    pattern: Sequence[str] = ()
    explicit: bool = False


def discover(
    paths: Sequence[str],
    *,
    names: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    options: ReadOptions,
    tasks: TaskRenderer | None = None,
) -> tuple[list[Source], list[Skipped]]:
    """All datasets behind `paths`, with unique names, and the files that were left out."""
    if options.input_format is not None and options.input_format not in formats():
        raise UsageError(
            f"unknown input_format: {options.input_format}", hint=f"one of {', '.join(formats())}"
        )
    search = _Search(options.input_format, tuple(include), tuple(exclude), tasks)
    for path in paths:
        search.argument(path)
    if not search.sources:
        raise _nothing(paths, search)
    return _named(search.sources, names), search.skipped


@dataclass(slots=True)
class _Search:
    """What was found so far. A file, an archive, a hub dataset and stdin are `taken` once."""

    input_format: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    tasks: TaskRenderer | None
    sources: list[Source] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    filtered: int = 0
    taken: set[Hashable] = field(default_factory=set)

    def argument(self, text: str) -> None:
        if not text:  # pathlib would take it for the current folder
            raise InputError("a path is empty", hint="was a shell variable not set?")
        is_address = not os.path.lexists(text)
        if text == "-":
            if sys.stdin is not None and sys.stdin.isatty():
                say("reading from the terminal: type or paste the data, then Ctrl-D")
            kind = self.input_format or ""
            self._add(Source(name="stdin", group="", path="-", format=kind, file=None), "-")
        elif is_address and is_remote(text):
            self._remote(text)
        elif is_address and text.startswith("hf:"):
            self._add(hub_source(text), text)
        elif is_address and self.tasks is not None and self.tasks.is_task(text):
            for source in self.tasks.sources(text):
                self._add(source, (text, source.name))
        elif not is_address:
            if Path(text).is_dir():
                self._folder(text)
            else:
                self._file(Candidate(text, text, Path(text).name, explicit=True))
        elif glob.has_magic(text):
            self._glob(text)
        else:
            raise InputError(f"no such file or folder: {text}", hint=_SEARCH_HINT)

    def _add(self, source: Source, identity: Hashable) -> None:
        """Unless it was met before."""
        if identity in self.taken:
            return
        self.taken.add(identity)
        texts = source.name, source.group, source.path
        if not "".join(texts).isprintable():
            name, group, path = map(printable, texts)
            source = replace(source, name=name, group=group, path=path)
        self.sources.append(source)

    def _skip(self, shown: str, reason: str) -> None:
        self.skipped.append(Skipped(printable(shown), printable(reason)))

    # --- walks -------------------------------------------------------------------------------

    def _remote(self, text: str) -> None:
        """What is behind an address; of a folder or glob what its name tells is data."""
        root, files = remote_files(text)
        if not files:
            shown = printable(without_secrets(text))
            raise InputError(f"there are no files in {shown}", hint="check the name or the pattern")
        for url, below, size in files:
            group = _join(root, below.rpartition("/")[0]) if root else ""
            shown = without_secrets(url)
            source = self._source(below, group, shown, url=url, bytes=size)
            self._consider(source, below, url, explicit=not root)

    def _glob(self, pattern: str) -> None:
        """What matches counts as found in the folder before the first `*`."""
        parts = Path(pattern).parts
        depth = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        fixed = Path(*parts[:depth])
        before = len(self.taken), len(self.skipped), self.filtered
        if fixed.is_dir():
            self._folder(str(fixed), parts[depth:])
        if before == (len(self.taken), len(self.skipped), self.filtered):
            raise InputError(f"nothing matches {pattern}", hint=_SEARCH_HINT)

    def _folder(self, text: str, pattern: Sequence[str] = ()) -> None:
        """All that is in a folder and fits the pattern, sorted; a link to a folder above ends."""
        name = os.path.basename(os.path.abspath(text)) or "/"  # noqa: PTH100, PTH119
        shown = "" if text in (".", "./") else text.rstrip("/") or "/"  # people write x, not ./x
        folders: set[Hashable] = set()
        waiting = [Candidate(text, shown, "", name, True, pattern, explicit=True)]
        while waiting:  # not by recursion: folders may be nested deeper than Python's stack
            entry = waiting.pop()
            if not entry.is_folder:
                self._file(entry)
                continue
            try:
                status = os.stat(entry.path)  # noqa: PTH116  (pathlib takes longer: files are many)
                if (status.st_dev, status.st_ino) not in folders:
                    folders.add((status.st_dev, status.st_ino))
                    waiting += reversed(self._entries(entry))
            except OSError as error:
                self._refuse(entry.shown, cannot_read(entry.shown, error), explicit=entry.explicit)

    def _entries(self, folder: Candidate) -> list[Candidate]:
        items = sorted(os.scandir(folder.path), key=lambda item: item.name)
        if {"state.json", "dataset_info.json"} <= {item.name for item in items}:
            self._saved(folder)
            return []
        entries: list[Candidate] = []
        for item in items:
            name, pattern = item.name, folder.pattern
            # A link to itself is no folder, and would raise an error.
            is_folder = os.path.isdir(item.path) if item.is_symlink() else item.is_dir()  # noqa: PTH112
            below = _join(folder.below, name)
            parts = below.split("/")
            fits = not pattern or path_fits(parts, pattern)
            leads = fits or (is_folder and ("**" in pattern or len(parts) < len(pattern)))
            if name[0] == "." or not leads or (is_folder and self._is_excluded(below)):
                continue
            group = _join(folder.group, name) if is_folder else folder.group
            shown, rest = _join(folder.shown, name), () if fits else pattern
            entries.append(Candidate(item.path, shown, below, group, is_folder, rest))
        return entries

    def _saved(self, folder: Candidate) -> None:
        """What `save_to_disk` wrote: a dataset, or a split of one."""
        path, name = Path(folder.path), folder.below or folder.group
        if not self._is_wanted(name):
            return
        try:
            size = sum(file.stat().st_size for file in saved_files(path, folder.shown))
        except (InputError, OSError) as error:
            self._refuse(folder.shown, error, explicit=folder.explicit)
            return
        group = folder.group.rpartition("/")[0] or folder.group
        source = Source(
            name=name, group=group, path=folder.shown, format="saved", file=path, bytes=size
        )
        self._add(source, os.path.realpath(path))

    # --- files -------------------------------------------------------------------------------

    def _file(self, candidate: Candidate) -> None:
        """A file on disk; its size is None for a pipe or a device."""
        path, shown, below, group, *_, explicit = candidate
        try:
            status = os.stat(path)  # noqa: PTH116
        except (OSError, ValueError) as error:
            self._refuse(shown, cannot_read(shown, error), explicit=explicit)
            return
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        source = self._source(below, group, shown, file=Path(path), bytes=size)
        self._consider(source, below, (status.st_dev, status.st_ino), explicit=explicit)

    def _source(
        self, below: str, group: str, shown: str, *, file: Path | None = None, **place: Any
    ) -> Source:
        kind = self.input_format or format_of_name(below) or ""
        return Source(name=_name(below), group=group, path=shown, format=kind, file=file, **place)

    def _consider(
        self, source: Source, below: str, identity: Hashable, *, explicit: bool = False
    ) -> None:
        is_archive = bool(archive_suffix(below)) and source.member is None
        if self._is_excluded(below) if is_archive else not self._is_wanted(below):
            return
        try:
            kind = "zip" if is_archive else self._format(source, below, explicit=explicit)
            if kind in ("zip", "tar") and source.member is None:
                if identity not in self.taken:
                    self.taken.add(identity)
                    self._archive(source, below)
                return
        except InputError as error:
            self._refuse(source.path, error, explicit=explicit)
            return
        self._add(source if kind == source.format else replace(source, format=kind), identity)

    def _refuse(self, shown: str, error: Exception, *, explicit: bool) -> None:
        """What was named must be readable; of a folder it is said that it is left out."""
        if explicit:
            raise error
        self._skip(shown, str(error).removeprefix(f"cannot read {shown}: "))

    def _format(self, source: Source, below: str, *, explicit: bool) -> str:
        """By force, by suffix or, of what was named, by content: a format, "zip" or "tar"."""
        if not explicit:
            self._refuse_other_than_data(source, below)
        elif not source.format and not source.is_read_once:
            with decompressed(open_raw(source), source.path) as stream:
                content = kind_of_bytes(stream.peek(START_BYTES))
            return content if content in ("zip", "tar") else ""
        return source.format

    def _refuse_other_than_data(self, source: Source, below: str) -> None:
        """What lies in a folder or an archive beside the data."""
        if _ABOUT_THE_DATA.fullmatch(below.rpartition("/")[2]):
            raise InputError("about the data, not data")
        if source.member is not None and archive_suffix(below):
            raise InputError("an archive inside an archive")
        if source.file is None or source.member is not None:
            if not source.format:
                raise InputError("unknown suffix")
            return
        if source.bytes is None:
            raise InputError("a pipe or a device")
        try:  # not by pathlib and io, which take longer: files are many
            descriptor = os.open(source.file, os.O_RDONLY)
            start = os.read(descriptor, START_BYTES)
            os.close(descriptor)
        except OSError as error:
            raise cannot_read(source.path, error) from error
        if looks_binary(start) and not compression_of(start):
            is_log = recogniser_of(source.format) and kind_of_bytes(start) == "zip"
            if source.format not in ("parquet", "arrow") and not is_log:
                raise InputError("binary")
        if not source.format:
            raise InputError("unknown suffix")
        if _ARTEFACT.match(start):
            raise InputError("written by chunkscope itself")
        for recogniser in RECOGNISERS:
            if reason := recogniser.skip_reason(source.file, start):
                raise InputError(reason)

    def _archive(self, archive: Source, below: str) -> None:
        """Each of its members is a source, unless a harness knows the archive as a whole."""
        members = list(open_archive(archive).members())
        names = [member.name for member in members]
        if claim := next((one for one in RECOGNISERS if one.claims_members(names)), None):
            if self._is_wanted(below):
                source = replace(archive, format=claim.format)
                self._add(source, (archive.path, claim.format))
            return
        last = {name: place for place, name in enumerate(names)}
        group = _join(archive.group, PurePosixPath(below).name)
        for place, (name, size, offset, problem) in enumerate(members):
            shown, parts = _join(archive.path, name), PurePosixPath(name).parts
            if "__MACOSX" in parts or any(p[0] == "." and p not in (".", "..") for p in parts):
                continue
            if ".." in parts:
                problem = "its path leads out of the archive"
            elif last[name] != place:  # as it happens when an archive is unpacked
                problem = "a later file of the archive has the same name"
            if problem:
                self._skip(shown, problem)
                continue
            inside = _join(below, name)
            source = self._source(inside, group, shown, file=archive.file, url=archive.url)
            source = replace(source, member=name, bytes=size, offset=offset)
            self._consider(source, inside, shown)

    # --- include and exclude -----------------------------------------------------------------

    def _is_wanted(self, below: str) -> bool:
        is_included = not self.include or any(matches(below, p) for p in self.include)
        is_wanted = is_included and not self._is_excluded(below)
        self.filtered += not is_wanted
        return is_wanted

    def _is_excluded(self, below: str) -> bool:
        return any(matches(below, pattern) for pattern in self.exclude)


def matches(below: str, pattern: str) -> bool:
    """Does the path below the root, or the name alone, fit the pattern? `**` is any folders."""
    name = below.rpartition("/")[2]
    if fnmatchcase(below, pattern) or fnmatchcase(name, pattern):
        return True
    return "**" in pattern and path_fits(below.split("/"), pattern.split("/"))


def path_fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path fits a pattern, `**` being any number of folders (at the end, any file).

    >>> path_fits(("a", "b", "x.csv"), ("**", "*.csv")), path_fits(("x.csv",), ("**", "*.csv"))
    (True, True)
    """
    if not pattern:
        return not parts
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        if rest and rest[0] == "**":  # it means no more, but would be tried in all combinations
            return path_fits(parts, rest)
        return bool(parts) and (
            not rest or any(path_fits(parts[i:], rest) for i in range(len(parts)))
        )
    return bool(parts) and fnmatchcase(parts[0], first) and path_fits(parts[1:], rest)


# --- names -----------------------------------------------------------------------------------


def _name(below: str) -> str:
    """Without what says how to read it; the logs of a harness by their task."""
    folders, slash, last = below.rpartition("/")
    if slash:
        folders = "/".join(p.removesuffix(archive_suffix(p)) for p in folders.split("/"))
    name = last.removesuffix(known_suffix(last) or archive_suffix(last))
    task = next(filter(None, (one.task_name(name) for one in RECOGNISERS)), name)
    return f"{folders}{slash}{task}"


def _named(sources: list[Source], names: Sequence[str]) -> list[Source]:
    """The sources with the names that were given, or else with names that differ: where they
    clash, a dataset's path is its name.
    """
    if not names:
        count = Counter(source.name for source in sources)
        names = unique_names((s.name if count[s.name] == 1 else s.path for s in sources), "#")
    elif len(names) != len(sources):
        raise UsageError(
            f"{len(names)} names for {len(sources)} datasets",
            hint="give one for each, in order: " + ", ".join(source.name for source in sources),
        )
    elif len({*names}) < len(names):
        raise UsageError("a name is given twice", hint="names must differ")
    return [
        source if source.name == name else replace(source, name=printable(name))
        for source, name in zip(sources, names, strict=True)
    ]


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder and name else folder or name


def _nothing(paths: Sequence[str], search: _Search) -> InputError:
    reasons = Counter(skip.reason for skip in search.skipped)
    parts = [f"{count} skipped ({reason})" for reason, count in reasons.most_common()]
    if search.filtered:
        parts.append(f"{search.filtered} left out by include or exclude")
    return InputError(
        f"no datasets in {', '.join(paths) or 'nothing'}: {', '.join(parts) or 'no files'}",
        hint="it reads jsonl, json, csv, tsv, parquet, arrow, txt, md and Inspect's eval, also "
        "compressed or in a zip or tar; see input_format in `chunkscope help config`",
    )
