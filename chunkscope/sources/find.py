"""From what was named on the command line to the datasets there are.

Order is the order of the arguments, then names sorted. Each real file counts once,
however many links lead to it. What is left out of a folder is said, never silently
dropped.
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
from pathlib import Path, PurePosixPath

from chunkscope.artefacts.note import Note, note
from chunkscope.console import Tell
from chunkscope.errors import InputError, UsageError
from chunkscope.sources.archive import open_archive
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
from chunkscope.sources.columnar import saved_files
from chunkscope.sources.formats import FORMATS, LOGS, format_of_name
from chunkscope.sources.gather import gathered
from chunkscope.sources.hub import hub_source
from chunkscope.sources.input import START_BYTES, kind_of_bytes
from chunkscope.sources.open import compression, looks_binary, open_stream
from chunkscope.sources.remote import explaining, remote_files

_SEARCH_HINT = (
    "name a file or a folder, a glob in quotes, `-`, s3://bucket/, hf:org/name, or "
    "lm-eval:task"
)
_MOST_SKIPPED = 5  # files that are named
# README.md, LICENSE-mit.txt, dataset_infos.json, tokenizer.json, ...
_ABOUT_TEXT = re.compile(
    r"(?i)(readme|licen[sc]e|changelog|requirements|data(set)?[_-]?card)"
    r"(\.md|\.txt|[_-][^.]*(\.md|\.txt)?)?"
)
_ABOUT_JSON = re.compile(
    r"(?i)(dataset_(dict|infos?)|(\w+_)?config|tokenizer|vocab|special_tokens_map"
    r"|added_tokens)\.json"
)
_ARTEFACT = re.compile(rb'\s*\{\s*"schema":\s*"chunkscope/')


# The datasets that a task sends, given its address, such as `lm-eval:gsm8k`; else None.
TaskSources = Callable[[str], list[Source] | None]


def discover(  # noqa: PLR0913  (what can be said about a search)
    paths: Sequence[str],
    *,
    options: ReadOptions,
    names: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    tasks: TaskSources | None = None,
    tell: Tell = lambda _: None,
) -> tuple[list[Source], list[Note]]:
    """The datasets behind paths, with unique names, and what was left out."""
    _check_format(options.input_format)
    search = Search(
        input_format=options.input_format,
        filter=Filter(tuple(include), tuple(exclude)),
        tasks=tasks,
        tell=tell,
    )
    for path in paths:
        search.argument(path)
    if not search.sources:
        raise _nothing_found(paths, search)
    result = gathered(search.sources)
    search.sources = result.sources
    search.skipped += result.skipped
    for skip in search.skipped[:_MOST_SKIPPED]:
        tell(skip)
    unnamed = len(search.skipped) - _MOST_SKIPPED
    if unnamed > 0:
        tell(note("skipped_more", count=unnamed))
    return _named(search.sources, names), search.skipped


def _check_format(name: str | None) -> None:
    known = sorted(form.name for form in FORMATS.values() if form.suffixes)
    if name and name not in known:
        hint = f"one of {', '.join(known)}"
        raise UsageError(f"unknown --input-format: {name}", hint=hint)


def _nothing_found(paths: Sequence[str], search: "Search") -> InputError:
    reasons = Counter(str(skip.values["reason"]) for skip in search.skipped)
    parts = [f"{count} skipped ({reason})" for reason, count in reasons.most_common()]
    if search.filter.rejected:
        parts.append(f"{search.filter.rejected} left out by include or exclude")
    where = ", ".join(paths) or "nothing"
    return InputError(
        f"no datasets in {where}: {', '.join(parts) or 'no files'}",
        hint="it reads jsonl, json, csv, tsv, parquet, arrow, txt, md and Inspect's "
        "eval, also compressed or in a zip or tar; --input-format reads other "
        "suffixes",
    )


def _named(sources: list[Source], names: Sequence[str]) -> list[Source]:
    """The sources with the names they were given, or else unique ones."""
    if not names:
        names = _unique_names(sources)
    elif len(names) != len(sources) or len(set(names)) < len(names):
        order = ", ".join(source.name for source in sources)
        raise UsageError(
            f"{len(names)} names for {len(sources)} datasets",
            hint=f"give each its name, in order: {order}",
        )
    named = []
    for source, name in zip(sources, names, strict=True):
        is_named = source.name == name
        named.append(source if is_named else replace(source, name=printable(name)))
    return named


def _unique_names(sources: list[Source]) -> list[str]:
    """Where names clash, a dataset's is its path below the folder that all are in."""
    counts = Counter(source.name for source in sources)
    common = os.path.commonprefix([source.path for source in sources])  # noqa: RUF071
    start = common.rfind("/") + 1
    names = []
    for source in sources:
        is_unique = counts[source.name] == 1
        names.append(source.name if is_unique else source.path[start:])
    return unique_names(names, "#")


@dataclass(slots=True)
class Filter:
    """Patterns of what to include and exclude; counts what they reject."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    rejected: int = 0

    def accepts(self, below: str, *, is_archive: bool = False) -> bool:
        """Whether a path is included, and neither it nor a folder of it is excluded.

        Of an archive, the members may be included.
        """
        accepted = is_archive or not self.include or _fits_any(below, self.include)
        if self.exclude:
            for place in (below, *_folders_of(below)):
                if _fits_any(place, self.exclude):
                    accepted = False
        if not accepted:
            self.rejected += 1
        return accepted


def _folders_of(below: str) -> list[str]:
    return [str(folder) for folder in PurePosixPath(below).parents][:-1]


def _fits_any(below: str, patterns: Sequence[str]) -> bool:
    """Whether the path below the root, or the name alone, fits a pattern.

    `**/` may stand for no folder at all.
    """
    name = below.rpartition("/")[2]
    for pattern in patterns:
        for form in (pattern, pattern.replace("**/", "")):
            if fnmatch.fnmatchcase(below, form) or fnmatch.fnmatchcase(name, form):
                return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A file that may be a dataset or an archive: on disk, far away, or a member.

    `below` is its path below what was named, by which filters and names go. `is_named`
    says that it was named by itself, and so must be readable.
    """

    source: Source  # without a name and a format
    below: str
    identity: Hashable
    is_named: bool = False


@dataclass(slots=True, kw_only=True)
class Search:
    """What was found so far. Files, archives, hub datasets and stdin are taken once."""

    input_format: str | None
    filter: Filter
    tasks: TaskSources | None
    tell: Tell
    sources: list[Source] = field(default_factory=list)
    skipped: list[Note] = field(default_factory=list)
    taken: set[Hashable] = field(default_factory=set)

    def argument(self, text: str) -> None:
        if not text:  # pathlib would take it for the current folder
            raise InputError("a path is empty", hint="was a shell variable not set?")
        if text == "-":
            self._stdin()
        elif os.path.isdir(text):  # noqa: PTH112  (pathlib raises for a closed folder)
            self._folder(text)
        elif os.path.lexists(text):
            self._file(text, text, Path(text).name, "", is_named=True)
        elif is_remote(text):
            self._remote(text)
        elif text.startswith("hf:"):
            self._add(hub_source(text), text)
        elif not self._task(text):
            if not glob.has_magic(text):
                raise _no_such_file(text)
            self._glob(text)

    # --- where files are --------------------------------------------------------------

    def _stdin(self) -> None:
        if sys.stdin is not None and sys.stdin.isatty():
            self.tell(note("reading_terminal"))
        form = self.input_format or ""
        self._add(Source(name="stdin", path="-", format=form, is_read_once=True), "-")

    def _task(self, text: str) -> bool:
        """Whether it is a harness's task, whose sources are then added."""
        sources = self.tasks(text) if self.tasks is not None else None
        for source in sources or ():
            self._add(source, (text, source.name))
        return sources is not None

    def _remote(self, address: str) -> None:
        found = remote_files(address)
        if not found.files:
            shown = printable(without_secrets(address))
            raise InputError(
                f"there are no files in {shown}", hint="check the name or the pattern"
            )
        for file in found.files:
            group = ""
            if found.folder:
                group = _join(found.folder, file.below.rpartition("/")[0])
            source = Source(
                path=without_secrets(file.url),
                url=file.url,
                bytes=file.bytes,
                group=group,
            )
            candidate = Candidate(
                source=source,
                below=file.below,
                identity=file.url,
                is_named=not found.folder,
            )
            self._consider(candidate)

    def _glob(self, pattern: str) -> None:
        """What matches counts as found in the folder before the first `*`."""
        fixed = Path()
        for part in Path(pattern).parts:
            if glob.has_magic(part):
                break
            fixed /= part
        root = str(fixed)
        matches = sorted(glob.iglob(pattern, recursive=True))  # noqa: PTH207
        if not matches:
            raise InputError(f"nothing matches {pattern}", hint=_SEARCH_HINT)
        for path in matches:
            below = os.path.relpath(path, root)
            if not Path(path).is_dir():
                self._below(root, [below])
            elif not path.endswith("/"):  # the place where `**` begins
                self._folder(root, below)

    def _folder(self, root: str, inner: str = "") -> None:
        """All that is in a folder, or in one inside it, sorted."""
        top = _join(root, inner)
        entries: list[str] = []
        seen: set[Hashable] = set()  # a link may lead back to a folder above

        def refuse(error: OSError) -> None:
            self._refuse(error.filename, error, is_named=not seen)

        for folder, folders, names in os.walk(top, onerror=refuse, followlinks=True):
            below = folder[len(root) :].strip("/")
            status = Path(folder).stat()
            identity = status.st_dev, status.st_ino
            if "state.json" in names and "dataset_info.json" in names:
                entries.append(below)  # what `save_to_disk` wrote
                folders.clear()
            elif identity in seen:
                folders.clear()
            else:
                seen.add(identity)
                entries += [_join(below, name) for name in names if name[0] != "."]
                folders[:] = [name for name in folders if name[0] != "."]
        self._below(root, sorted(entries, key=lambda entry: entry.split("/")))

    def _below(self, root: str, entries: Iterable[str]) -> None:
        """Files, and folders of saved datasets, by their path below a folder."""
        root_name = Path(os.path.abspath(root)).name or "/"  # noqa: PTH100
        for below in entries:
            path = _join(root, below)
            shown = below if root in (".", "./") else path  # x, not ./x
            group = _join(root_name, below.rpartition("/")[0])
            self._file(path, shown, below or root_name, group, is_named=not below)

    def _file(
        self, path: str, shown: str, below: str, group: str, *, is_named: bool
    ) -> None:
        """A file on disk, a pipe (whose size is None), or a saved dataset's folder."""
        try:
            status = os.stat(path)  # noqa: PTH116  (pathlib takes longer)
            identity = status.st_dev, status.st_ino
            is_folder = stat.S_ISDIR(status.st_mode)
            is_file = stat.S_ISREG(status.st_mode)
            source = Source(
                path=shown,
                group=group,
                file=Path(path),
                bytes=status.st_size if is_file else None,
                is_read_once=not is_file and not is_folder,
            )
            if is_folder:
                self._saved_dataset(source, below, identity)
                return
            candidate = Candidate(
                source=source, below=below, identity=identity, is_named=is_named
            )
            self._consider(candidate)
        except (OSError, ValueError, InputError) as error:
            self._refuse(shown, error, is_named=is_named)

    def _saved_dataset(self, source: Source, below: str, identity: Hashable) -> None:
        if source.file is None or not self.filter.accepts(below):
            return
        files = saved_files(source.file, source.path)
        size = sum(file.stat().st_size for file in files)
        saved = replace(source, name=below, format="saved", bytes=size)
        self._add(saved, identity)

    # --- what they are ----------------------------------------------------------------

    def _consider(self, candidate: Candidate) -> None:
        """Take what is data, look into archives, leave out or refuse anything else."""
        named = format_of_name(candidate.below)
        is_member = candidate.source.member is not None
        is_archive = named.format == "archive" and not is_member
        if not self.filter.accepts(candidate.below, is_archive=is_archive):
            return
        form = named.format
        if self.input_format and not is_archive:
            form = self.input_format
        name = _dataset_name(candidate.below, named.suffix)
        source = replace(candidate.source, name=name, format=form)
        try:
            if candidate.is_named and not form and not source.is_read_once:
                is_archive = _is_archive_inside(source)
            if is_archive:
                self._archive(source, candidate)
                return
        except DataError:
            if candidate.is_named:
                raise
            self._add(source, source.path)  # it will fail with this error
            return
        reason = None if candidate.is_named else _why_no_data(source, candidate.below)
        if reason is not None:
            self._skip(source.path, reason)
        else:
            self._add(source, candidate.identity)

    def _archive(self, archive: Source, candidate: Candidate) -> None:
        """Each member is a source, unless the archive as a whole is a harness's log."""
        if candidate.identity in self.taken:
            return
        sizes = open_archive(archive).sizes
        for log in LOGS:
            if log.claims_members is not None and log.claims_members(sizes):
                if self.filter.accepts(candidate.below):
                    self._add(replace(archive, format=log.name), candidate.identity)
                return
        self.taken.add(candidate.identity)
        group = _join(archive.group, candidate.below.rpartition("/")[2])
        for name, size in sizes.items():
            shown = _join(archive.path, name)
            parts = PurePosixPath(name).parts
            if "__MACOSX" in parts or any(_is_hidden(part) for part in parts):
                continue
            if ".." in parts:
                self._skip(shown, "its path points outside the archive")
                continue
            member = replace(archive, path=shown, group=group, member=name, bytes=size)
            below = _join(candidate.below, name)
            self._consider(Candidate(source=member, below=below, identity=shown))

    # --- what comes of it -------------------------------------------------------------

    def _add(self, source: Source, identity: Hashable) -> None:
        """Unless it was met before."""
        if identity in self.taken:
            return
        self.taken.add(identity)
        if not f"{source.name}{source.group}{source.path}".isprintable():
            source = replace(
                source,
                name=printable(source.name),
                group=printable(source.group),
                path=printable(source.path),
            )
        self.sources.append(source)

    def _refuse(self, shown: str, error: Exception, *, is_named: bool) -> None:
        """What was named must be readable; of a folder it is said to be left out."""
        is_ours = isinstance(error, InputError)
        if is_named:
            raise (error if is_ours else cannot_read(shown, error)) from None
        self._skip("" if is_ours else shown, reason_of(error))  # ours name the file

    def _skip(self, shown: str, reason: str) -> None:
        skip = note("skipped", file=printable(shown), reason=printable(reason))
        self.skipped.append(skip)


def _no_such_file(text: str) -> InputError:
    """The error for a path that does not exist, with one that is called alike."""
    siblings: dict[str, Path] = {}
    with suppress(OSError):  # a folder that may not be listed, or too long a name
        siblings = {path.name: path for path in Path(text).parent.iterdir()}
    is_missing = (FileNotFoundError, NotADirectoryError, ValueError)
    with explaining(text), suppress(*is_missing):
        os.lstat(text)  # fails otherwise in a folder that may not be entered
    near = get_close_matches(Path(text).name, siblings)
    hint = f"did you mean {siblings[near[0]]}?" if near else _SEARCH_HINT
    return InputError(f"no such file or folder: {text}", hint=hint)


def _dataset_name(below: str, suffix: str) -> str:
    """The path without what says how to read it; of logs, with their task's name."""
    folders, slash, last = below.removesuffix(suffix).rpartition("/")
    if slash:  # some of them may be archives
        parts = [
            part.removesuffix(format_of_name(part).suffix)
            for part in folders.split("/")
        ]
        folders = "/".join(parts)
    for log in LOGS:
        match = log.task_name.fullmatch(last) if log.task_name else None
        if match is not None:
            last = match["task"]
            break
    return f"{folders}{slash}{last}"


def _is_archive_inside(source: Source) -> bool:
    """Whether the content of a file without a telling name is an archive."""
    with open_stream(source) as stream:
        return kind_of_bytes(stream.peek(START_BYTES)[:START_BYTES]) in ("zip", "tar")


def _why_no_data(source: Source, below: str) -> str | None:
    """Why a file that lies in a folder or an archive is no data; None if it may be."""
    name = below.rpartition("/")[2]
    if _ABOUT_TEXT.fullmatch(name) or _ABOUT_JSON.fullmatch(name):
        return "about the data or a model"
    if source.format == "archive":
        return "an archive inside an archive"
    if source.file is not None and source.member is None:
        if source.bytes is None:
            return "a pipe or a device"
        reason = _why_no_data_inside(source, source.file)
        if reason is not None:
            return reason
    return None if source.format else "unknown suffix"


def _why_no_data_inside(source: Source, file: Path) -> str | None:
    """The same, by the first bytes of a file."""
    with io.FileIO(file) as opened:  # pathlib takes longer, and files are many
        start = opened.read(START_BYTES)
    form = FORMATS.get(source.format)
    may_be_binary = form is not None and (form.is_columnar or form.is_archive)
    if looks_binary(start) and compression(start) is None and not may_be_binary:
        return "binary"
    if _ARTEFACT.match(start):
        return "written by chunkscope itself"
    for log in LOGS:
        reason = log.skip_reason(file, start) if log.skip_reason else None
        if reason is not None:
            return reason
    return None


def _is_hidden(part: str) -> bool:
    return part.startswith(".") and part not in (".", "..")


def _join(folder: str, name: str) -> str:
    if not folder or not name:
        return folder or name
    return f"{folder.rstrip('/')}/{name}"
