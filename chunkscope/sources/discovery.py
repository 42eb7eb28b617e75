"""From what was named on the command line to the datasets there are.

Order is the order of the arguments, then names sorted; each real file counts once, however many
links lead to it. What is left out of a folder is said, never silently dropped.
"""

import glob
import io
import os
import re
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from chunkscope.console import say
from chunkscope.errors import InputError, UsageError
from chunkscope.sources import recognisers
from chunkscope.sources.archives import archive_suffix, members
from chunkscope.sources.base import ReadOptions, Skipped, Source, cannot_read, printable
from chunkscope.sources.formats import (
    START_BYTES,
    format_of_name,
    formats,
    kind_of_bytes,
    known_suffix,
)
from chunkscope.sources.hub import hub_source
from chunkscope.sources.names import named_sources
from chunkscope.sources.opening import open_raw, open_whole
from chunkscope.sources.remote import is_remote, remote_files, without_secrets
from chunkscope.sources.streams import compression_of, decompressed, looks_binary
from chunkscope.sources.tables import looks_like_table, saved_files, saved_splits

_SEARCH_HINT = (
    "name a file or a folder, a glob in quotes, `-`, s3://bucket/, hf:org/name, or lm-eval:task"
)
_ABOUT_THE_DATA = re.compile(r"(readme|licen[sc]e|changelog)([._-].*)?", re.IGNORECASE)
_ARTEFACT = re.compile(rb'\s*\{\s*"schema":\s*"chunkscope/')


class SkipFile(Exception):  # noqa: N818  (a way out, not a mistake)
    """This file is left out; the message says why."""


class Candidate(NamedTuple):
    """A file that may be a dataset, and where it lies below what was named.

    One that was named itself is `explicit`: it must be readable. Others are left out if they are
    not. Its source has no format yet.
    """

    source: Source
    below: str
    explicit: bool = False


class _Entry(NamedTuple):
    """Something in a folder, and what it, or what is in it, must fit."""

    is_folder: bool
    path: str
    shown: str
    below: str
    group: str
    pattern: Sequence[str]


def _new_source(path: str, group: str, file: Path | None, **place: Any) -> Source:
    return Source(name="", group=group, path=path, format="", file=file, **place)


def discover(
    paths: Sequence[str],
    *,
    names: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    options: ReadOptions,
    tasks: recognisers.TaskRenderer | None = None,
) -> tuple[list[Source], list[Skipped]]:
    """All datasets behind `paths`, with unique names, and the files that were left out."""
    if options.input_format is not None and options.input_format not in formats():
        raise UsageError(
            f"unknown input_format: {options.input_format}",
            hint=f"one of {', '.join(sorted(formats()))}",
        )
    search = _Search(options, tuple(include), tuple(exclude), tasks)
    for path in paths:
        search.argument(path)
    if not search.sources:
        raise _nothing_new_source(paths, search)
    return named_sources(search.sources, names), search.skipped


@dataclass(slots=True)
class _Search:
    """What was found so far. A file, an archive, a hub dataset and stdin are `taken` once."""

    options: ReadOptions
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    tasks: recognisers.TaskRenderer | None
    sources: list[Source] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    filtered: int = 0
    taken: set[Hashable] = field(default_factory=set)

    def argument(self, text: str) -> None:
        if not text:  # pathlib would take it for the current folder
            raise InputError("a path is empty", hint="was a shell variable not set?")
        path, is_address = Path(text), not os.path.lexists(text)
        if text == "-":
            self._stdin()
        elif is_address and is_remote(text):
            self._remote(text)
        elif is_address and text.startswith("hf:"):
            if self._is_new(text):
                self._add(hub_source(text))
        elif is_address and self.tasks is not None and self.tasks.is_task(text):
            for source in self.tasks.sources(text) if self._is_new(text) else ():
                self._add(source)
        elif _exists(path, text):
            if path.is_dir():
                self._folder(path, _as_typed(text))
            else:
                self._file(text, text, path.name, explicit=True)
        elif glob.has_magic(text):
            self._glob(text)
        else:
            raise InputError(f"no such file or folder: {text}", hint=_SEARCH_HINT)

    def _is_new(self, key: Hashable) -> bool:
        """Whether this was not met before; from now on it was."""
        is_new = key not in self.taken
        self.taken.add(key)
        return is_new

    def _add(self, source: Source) -> None:
        texts = source.name, source.group, source.path
        if not "".join(texts).isprintable():
            name, group, path = map(printable, texts)
            source = replace(source, name=name, group=group, path=path)
        self.sources.append(source)

    def _skip(self, shown: str, reason: str) -> None:
        self.skipped.append(Skipped(printable(shown), printable(reason)))

    def _stdin(self) -> None:
        if not self._is_new("-"):
            return
        if sys.stdin is not None and sys.stdin.isatty():
            say("reading from the terminal: type or paste the data, then Ctrl-D")
        kind = self.options.input_format or _kind_of_start(_start_of_stdin())
        if kind not in formats():
            what = f"a {kind} archive" if kind else "neither text nor parquet"
            raise InputError(
                f"cannot read standard input: it looks like {what}",
                hint='save it to a file, or say in chunkscope.toml: input_format = "jsonl"',
            )
        self._add(Source(name="stdin", group="", path="-", format=kind, file=None))

    # --- walks -------------------------------------------------------------------------------

    def _remote(self, text: str) -> None:
        """What is behind an address; of a folder or glob what its name tells is data."""
        root, files = remote_files(text)
        if not files:
            shown = printable(without_secrets(text))
            raise InputError(f"there are no files in {shown}", hint="check the name or the pattern")
        for url, below, size in files:
            group = _join(root, below.rpartition("/")[0]) if root else ""
            source = _new_source(without_secrets(url), group, None, url=url, bytes=size)
            self._consider(Candidate(source, below, explicit=not root), url)

    def _glob(self, pattern: str) -> None:
        """What matches counts as found in the folder before the first `*`."""
        parts = Path(pattern).parts
        depth = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        fixed = Path(*parts[:depth])
        before = len(self.taken), len(self.skipped), self.filtered
        if fixed.is_dir():
            self._folder(fixed, _as_typed(str(fixed)), parts[depth:])
        if before == (len(self.taken), len(self.skipped), self.filtered):
            raise InputError(f"nothing matches {pattern}", hint=_SEARCH_HINT)

    def _folder(self, path: Path, shown: str, pattern: Sequence[str] = ()) -> None:
        """All that is in a folder and fits the pattern, sorted; a link to a folder above ends."""
        folders: set[Hashable] = set()
        waiting = [_Entry(True, str(path), shown, "", _folder_name(path), pattern)]
        while waiting:  # not by recursion: folders may be nested deeper than Python's stack
            entry = waiting.pop()
            if not entry.is_folder:
                self._file(entry.path, entry.shown, entry.below, entry.group)
                continue
            try:
                status = os.stat(entry.path)  # noqa: PTH116  (pathlib takes longer: files are many)
                identity = status.st_dev, status.st_ino
                if identity not in folders:
                    folders.add(identity)
                    waiting += reversed(self._entries(entry))
            except OSError as error:
                if not entry.below:
                    raise cannot_read(shown, error) from error
                self._skip(entry.shown, _why(error))
            except InputError as error:
                if not entry.below:
                    raise
                self._skip(entry.shown, error.message)

    def _entries(self, folder: "_Entry") -> list["_Entry"]:
        if not folder.pattern and (splits := saved_splits(Path(folder.path))):
            for split in splits:
                self._saved_split(folder, split)
            return []
        entries: list[_Entry] = []
        for item in sorted(os.scandir(folder.path), key=lambda item: item.name):
            name, is_folder, pattern = item.name, _is_folder(item), folder.pattern
            below = _join(folder.below, name)
            parts = below.split("/")
            fits = not pattern or path_fits(parts, pattern)
            leads = fits or (is_folder and ("**" in pattern or len(parts) < len(pattern)))
            if name.startswith(".") or not leads or (is_folder and self._is_excluded(below)):
                continue
            group = _join(folder.group, name) if is_folder else folder.group
            shown, rest = _join(folder.shown, name), () if fits else pattern
            entries.append(_Entry(is_folder, item.path, shown, below, group, rest))
        return entries

    def _saved_split(self, dataset: "_Entry", split: str) -> None:
        """One split of what `save_to_disk` wrote; "" where it has none."""
        path = Path(dataset.path) / split
        shown, below = _join(dataset.shown, split), _join(dataset.below, split)
        if not self._is_wanted(below or path.name):
            return
        try:
            size = sum(file.stat().st_size for file in saved_files(path, shown))
        except (InputError, OSError) as error:
            self._skip(shown, str(error))
            return
        if self._is_new(os.path.realpath(path)):
            name, group = below or _folder_name(path), dataset.group
            self._add(
                Source(name=name, group=group, path=shown, format="saved", file=path, bytes=size)
            )

    # --- files -------------------------------------------------------------------------------

    def _file(
        self, path: str, shown: str, below: str, group: str = "", *, explicit: bool = False
    ) -> None:
        """A file on disk; its size is None for a pipe or a device."""
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError as error:
            if explicit:
                raise cannot_read(shown, error) from error
            self._skip(shown, _why(error))
            return
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        source = _new_source(shown, group, Path(path), bytes=size)
        self._consider(Candidate(source, below, explicit), (status.st_dev, status.st_ino))

    def _consider(self, candidate: Candidate, identity: Hashable) -> None:
        source, below, _ = candidate
        is_archive = archive_suffix(below) is not None and source.member is None
        if self._is_excluded(below) if is_archive else not self._is_wanted(below):
            return
        try:
            kind = "zip" if is_archive else self._format(candidate)
        except SkipFile as reason:
            self._skip(source.path, str(reason))
            return
        if not self._is_new(identity):
            return
        if kind in ("zip", "tar") and source.member is None:
            self._archive(candidate)
        else:
            self._add(replace(source, name=_name(below), format=kind))

    def _format(self, candidate: Candidate) -> str:
        """By force, by suffix or, of what was named, by content: a format, "zip" or "tar"."""
        source, below, explicit = candidate
        named = format_of_name(below)
        kind = self.options.input_format or named
        if not explicit and is_about_the_data(below):
            raise SkipFile("about the data, not data")
        if source.member is not None and archive_suffix(below):
            raise SkipFile("an archive inside an archive")
        if source.file is not None and source.member is None:
            if source.bytes is None and explicit:
                return kind or "jsonl"  # such as <(zcat x.gz): looking at it would use it up
            if source.bytes is None:
                raise SkipFile("a pipe or a device")
            try:
                with source.file.open("rb", buffering=0) as file:
                    start = file.read(START_BYTES)
            except OSError as error:
                raise (
                    cannot_read(source.path, error) if explicit else SkipFile(_why(error))
                ) from error
            if not explicit:
                _refuse_other_than_data(source.file, start, named, kind)
        if kind is None and explicit:
            with decompressed(open_raw(source), source.path) as stream:
                kind = _kind_of_start(stream.peek(START_BYTES))
            if kind is None:
                hint = 'say so in chunkscope.toml: [analyze] input_format = "jsonl"'
                raise InputError(f"cannot tell what {source.path} is", hint=hint)
        if kind is None:
            raise SkipFile("unknown suffix")
        return kind

    def _archive(self, candidate: Candidate) -> None:
        archive = candidate.source
        try:
            listed = members(partial(open_whole, archive), archive.path)
        except InputError as error:
            if candidate.explicit:
                raise
            self._skip(archive.path, error.message)
            return
        if claimed := recognisers.claimed_format(members=[member.name for member in listed]):
            if self._is_wanted(candidate.below):
                self._add(replace(archive, name=_name(candidate.below), format=claimed))
            return
        group = _join(archive.group, PurePosixPath(candidate.below).name)
        for member in listed:
            shown, parts = _join(archive.path, member.name), PurePosixPath(member.name).parts
            if "__MACOSX" in parts or any(p[0] == "." and p not in (".", "..") for p in parts):
                continue
            if problem := "its path leads out of the archive" if ".." in parts else member.problem:
                self._skip(shown, problem)
                continue
            place = {"member": member.name, "bytes": member.size, "offset": member.offset}
            source = replace(archive, path=shown, group=group, **place)  # type: ignore[arg-type]
            self._consider(Candidate(source, _join(candidate.below, member.name)), shown)

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


def is_about_the_data(name: str) -> bool:
    """ "README.md", "LICENSE"; not "readme.jsonl", "licensed_drivers.txt"."""
    name = PurePosixPath(name).name
    return _ABOUT_THE_DATA.fullmatch(name) is not None and format_of_name(name) in (None, "text")


def _refuse_other_than_data(file: Path, start: bytes, named: str | None, kind: str | None) -> None:
    """What lies in a folder beside the data."""
    is_packed = compression_of(start) is not None
    is_binary = is_packed or looks_binary(start)
    if recognisers.recogniser_of(named):
        if kind_of_bytes(start) != "zip":
            raise SkipFile(f"no {named} log")
    elif named not in ("parquet", "arrow") and looks_binary(start) and not is_packed:
        raise SkipFile("binary")
    if kind is None:
        raise SkipFile("binary" if is_binary else "unknown suffix")
    if _ARTEFACT.match(start):
        raise SkipFile("written by chunkscope itself")
    if reason := recognisers.skip_reason(file, start):
        raise SkipFile(reason)


def _kind_of_start(start: bytes) -> str | None:
    """Nothing at all counts as JSON Lines without a line."""
    kind = kind_of_bytes(start) if start else "jsonl"
    if kind != "text":
        return kind
    sample = start.decode("utf-8-sig", errors="replace")
    return "csv" if looks_like_table(sample, cut=len(start) >= START_BYTES) else kind


def _start_of_stdin() -> bytes:
    """What standard input starts with, left there to be read."""
    stream, start = getattr(sys.stdin, "buffer", None), b""
    if isinstance(stream, io.BufferedReader):
        start = stream.peek(START_BYTES)[:START_BYTES]
    elif stream is not None and stream.seekable():
        at = stream.tell()
        start = stream.read(START_BYTES)
        stream.seek(at)
    if compression_of(start) != "gzip":
        return b"" if compression_of(start) else start
    with suppress(zlib.error):
        return zlib.decompressobj(wbits=31).decompress(start, 1 << 16)
    return b""


def _exists(path: Path, text: str) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise InputError(f"{text} is a link that leads nowhere", hint="see `ls -l`") from None
        return False
    except ValueError as error:
        raise InputError(f"not a path: {text!r}", hint=_SEARCH_HINT) from error
    except OSError as error:
        raise cannot_read(text, error) from error
    return True


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _why(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, FileNotFoundError):
        return "a link that leads nowhere"
    return (error.strerror or str(error)).lower()


def _as_typed(text: str) -> str:
    """ "data/" -> "data"; "." -> "", since people write x, not ./x."""
    return "" if text in (".", "./") else text.rstrip("/") or text[:1]


def _folder_name(folder: Path) -> str:
    return Path(os.path.abspath(folder)).name or "/"  # noqa: PTH100  (keeps links as named)


def _name(below: str) -> str:
    """Without what says how to read it; the logs of a harness by their task."""
    folders, slash, last = below.rpartition("/")
    above = "/".join(p.removesuffix(archive_suffix(p) or "") for p in folders.split("/"))
    name = last.removesuffix(known_suffix(last) or archive_suffix(last) or "")
    return f"{above}{slash}{recognisers.task_name(name) or name}"


def _join(folder: str, name: str) -> str:
    if not folder or not name:
        return folder or name
    return f"{folder.rstrip('/')}/{name}"


def _nothing_new_source(paths: Sequence[str], search: _Search) -> InputError:
    what = ", ".join(paths) or "nothing"
    reasons = Counter(skip.reason for skip in search.skipped)
    parts = [f"{count} skipped ({reason})" for reason, count in reasons.most_common()]
    if search.filtered:
        parts.append(f"{search.filtered} left out by include or exclude")
    return InputError(
        f"no datasets in {what}: {', '.join(parts) or 'there are no files'}",
        hint="it reads jsonl, json, csv, tsv, parquet, arrow, txt, md and Inspect's eval, also "
        "compressed or in a zip or tar; see input_format in `chunkscope help config`",
    )
