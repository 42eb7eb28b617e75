"""From what was named on the command line to the datasets there are.

Order is the order of the arguments, then names sorted; each real file counts once, however many
links lead to it. What is left out of a folder is said, never silently dropped.
"""

import fnmatch
import glob
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath

from chunkscope.console import say
from chunkscope.errors import InputError, UsageError
from chunkscope.sources.base import (
    ReadOptions,
    Skipped,
    Source,
    cannot_read,
    is_remote,
    printable,
    unique_names,
    without_secrets,
)
from chunkscope.sources.hub import hub_source
from chunkscope.sources.reader import (
    CLAIMS,
    READERS,
    START_BYTES,
    format_of_name,
    input_formats,
    kind_of_bytes,
)
from chunkscope.sources.remote import remote_files
from chunkscope.sources.streams import (
    COMPRESSED,
    decompressed,
    looks_binary,
    open_archive,
    open_raw,
)
from chunkscope.sources.tables import saved_files

_SEARCH_HINT = (
    "name a file or a folder, a glob in quotes, `-`, s3://bucket/, hf:org/name, or lm-eval:task"
)
_ABOUT_THE_DATA = re.compile(
    r"(readme|licen[sc]e|changelog)(\.md|\.txt|[_-][^.]*(\.md|\.txt)?)?|dataset_dict\.json",
    re.IGNORECASE,
)
_ARTEFACT = re.compile(rb'\s*\{\s*"schema":\s*"chunkscope/')


# The datasets that a task would send, given its address, such as `lm-eval:gsm8k`; else None.
TaskSources = Callable[[str], list[Source] | None]


def discover(
    paths: Sequence[str],
    *,
    names: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    options: ReadOptions,
    tasks: TaskSources | None = None,
) -> tuple[list[Source], list[Skipped]]:
    """All datasets behind `paths`, with unique names, and the files that were left out."""
    if options.input_format and options.input_format not in input_formats():
        raise UsageError(
            f"unknown input_format: {options.input_format}",
            hint=f"one of {', '.join(input_formats())}",
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
    tasks: TaskSources | None
    sources: list[Source] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    filtered: int = 0
    taken: set[Hashable] = field(default_factory=set)

    def argument(self, text: str) -> None:
        if not text:  # pathlib would take it for the current folder
            raise InputError("a path is empty", hint="was a shell variable not set?")
        if text == "-":
            if sys.stdin is not None and sys.stdin.isatty():
                say("reading from the terminal: type or paste the data, then Ctrl-D")
            self._add(Source(name="stdin", path="-", format=self.input_format or ""), "-")
        elif os.path.isdir(text):  # noqa: PTH112
            self._folder(text)
        elif os.path.lexists(text):
            self._file(text, text, os.path.basename(text), "", explicit=True)  # noqa: PTH119
        elif is_remote(text):
            self._remote(text)
        elif text.startswith("hf:"):
            self._add(hub_source(text), text)
        elif self.tasks and (sources := self.tasks(text)) is not None:
            for source in sources:
                self._add(source, (text, source.name))
        elif glob.has_magic(text):
            self._glob(text)
        else:
            siblings = {path.name: path for path in Path(text).parent.glob("*")}
            near = get_close_matches(Path(text).name, siblings, n=1)
            hint = f"did you mean {siblings[near[0]]}?" if near else _SEARCH_HINT
            raise InputError(f"no such file or folder: {text}", hint=hint)

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

    def _refuse(self, shown: str, error: Exception | str, *, explicit: bool = False) -> None:
        """What was named must be readable; of a folder it is said that it is left out."""
        if explicit and isinstance(error, Exception):
            raise error
        reason = str(error).removeprefix(f"cannot read {shown}: ")
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
            place = partial(Source, group=group, path=shown, file=None, url=url, bytes=size)
            self._consider(place, below, url, explicit=not root)

    def _glob(self, text: str) -> None:
        """What matches counts as found in the folder before the first `*`."""
        parts = Path(text).parts
        depth = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        root = str(Path(*parts[:depth]))
        matches = sorted(glob.iglob(text, recursive=True), key=str)  # noqa: PTH207
        if not matches:
            raise InputError(f"nothing matches {text}", hint=_SEARCH_HINT)
        for path in matches:
            below = os.path.relpath(path, root)
            folders = map(str, PurePosixPath(below).parents)
            if not all(self._is_wanted(folder, of_all=True) for folder in folders):
                self.filtered += 1
            elif not os.path.isdir(path):  # noqa: PTH112
                self._below(root, _name_of(root), below, is_saved=False)
            elif not path.endswith("/"):  # the place where `**` begins
                self._folder(root, below)

    def _folder(self, root: str, inner: str = "") -> None:
        """All that is in a folder, or in one inside it, sorted."""
        start, root_name = _join(root, inner), _name_of(root)
        entries: list[tuple[str, bool]] = []
        seen: set[Hashable] = set()  # a link may lead back to a folder above

        def refuse(error: OSError) -> None:
            self._refuse(error.filename, cannot_read(error.filename, error), explicit=not seen)

        for folder, folders, names in os.walk(start, onerror=refuse, followlinks=True):
            below, status = folder[len(root) :].strip("/"), os.stat(folder)  # noqa: PTH116
            is_saved = {"state.json", "dataset_info.json"} <= {*names}
            if is_saved or (status.st_dev, status.st_ino) in seen:
                entries += [(below, True)] if is_saved else []
                folders.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            entries += [(_join(below, name), False) for name in names if name[0] != "."]
            wanted = (n for n in folders if self._is_wanted(_join(below, n), of_all=True))
            folders[:] = [name for name in wanted if name[0] != "."]
        for below, is_saved in sorted(entries, key=lambda entry: entry[0].split("/")):
            self._below(root, root_name, below, is_saved=is_saved)

    def _below(self, root: str, root_name: str, below: str, *, is_saved: bool) -> None:
        """A file below a folder, or what `save_to_disk` wrote: a dataset, or a split of one."""
        path, group = _join(root, below), _join(root_name, below.rpartition("/")[0])
        shown = below if root in (".", "./") else path  # x, not ./x
        if not is_saved:
            self._file(path, shown, below, group)
        elif self._is_wanted(name := below or root_name):
            place = Source(path=shown, name=name, group=group, format="saved", file=Path(path))
            try:
                size = sum(file.stat().st_size for file in saved_files(Path(path), shown))
                self._add(replace(place, bytes=size), os.path.realpath(path))
            except (InputError, OSError) as error:
                self._refuse(shown, error, explicit=not below)

    # --- files -------------------------------------------------------------------------------

    def _file(
        self, path: str, shown: str, below: str, group: str, *, explicit: bool = False
    ) -> None:
        """A file on disk; its size is None for a pipe or a device."""
        try:
            status = os.stat(path)  # noqa: PTH116
        except (OSError, ValueError) as error:
            self._refuse(shown, cannot_read(shown, error), explicit=explicit)
            return
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        place = partial(Source, group=group, path=shown, file=Path(path), bytes=size)
        self._consider(place, below, (status.st_dev, status.st_ino), explicit=explicit)

    def _consider(
        self,
        place: Callable[..., Source],
        below: str,
        identity: Hashable,
        *,
        explicit: bool = False,
        in_archive: bool = False,
    ) -> None:
        """Take what is data, look into archives, and leave out or refuse what is neither."""
        kind, suffix = format_of_name(below)
        is_archive = kind == "archive" and not in_archive
        if not self._is_wanted(below, of_all=is_archive):
            return
        kind = kind if is_archive else self.input_format or kind
        source = place(name=_name(below, suffix), format=kind)
        try:
            if not explicit and not is_archive:
                _refuse_other_than_data(source, below)
            elif not kind and not source.is_read_once:
                with decompressed(open_raw(source), source.path) as stream:
                    is_archive = kind_of_bytes(stream.peek(START_BYTES)) in ("zip", "tar")
            if is_archive:
                self._archive(source, below, identity)
            else:
                self._add(source, identity)
        except InputError as error:
            self._refuse(source.path, error, explicit=explicit)

    def _archive(self, archive: Source, below: str, identity: Hashable) -> None:
        """Each of its members is a source, unless a harness knows the archive as a whole."""
        if identity in self.taken:
            return
        self.taken.add(identity)
        members = open_archive(archive).members()
        names = [name for name, _ in members]
        for one in CLAIMS:
            if one.claims_members and one.claims_members(names):
                if self._is_wanted(below):
                    self._add(replace(archive, format=one.name), (archive.path, one.name))
                return
        last = {name: place for place, name in enumerate(names)}
        group = _join(archive.group, below.rpartition("/")[2])
        for place, (name, size) in enumerate(members):
            shown, parts = _join(archive.path, name), PurePosixPath(name).parts
            if "__MACOSX" in parts or any(p[0] == "." and p not in (".", "..") for p in parts):
                continue
            if ".." in parts:
                self._refuse(shown, "its path leads out of the archive")
            elif last[name] != place:  # as it happens when an archive is unpacked
                self._refuse(shown, "a later file of the archive has the same name")
            else:
                inside = partial(replace, archive, group=group, path=shown, member=name, bytes=size)
                self._consider(inside, _join(below, name), shown, in_archive=True)

    # --- include and exclude -----------------------------------------------------------------

    def _is_wanted(self, below: str, *, of_all: bool = False) -> bool:
        """Whether a path is included, of folders and archives any, and is not excluded."""
        is_wanted = of_all or not self.include or any(_fits(below, p) for p in self.include)
        is_wanted = is_wanted and not any(_fits(below, pattern) for pattern in self.exclude)
        self.filtered += not is_wanted and not of_all
        return is_wanted


def _refuse_other_than_data(source: Source, below: str) -> None:
    """What lies in a folder or an archive beside the data."""
    if _ABOUT_THE_DATA.fullmatch(below.rpartition("/")[2]):
        raise InputError("about the data, not data")
    if source.format == "archive":
        raise InputError("an archive inside an archive")
    if source.file is not None and source.member is None:
        if source.bytes is None:
            raise InputError("a pipe or a device")
        try:  # not by pathlib and io, which take longer: files are many
            descriptor = os.open(source.file, os.O_RDONLY)
            start = os.read(descriptor, START_BYTES)
            os.close(descriptor)
        except OSError as error:
            raise cannot_read(source.path, error) from error
        if looks_binary(start) and not COMPRESSED.match(start):
            form = READERS.get(source.format)
            is_log = kind_of_bytes(start) == "zip" and form is not None and form.task_name
            if not is_log and not (form and form.is_columnar):
                raise InputError("binary")
        if _ARTEFACT.match(start):
            raise InputError("written by chunkscope itself")
        for one in CLAIMS:
            if one.skip_reason and (reason := one.skip_reason(source.file, start)):
                raise InputError(reason)
    if not source.format:
        raise InputError("unknown suffix")


def _fits(below: str, pattern: str) -> bool:
    """Does the path below the root, or the name alone, fit the pattern?"""
    matches = _glob_matcher(pattern)
    return bool(matches(below) or matches(below.rpartition("/")[2]))


@lru_cache
def _glob_matcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """`*` is any characters, also of folders; `**/` is any folders or none."""
    translated = fnmatch.translate(pattern.replace("**/", "\0"))
    return re.compile(translated.replace("\0", "(?:.*/)?")).match


# --- names -----------------------------------------------------------------------------------


def _name(below: str, suffix: str) -> str:
    """Without what says how to read it; the logs of a harness by their task."""
    folders, slash, last = below.removesuffix(suffix).rpartition("/")
    if slash:  # some may be archives
        folders = "/".join(p.removesuffix(format_of_name(p)[1]) for p in folders.split("/"))
    matches = (one.task_name.fullmatch(last) for one in CLAIMS if one.task_name)
    task = next(filter(None, matches), None)
    return f"{folders}{slash}{task['task'] if task else last}"


def _named(sources: list[Source], names: Sequence[str]) -> list[Source]:
    """The sources with the names that were given, or else with names that differ: where they
    clash, a dataset's path is its name.
    """
    if not names:
        count = Counter(source.name for source in sources)
        names = [s.name if count[s.name] == 1 else s.path for s in sources]
        if len({*names}) < len(names):
            names = unique_names(names, "#")
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


def _name_of(root: str) -> str:
    return os.path.basename(os.path.abspath(root)) or "/"  # noqa: PTH100, PTH119


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
