"""From what was named on the command line to the datasets there are.

Order is the order of the arguments, then names sorted; each real file counts once, however many
links lead to it. What is left out of a folder is said, never silently dropped.
"""

import fnmatch
import glob
import io
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from chunkscope.artefacts.note import Note, note
from chunkscope.console import Tell
from chunkscope.errors import InputError, UsageError
from chunkscope.sources.base import (
    DataError,
    ReadOptions,
    Source,
    cannot_read,
    is_remote,
    printable,
    reason_of,
    unique_names,
    without_secrets,
)
from chunkscope.sources.hub import hub_source
from chunkscope.sources.reader import (
    BY_SUFFIX,
    FORMATS,
    READERS,
    START_BYTES,
    format_of_name,
    kind_of_bytes,
)
from chunkscope.sources.remote import explaining, remote_files
from chunkscope.sources.streams import (
    COMPRESSED,
    looks_binary,
    open_archive,
    open_stream,
)
from chunkscope.sources.tables import saved_files

_SEARCH_HINT = "name a file or a folder, a glob in quotes, `-`, s3://bucket/, hf:org/name, or lm-eval:task"
_MOST_SKIPPED = 5  # files that are named
_ABOUT_THE_DATA = re.compile(
    r"(?i)(readme|licen[sc]e|changelog|requirements|data(set)?[_-]?card)(\.md|\.txt|[_-][^.]*(\.md|\.txt)?)?"
    r"|(dataset_(dict|infos?)|(\w+_)?config|tokenizer|vocab|special_tokens_map|added_tokens)\.json"
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
    tell: Tell = lambda _: None,
) -> tuple[list[Source], list[Note]]:
    """All datasets behind `paths`, with unique names, and the files that were left out."""
    formats = sorted({*BY_SUFFIX.values()})  # "saved" and "hub" show by themselves
    if options.input_format and options.input_format not in formats:
        hint = f"one of {', '.join(formats)}"
        raise UsageError(f"unknown input_format: {options.input_format}", hint=hint)
    search = _Search(options.input_format, tuple(include), tuple(exclude), tasks, tell)
    for path in paths:
        search.argument(path)
    sources = search.sources
    if not sources:
        reasons = Counter(skip.values["reason"] for skip in search.skipped)
        parts = [
            f"{count} skipped ({reason})" for reason, count in reasons.most_common()
        ]
        if search.filtered:
            parts.append(f"{search.filtered} left out by include or exclude")
        raise InputError(
            f"no datasets in {', '.join(paths) or 'nothing'}: {', '.join(parts) or 'no files'}",
            hint="it reads jsonl, json, csv, tsv, parquet, arrow, txt, md and Inspect's eval, also "
            "compressed or in a zip or tar; see input_format in `chunkscope help config`",
        )
    if (
        not names
    ):  # where they clash, a dataset's is its path below the folder that all are in
        count = Counter(source.name for source in sources)
        start = os.path.commonprefix([s.path for s in sources]).rfind("/") + 1  # noqa: RUF071
        ends = (s.name if count[s.name] == 1 else s.path[start:] for s in sources)
        names = unique_names(ends, "#")
    elif len(names) != len(sources) or len({*names}) < len(names):
        raise UsageError(
            f"{len(names)} names for {len(sources)} datasets",
            hint="give each its name, in order: "
            + ", ".join(source.name for source in sources),
        )
    for one in search.skipped[:_MOST_SKIPPED]:
        tell(one)
    if more := len(search.skipped[_MOST_SKIPPED:]):
        tell(note("skipped_more", count=more))
    named = zip(sources, map(printable, names), strict=True)
    return [
        s if s.name == name else replace(s, name=name) for s, name in named
    ], search.skipped


@dataclass(slots=True)
class _Search:
    """What was found so far. A file, an archive, a hub dataset and stdin are `taken` once."""

    input_format: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    tasks: TaskSources | None
    tell: Tell
    sources: list[Source] = field(default_factory=list)
    skipped: list[Note] = field(default_factory=list)
    filtered: int = 0
    taken: set[Hashable] = field(default_factory=set)

    def argument(self, text: str) -> None:
        if not text:  # pathlib would take it for the current folder
            raise InputError("a path is empty", hint="was a shell variable not set?")
        if text == "-":
            if sys.stdin is not None and sys.stdin.isatty():
                self.tell(note("reading_terminal"))
            stdin = Source(name="stdin", path="-", is_read_once=True)
            self._add(replace(stdin, format=self.input_format or ""), "-")
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
            siblings: dict[str, Path] = {}
            with suppress(
                OSError
            ):  # a folder that may not be listed, a name too long for any
                siblings = {path.name: path for path in Path(text).parent.glob("*")}
            with (
                explaining(text),
                suppress(FileNotFoundError, NotADirectoryError, ValueError),
            ):
                os.lstat(text)  # in a folder that may not be entered?
            near = get_close_matches(Path(text).name, siblings)
            hint = f"did you mean {siblings[near[0]]}?" if near else _SEARCH_HINT
            raise InputError(f"no such file or folder: {text}", hint=hint)

    def _add(self, source: Source, identity: Hashable) -> None:
        """Unless it was met before."""
        if identity in self.taken:
            return
        self.taken.add(identity)
        texts = (source.name, source.group, source.path)
        if not "".join(texts).isprintable():
            name, group, path = map(printable, texts)
            source = replace(source, name=name, group=group, path=path)
        self.sources.append(source)

    def _refuse(self, shown: str, error: Exception, *, explicit: bool = False) -> None:
        """What was named must be readable; of a folder it is said that it is left out."""
        if explicit:
            raise (
                error if isinstance(error, InputError) else cannot_read(shown, error)
            ) from None
        self._skip(
            "" if isinstance(error, InputError) else shown, reason_of(error)
        )  # ours name it

    def _skip(self, shown: str, reason: str) -> None:
        self.skipped.append(
            note("skipped", file=printable(shown), reason=printable(reason))
        )

    def _remote(self, text: str) -> None:
        """What is behind an address; of a folder or glob what its name tells is data."""
        root, files = remote_files(text)
        if not files:
            shown = printable(without_secrets(text))
            raise InputError(
                f"there are no files in {shown}", hint="check the name or the pattern"
            )
        for url, below, size in files:
            group = _join(root, below.rpartition("/")[0]) if root else ""
            found = {"path": without_secrets(url), "url": url, "bytes": size}
            self._consider(below, url, group=group, explicit=not root, **found)

    def _glob(self, text: str) -> None:
        """What matches counts as found in the folder before the first `*`."""
        root = str(
            Path(*takewhile(lambda part: not glob.has_magic(part), Path(text).parts))
        )
        matches = sorted(glob.iglob(text, recursive=True), key=str)  # noqa: PTH207
        if not matches:
            raise InputError(f"nothing matches {text}", hint=_SEARCH_HINT)
        for path in matches:
            below = os.path.relpath(path, root)
            if not os.path.isdir(path):  # noqa: PTH112
                self._below(root, [below])
            elif not path.endswith("/"):  # the place where `**` begins
                self._folder(root, below)

    def _folder(self, root: str, inner: str = "") -> None:
        """All that is in a folder, or in one inside it, sorted."""
        entries, seen = (
            list[str](),
            set[Hashable](),
        )  # a link may lead back to a folder above

        def refuse(error: OSError) -> None:
            self._refuse(error.filename, error, explicit=not seen)

        for folder, folders, names in os.walk(
            _join(root, inner), onerror=refuse, followlinks=True
        ):
            below, status = folder[len(root) :].strip("/"), os.stat(folder)  # noqa: PTH116
            if {"state.json", "dataset_info.json"} <= {
                *names
            }:  # what `save_to_disk` wrote
                entries.append(below)
                folders.clear()
            elif (status.st_dev, status.st_ino) in seen:
                folders.clear()
            else:
                seen.add((status.st_dev, status.st_ino))
                entries += [_join(below, name) for name in names if name[0] != "."]
                folders[:] = [name for name in folders if name[0] != "."]
        self._below(root, sorted(entries, key=lambda below: below.split("/")))

    def _below(self, root: str, entries: Iterable[str]) -> None:
        root_name = os.path.basename(os.path.abspath(root)) or "/"  # noqa: PTH100, PTH119
        for below in entries:
            path = _join(root, below)
            shown = below if root in (".", "./") else path  # x, not ./x
            group = _join(root_name, below.rpartition("/")[0])
            self._file(path, shown, below or root_name, group, explicit=not below)

    def _file(
        self, path: str, shown: str, below: str, group: str, *, explicit: bool = False
    ) -> None:
        """A file on disk, whose size is None for a pipe; or a saved dataset's folder."""
        found: dict[str, Any] = {"group": group, "path": shown, "file": Path(path)}
        try:
            status = os.stat(path)  # noqa: PTH116
            identity = status.st_dev, status.st_ino
            if not stat.S_ISDIR(status.st_mode):
                size = status.st_size if stat.S_ISREG(status.st_mode) else None
                found |= {"bytes": size, "is_read_once": size is None}
                self._consider(below, identity, explicit=explicit, **found)
            elif self._is_wanted(below):
                size = sum(
                    file.stat().st_size for file in saved_files(Path(path), shown)
                )
                self._add(
                    Source(name=below, format="saved", bytes=size, **found), identity
                )
        except (OSError, ValueError, InputError) as error:
            self._refuse(shown, error, explicit=explicit)

    def _consider(
        self, below: str, identity: Hashable, *, explicit: bool = False, **found: Any
    ) -> None:
        """Take what is data, look into archives, and leave out or refuse what is neither."""
        kind, suffix = format_of_name(below)
        is_archive = kind == "archive" and "member" not in found
        if not self._is_wanted(below, is_archive=is_archive):
            return
        kind = kind if is_archive else self.input_format or kind
        # Its name is without what says how to read it; the logs of a harness have their task's.
        folders, slash, last = below.removesuffix(suffix).rpartition("/")
        if slash:  # some may be archives
            folders = "/".join(
                p.removesuffix(format_of_name(p)[1]) for p in folders.split("/")
            )
        matches = (one.task_name.fullmatch(last) for one in FORMATS if one.task_name)
        task = next((match["task"] for match in matches if match), last)
        source = Source(name=f"{folders}{slash}{task}", format=kind, **found)
        try:
            if explicit and not kind and not source.is_read_once:
                with open_stream(source) as stream:
                    is_archive = kind_of_bytes(stream.peek(START_BYTES)) in (
                        "zip",
                        "tar",
                    )
            if is_archive:
                self._archive(source, below, identity)
            elif not explicit and (reason := _why_no_data(source, below)):
                self._skip(source.path, reason)
            else:
                self._add(source, identity)
        except InputError as error:
            if is_archive and not explicit and isinstance(error, DataError):
                self._add(
                    source, source.path
                )  # data that cannot be read, as a broken table is
            else:
                self._refuse(source.path, error, explicit=explicit)

    def _archive(self, archive: Source, below: str, identity: Hashable) -> None:
        """Each of its members is a source, unless a harness knows the archive as a whole."""
        if identity in self.taken:
            return
        self.taken.add(identity)
        sizes = open_archive(archive).sizes
        if not sizes.keys().isdisjoint(("[Content_Types].xml", "mimetype")):
            raise InputError(
                f"{archive.path} is an Office file", hint="save its table as .csv"
            )
        for one in FORMATS:
            if one.claims_members and one.claims_members(sizes):
                if self._is_wanted(below):
                    self._add(
                        replace(archive, format=one.name), (archive.path, one.name)
                    )
                return
        group = _join(archive.group, below.rpartition("/")[2])
        for name, size in sizes.items():
            shown, parts = _join(archive.path, name), PurePosixPath(name).parts
            if "__MACOSX" in parts or any(
                p[0] == "." and p not in (".", "..") for p in parts
            ):
                continue
            if ".." in parts:
                self._skip(shown, "its path points outside the archive")
            else:
                found: dict[str, Any] = {
                    "file": archive.file,
                    "url": archive.url,
                    "member": name,
                }
                found |= {"group": group, "path": shown, "bytes": size}
                self._consider(_join(below, name), shown, **found)

    def _is_wanted(self, below: str, *, is_archive: bool = False) -> bool:
        """Whether a path is included, and neither it nor a folder it is in is excluded. Of an
        archive, its members may be included.
        """
        is_included = (
            is_archive or not self.include or any(_fits(below, p) for p in self.include)
        )
        places = (
            (below, *map(str, list(PurePosixPath(below).parents)[:-1]))
            if self.exclude
            else ()
        )
        is_excluded = any(_fits(place, p) for p in self.exclude for place in places)
        self.filtered += is_excluded or not is_included
        return is_included and not is_excluded


def _why_no_data(source: Source, below: str) -> str | None:
    """What lies in a folder or an archive beside the data."""
    if _ABOUT_THE_DATA.fullmatch(below.rpartition("/")[2]):
        return "about the data or a model"
    if source.format == "archive":
        return "an archive inside an archive"
    if source.file is not None and source.member is None:
        if source.bytes is None:
            return "a pipe or a device"
        with io.FileIO(
            source.file
        ) as file:  # not by pathlib, which takes longer: files are many
            start = file.read(START_BYTES)
        if looks_binary(start) and not COMPRESSED.match(start):
            form = READERS.get(source.format)
            is_log = (
                kind_of_bytes(start) == "zip" and form is not None and form.task_name
            )
            if not is_log and not (form and form.is_columnar):
                return "binary"
        if _ARTEFACT.match(start):
            return "written by chunkscope itself"
        for one in FORMATS:
            if one.skip_reason and (reason := one.skip_reason(source.file, start)):
                return reason
    return None if source.format else "unknown suffix"


def _fits(below: str, pattern: str) -> bool:
    """Does the path below the root, or the name alone, fit the pattern? `**/` may be no folder."""
    names, patterns = (
        (below, below.rpartition("/")[2]),
        (pattern, pattern.replace("**/", "")),
    )
    return any(fnmatch.fnmatchcase(name, one) for name in names for one in patterns)


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder and name else folder or name
