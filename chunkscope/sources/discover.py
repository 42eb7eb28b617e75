"""From what was named on the command line to the datasets there are.

Order is the order of the arguments, then names sorted; each real file counts once, however many
links lead to it. What is left out of a folder is said, never silently dropped.
"""

import glob
import io
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path, PurePosixPath

from chunkscope.errors import InputError, UsageError
from chunkscope.sources.archives import Member, members
from chunkscope.sources.base import ReadOptions, Skipped, Source, cannot_read, printable
from chunkscope.sources.byte_stream import FileStream
from chunkscope.sources.columnar import saved_files, saved_splits
from chunkscope.sources.compression import compression_of, decompressed
from chunkscope.sources.encodings import looks_binary
from chunkscope.sources.formats import (
    FORMATS,
    archive_suffix,
    format_of_name,
    kind_of_bytes,
    known_suffix,
    peek_stdin,
)
from chunkscope.sources.hub import hub_source
from chunkscope.sources.opening import open_bytes
from chunkscope.sources.tables import looks_like_table

_ABOUT_THE_DATA = ("readme", "license", "licence", "changelog")
_SNIFF_BYTES = 4096
_OWN_ARTEFACT = re.compile(rb'\s*\{\s*"schema":\s*"chunkscope/')
_SEARCH_HINT = "name a file or a folder, a glob in quotes, `-`, or hf:org/name"


def discover(
    paths: Sequence[str],
    *,
    names: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    options: ReadOptions,
) -> tuple[list[Source], list[Skipped]]:
    """All datasets behind `paths`, with unique names, and the files that were left out."""
    if options.input_format is not None and options.input_format not in FORMATS:
        raise UsageError(
            f"unknown --input-format: {options.input_format}",
            hint=f"one of {', '.join(sorted(FORMATS))}",
        )
    search = _Search(options, tuple(include), tuple(exclude))
    for path in paths:
        search.argument(path)
    if not search.sources:
        raise _nothing_found(paths, search)
    return _named(search.sources, names), search.skipped


@dataclass(slots=True)
class _Place:
    """A file met on the way: where it is, how people call it, and where below the root it lies."""

    file: Path
    shown: str
    below: str
    group: str
    explicit: bool


@dataclass(slots=True)
class _Search:
    options: ReadOptions
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    sources: list[Source] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    filtered: int = 0
    seen: set[str] = field(default_factory=set)

    def argument(self, text: str) -> None:
        path = Path(text)
        if not text:  # pathlib would take it for the current folder
            raise InputError("a path is empty", hint="was a shell variable not set?")
        if text == "-":
            self._stdin()
        elif text.startswith("hf:") and not os.path.lexists(text):
            self._add(hub_source(text, self.options), key=text)
        elif _exists(path, text):
            if path.is_dir():
                self._folder(path, shown=_as_typed(text), below="", group=_folder_name(path))
            else:
                place = _Place(path, text, path.name, group="", explicit=True)
                self._file(place)
        elif glob.has_magic(text):
            self._glob(text)
        else:
            raise InputError(f"no such file or folder: {text}", hint=_SEARCH_HINT)

    def _add(self, source: Source, *, key: str) -> None:
        if key not in self.seen:
            self.seen.add(key)
            self.sources.append(
                replace(
                    source,
                    name=printable(source.name),
                    group=printable(source.group),
                    path=printable(source.path),
                )
            )

    def _skip(self, shown: str, reason: str) -> None:
        self.skipped.append(Skipped(printable(shown), printable(reason)))

    def _stdin(self) -> None:
        if "-" in self.seen:
            return
        found = self.options.input_format or _format_of_start(_plain_start(peek_stdin()))
        if found not in FORMATS:
            what = f"a {found} archive" if found else "neither text nor parquet"
            raise InputError(
                f"cannot read standard input: it looks like {what}",
                hint="save it to a file, or say what it is: --input-format jsonl",
            )
        source = Source(name="stdin", group="", path="-", format=found, file=None)
        self._add(source, key="-")

    def _glob(self, pattern: str) -> None:
        """What matches counts as found in the folder before the first `*`."""
        fixed = Path(*_fixed_parts(pattern))
        found = _fitting_below(fixed, pattern) if "**" in pattern else glob.glob(pattern)  # noqa: PTH207
        matches = sorted(found)
        if not matches:
            raise InputError(f"nothing matches {pattern}", hint=_SEARCH_HINT)
        for match in matches:
            path = Path(match)
            below = Path(os.path.relpath(match, fixed)).as_posix()
            group = (PurePosixPath(_folder_name(fixed)) / below).parent.as_posix()
            if path.is_dir():
                if "**" not in pattern:  # else its files match by themselves
                    inner = (PurePosixPath(_folder_name(fixed)) / below).as_posix()
                    self._folder(path, shown=_as_typed(match), below=below, group=inner)
            else:
                self._file(_Place(path, match, below, group, explicit=False))

    # --- folders -----------------------------------------------------------------------------

    def _folder(self, folder: Path, *, shown: str, below: str, group: str) -> None:
        """Walk a folder in sorted order; a link back to a folder above ends there."""
        waiting = [(True, _Place(folder, shown, below, group, explicit=False))]
        while waiting:  # not by recursion: folders may be nested deeper than Python's stack
            is_folder, place = waiting.pop()
            if not is_folder:
                self._file(place)
                continue
            try:
                waiting += reversed(self._entries(place))
            except (OSError, InputError) as error:
                reason = cannot_read(place.shown, error) if isinstance(error, OSError) else error
                if not place.below:
                    raise reason from error
                self._skip(place.shown, _why(error) if isinstance(error, OSError) else str(error))

    def _entries(self, folder: _Place) -> list[tuple[bool, _Place]]:
        """What is in a folder that was not met before, each with whether it is a folder itself."""
        identity = _identity(folder.file)
        if identity in self.seen:
            return []
        self.seen.add(identity)
        if self._saved(folder.file, folder.shown, folder.below, folder.group):
            return []
        entries: list[tuple[bool, _Place]] = []
        for entry in sorted(os.scandir(folder.file), key=lambda entry: entry.name):
            below, is_folder = _join(folder.below, entry.name), _is_dir(entry)
            if entry.name.startswith(".") or (is_folder and self._is_excluded(below)):
                continue
            group = _join(folder.group, entry.name) if is_folder else folder.group
            shown = _join(folder.shown, entry.name)
            place = _Place(Path(entry.path), shown, below, group, explicit=False)
            entries.append((is_folder, place))
        return entries

    def _saved(self, folder: Path, shown: str, below: str, group: str) -> bool:
        """Take a folder from `save_to_disk` as one source per split."""
        splits = saved_splits(folder)
        for split in splits or ():
            self._saved_split(folder / split, _join(shown, split), _join(below, split), group)
        return bool(splits)

    def _saved_split(self, folder: Path, shown: str, below: str, group: str) -> None:
        if not self._is_wanted(below or folder.name):
            return
        try:
            files = saved_files(folder, shown)
            size = sum(file.stat().st_size for file in files)
        except (InputError, OSError) as error:
            self._skip(shown, str(error))
            return
        source = Source(
            name=below or _folder_name(folder),
            group=group,
            path=shown,
            format="saved",
            file=folder,
            bytes=size,
        )
        self._add(source, key=os.path.realpath(folder))

    # --- files -------------------------------------------------------------------------------

    def _file(self, place: _Place) -> None:
        if archive_suffix(place.file.name):
            if not self._is_excluded(place.below):
                self._archive(place)
            return
        if not self._is_wanted(place.below):
            return
        try:
            found = self._format_of(place)
            size = _size(place)
        except _Skip as skip:
            self._skip(place.shown, str(skip))
            return
        if found in ("zip", "tar"):
            self._archive(place)
            return
        source = Source(
            name=place.below.removesuffix(known_suffix(place.below)),
            group=place.group,
            path=place.shown,
            format=found,
            file=place.file,
            bytes=size,
        )
        self._add(source, key=os.path.realpath(place.file))

    def _format_of(self, place: _Place) -> str:
        """By force, by suffix, or (for a file that was named) by content; else _Skip says why."""
        named = format_of_name(place.file.name)
        if not place.explicit:
            if place.file.name.lower().startswith(_ABOUT_THE_DATA) and named in (None, "text"):
                raise _Skip("about the data, not data")
            if not _is_regular(place):
                raise _Skip("a pipe or a device")
            start = _start_of(place)
            packed = compression_of(start) is not None
            if named is None and self.options.input_format is None:
                binary = packed or looks_binary(start)
                raise _Skip("binary" if binary else "unknown suffix")
            if named not in ("parquet", "arrow") and not packed and looks_binary(start):
                raise _Skip("binary")
            if _OWN_ARTEFACT.match(start):
                raise _Skip("written by chunkscope itself")
        elif not _is_regular(place):
            # A pipe, such as <(zcat x.gz): looking at it would use it up.
            return self.options.input_format or named or "jsonl"
        elif named is None and self.options.input_format is None:
            return self._sniffed(place)
        else:
            _start_of(place)
        return self.options.input_format or named or "text"

    def _sniffed(self, place: _Place) -> str:
        stream = open_bytes(place.file, shown=place.shown)
        try:
            found = _format_of_start(stream.peek(_SNIFF_BYTES))
        finally:
            stream.close()
        if found is None:
            raise InputError(
                f"cannot tell what {place.shown} is", hint="say so: --input-format jsonl"
            )
        return found

    def _archive(self, place: _Place) -> None:
        key = os.path.realpath(place.file)
        if key in self.seen:
            return
        self.seen.add(key)
        try:
            listed = members(place.file, place.shown)
        except InputError as error:
            if place.explicit:
                raise
            self._skip(place.shown, error.message)
            return
        for member in listed:
            if not _is_hidden(member.name):
                self._member(place, member)

    def _member(self, place: _Place, member: Member) -> None:
        shown = _join(place.shown, member.name)
        below = _join(place.below, member.name)
        found = self.options.input_format or format_of_name(member.name)
        if not self._is_wanted(below):
            return
        name = PurePosixPath(member.name).name.lower()
        if name.startswith(_ABOUT_THE_DATA) and format_of_name(name) in (None, "text"):
            self._skip(shown, "about the data, not data")
        elif archive_suffix(member.name) or found is None or member.problem:
            nested = "an archive inside an archive" if archive_suffix(member.name) else None
            self._skip(shown, member.problem or nested or "unknown suffix")
        else:
            archive_name = place.below.removesuffix(archive_suffix(place.below) or "")
            inner = member.name.removesuffix(known_suffix(member.name))
            source = Source(
                name=_join(archive_name, inner),
                group=_join(place.group, place.file.name),
                path=shown,
                format=found,
                file=place.file,
                member=member.name,
                bytes=member.size,
                offset=member.offset,
            )
            self._add(source, key=f"{os.path.realpath(place.file)}\0{member.name}")

    # --- include and exclude -----------------------------------------------------------------

    def _is_wanted(self, below: str) -> bool:
        wanted = not self.include or any(_matches(below, pattern) for pattern in self.include)
        wanted = wanted and not self._is_excluded(below)
        self.filtered += not wanted
        return wanted

    def _is_excluded(self, below: str) -> bool:
        return any(_matches(below, pattern) for pattern in self.exclude)


class _Skip(Exception):  # noqa: N818  (a way out, not a mistake)
    """This file is left out; the message says why."""


def _matches(below: str, pattern: str) -> bool:
    """Does the path below the root, or the name alone, fit the pattern?"""
    return fnmatchcase(below, pattern) or fnmatchcase(PurePosixPath(below).name, pattern)


def _fitting_below(fixed: Path, pattern: str) -> Iterator[str]:
    """The files below a folder that fit a pattern with `**` in it.

    Each folder is gone through once: Python's own glob follows links round and round.
    """
    given = Path(pattern).parts[len(fixed.parts) :]
    # `**/**` means no more than `**`, but would be tried in all combinations.
    wanted = [p for part, same in groupby(given) for p in ([part] if part == "**" else same)]
    seen: set[str] = set()
    waiting: list[tuple[Path, tuple[str, ...]]] = [(fixed, ())]
    while waiting:
        folder, above = waiting.pop()
        try:
            identity, entries = _identity(folder), list(os.scandir(folder))
        except OSError:
            continue
        if identity in seen:
            continue
        seen.add(identity)
        for entry in entries:
            parts = (*above, entry.name)
            if entry.name.startswith("."):
                continue
            if _is_dir(entry):
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


def _identity(folder: Path) -> str:
    """What a folder is, however many links lead to it; like no path."""
    status = folder.stat()
    return f"{status.st_dev}:{status.st_ino}/"


def _is_regular(place: _Place) -> bool:
    try:
        return stat.S_ISREG(place.file.stat().st_mode)
    except OSError as error:
        raise _cannot_use(place, error) from error


def _cannot_use(place: _Place, error: OSError) -> Exception:
    """A file that was named must be readable; one that was only met is left out."""
    return cannot_read(place.shown, error) if place.explicit else _Skip(_why(error))


def _start_of(place: _Place) -> bytes:
    try:
        with place.file.open("rb") as file:
            return file.read(_SNIFF_BYTES)
    except OSError as error:
        raise _cannot_use(place, error) from error


def _format_of_start(start: bytes) -> str | None:
    """Nothing at all counts as JSON Lines without a line."""
    found = kind_of_bytes(start) if start else "jsonl"
    if found != "text":
        return found
    sample = start.decode("utf-8-sig", errors="replace")
    return "csv" if looks_like_table(sample, cut=len(start) >= _SNIFF_BYTES) else found


def _plain_start(start: bytes) -> bytes:
    """The first bytes with their compression undone, as far as they go."""
    if compression_of(start) is None:
        return start
    try:
        stream = FileStream(io.BytesIO(start), "standard input")
        return decompressed(stream, "standard input").read(_SNIFF_BYTES)
    except InputError:
        return b""


def _why(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, FileNotFoundError):
        return "a link that leads nowhere"
    return (error.strerror or str(error)).lower()


def _exists(path: Path, text: str) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise InputError(f"{text} is a link that leads nowhere", hint="see `ls -l`") from None
        return False
    except (OSError, ValueError) as error:
        raise _cannot_open(text, error) from error
    return True


def _cannot_open(text: str, error: Exception) -> InputError:
    if isinstance(error, ValueError):
        return InputError(f"not a path: {text!r}", hint=_SEARCH_HINT)
    return cannot_read(text, error)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _size(place: _Place) -> int | None:
    """In bytes; None for a pipe, which has none."""
    try:
        status = place.file.stat()
    except OSError as error:
        raise _cannot_use(place, error) from error
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _is_hidden(member: str) -> bool:
    parts = PurePosixPath(member).parts
    return "__MACOSX" in parts or any(part.startswith(".") and part != "." for part in parts)


def _as_typed(text: str) -> str:
    """ "data/" -> "data"; "." -> "", since nobody writes ./x."""
    return "" if text in (".", "./") else text.rstrip("/") or text[:1]


def _folder_name(folder: Path) -> str:
    return Path(os.path.abspath(folder)).name or "/"  # noqa: PTH100  (keeps links as named)


def _fixed_parts(pattern: str) -> Iterator[str]:
    for part in Path(pattern).parent.parts:
        if glob.has_magic(part):
            return
        yield part


def _join(folder: str, name: str) -> str:
    if not folder or not name:
        return folder or name
    return f"{folder.rstrip('/')}/{name}"


def _nothing_found(paths: Sequence[str], search: _Search) -> InputError:
    what = ", ".join(paths) or "nothing"
    reasons = Counter(skip.reason for skip in search.skipped)
    said = [f"{count} skipped ({reason})" for reason, count in reasons.most_common()]
    if search.filtered:
        said.append(f"{search.filtered} left out by --include or --exclude")
    return InputError(
        f"no datasets in {what}: {', '.join(said) or 'there are no files'}",
        hint="it reads jsonl, json, csv, tsv, parquet, arrow, txt and md, also compressed or in a "
        "zip or tar; for another suffix give --input-format",
    )


# --- names -----------------------------------------------------------------------------------


def _named(sources: list[Source], names: Sequence[str]) -> list[Source]:
    if not names:
        return _with_unique_names(sources)
    if len(names) != len(sources):
        raise UsageError(
            f"{len(names)} --name for {len(sources)} datasets",
            hint="give one for each, in order: " + ", ".join(source.name for source in sources),
        )
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"--name {twice[0]} is given twice", hint="names must differ")
    return [
        replace(source, name=printable(name)) for source, name in zip(sources, names, strict=True)
    ]


def _with_unique_names(sources: list[Source]) -> list[Source]:
    """Where names clash: add the suffix, then the parent folder, then count."""
    for longer in (_with_suffix, _with_parent):
        sources = _where_clashing(sources, longer)
    taken: set[str] = set()
    unique = []
    for source in sources:
        name, copy = source.name, 2
        while name in taken:
            name, copy = f"{source.name}#{copy}", copy + 1
        taken.add(name)
        unique.append(replace(source, name=name))
    return unique


def _where_clashing(sources: list[Source], longer: Callable[[Source], str]) -> list[Source]:
    count = Counter(source.name for source in sources)
    return [
        replace(source, name=longer(source)) if count[source.name] > 1 else source
        for source in sources
    ]


def _with_suffix(source: Source) -> str:
    return source.name + known_suffix(source.member or source.path)


def _with_parent(source: Source) -> str:
    """The folder above what the name already says."""
    depth = len(PurePosixPath(source.name).parts)
    where = PurePosixPath(os.path.abspath(source.path) if source.file else source.path)  # noqa: PTH100
    return "/".join([*where.parts[-depth - 1 : -depth], source.name])
