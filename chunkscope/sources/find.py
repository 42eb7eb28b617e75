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
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from stat import S_ISREG

from chunkscope.artefacts.note import Note, note
from chunkscope.console import Tell
from chunkscope.errors import InputError, UsageError, nearest
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
from chunkscope.sources.formats import ARCHIVE, FORMATS, LOGS, format_of_name
from chunkscope.sources.gather import gathered
from chunkscope.sources.hub import hub_source
from chunkscope.sources.input import START_BYTES
from chunkscope.sources.open import compression, looks_binary
from chunkscope.sources.remote import remote_files

SEARCH_HINT = (
    "name a file or a folder, a glob in quotes, `-`, s3://bucket/, hf:org/name, or "
    "lm-eval:task"
)
MOST_SKIPPED = 5  # files that are named
# README.md, LICENSE-mit.txt, dataset_infos.json, tokenizer.json, ...
ABOUT_TEXT = re.compile(
    r"(?i)(readme|licen[sc]e|changelog|requirements|data(set)?[_-]?card)"
    r"(\.md|\.txt|[_-][^.]*(\.md|\.txt)?)?"
)
ABOUT_JSON = re.compile(
    r"(?i)(dataset_(dict|infos?)|state|(\w+_)?config|tokenizer|vocab"
    r"|special_tokens_map|added_tokens)\.json"
)
ARTEFACT = re.compile(rb'\s*\{\s*"schema":\s*"chunkscope/')


# The datasets that a task sends, given its address, such as `lm-eval:gsm8k`; else None.
TaskSources = Callable[[str], list[Source] | None]


def discover(
    paths: Sequence[str],
    *,
    options: ReadOptions,
    exclude: Sequence[str] = (),
    tasks: TaskSources | None = None,
    tell: Tell = lambda _: None,
) -> tuple[list[Source], list[Note]]:
    """The datasets behind paths, with unique names, and what was left out."""
    check_format(options.input_format)
    search = Search(
        input_format=options.input_format,
        exclude=exclude,
        tasks=tasks,
        tell=tell,
    )
    for path in paths:
        search.argument(path)
    if not search.sources:
        raise nothing_found(paths, search)
    result = gathered(search.sources)
    search.sources = result.sources
    search.skipped += result.skipped
    for skip in search.skipped[:MOST_SKIPPED]:
        tell(skip)
    unnamed = len(search.skipped) - MOST_SKIPPED
    if unnamed > 0:
        tell(note("skipped_more", count=unnamed))
    return uniquely_named(search.sources), search.skipped


def check_format(name: str | None) -> None:
    formats = sorted(form.name for form in FORMATS.values() if form.suffixes)
    if name and name not in formats:
        hint = f"one of {', '.join(formats)}"
        raise UsageError(f"unknown --input-format: {name}", hint=hint)


def nothing_found(paths: Sequence[str], search: "Search") -> InputError:
    reasons = Counter(str(skip.values["reason"]) for skip in search.skipped)
    parts = [f"{count} skipped ({reason})" for reason, count in reasons.most_common()]
    if search.excluded:
        parts.append(f"{search.excluded} excluded")
    where = ", ".join(paths) or "nothing"
    return InputError(
        f"no datasets in {where}: {', '.join(parts) or 'no files'}",
        hint="it reads jsonl, json, csv, tsv, parquet, arrow, txt, md and Inspect's "
        "eval, also compressed or in a zip or tar; --input-format reads other "
        "suffixes",
    )


def uniquely_named(sources: list[Source]) -> list[Source]:
    """Where names clash, a dataset's is its path below the folder that all are in."""
    counts = Counter(source.name for source in sources)
    common = os.path.commonprefix([source.path for source in sources])  # noqa: RUF071
    start = common.rfind("/") + 1
    names = []
    for source in sources:
        is_unique = counts[source.name] == 1
        names.append(printable(source.name if is_unique else source.path[start:]))
    pairs = zip(sources, unique_names(names, "#"), strict=True)
    return [replace(source, name=name) for source, name in pairs]


def is_excluded(below: str, patterns: Sequence[str]) -> bool:
    """Whether a path below the root, or a folder of it, or its name fits a pattern.

    `**/` may stand for no folder at all.
    """
    places = [below.rpartition("/")[2]]
    while below:
        places.append(below)
        below = below.rpartition("/")[0]
    for pattern in patterns:
        for form in (pattern, pattern.replace("**/", "")):
            if fnmatch.filter(places, form):
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
    exclude: Sequence[str]
    tasks: TaskSources | None
    tell: Tell
    sources: list[Source] = field(default_factory=list)
    skipped: list[Note] = field(default_factory=list)
    excluded: int = 0
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
        remote = remote_files(address)
        if not remote.files:
            shown = printable(without_secrets(address))
            raise InputError(
                f"there are no files in {shown}", hint="check the name or the pattern"
            )
        for file in remote.files:
            group = ""
            if remote.folder:
                group = join(remote.folder, file.below.rpartition("/")[0])
            path = without_secrets(file.url)
            candidate = Candidate(
                source=Source(path=path, url=file.url, bytes=file.bytes, group=group),
                below=file.below,
                identity=file.url,
                is_named=not remote.folder,
            )
            self._consider(candidate)

    def _glob(self, pattern: str) -> None:
        """What matches counts as found in the folder before the first `*`."""
        if not glob.has_magic(pattern):
            raise no_such_file(pattern)
        fixed = Path()
        for part in Path(pattern).parts:
            if glob.has_magic(part):
                break
            fixed /= part
        matches = sorted(glob.iglob(pattern, recursive=True))  # noqa: PTH207
        if not matches:
            raise InputError(f"nothing matches {pattern}", hint=SEARCH_HINT)
        for path in matches:
            below = os.path.relpath(path, fixed)
            if not Path(path).is_dir():
                self._below(str(fixed), [below])
            elif "**" not in pattern:  # which matches the files themselves, too
                self._folder(str(fixed), below)

    def _folder(self, root: str, inner: str = "") -> None:
        """All that is in a folder, or in one inside it, sorted."""
        entries: list[str] = []
        seen: set[str] = set()  # a link may lead back to a folder above
        walk = os.walk(join(root, inner), onerror=self._unreadable, followlinks=True)
        for folder, folders, names in walk:
            real = os.path.realpath(folder)
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            below = folder[len(root) :].strip("/")
            entries += [join(below, name) for name in names if name[0] != "."]
            folders[:] = [name for name in folders if name[0] != "."]
        self._below(root, sorted(entries, key=lambda entry: entry.split("/")))

    def _unreadable(self, error: OSError) -> None:
        """A folder that may not be listed."""
        self._skip(str(error.filename), reason_of(error))

    def _below(self, root: str, entries: Iterable[str]) -> None:
        """Files by their path below a folder."""
        root_name = Path(os.path.abspath(root)).name or "/"  # noqa: PTH100
        for below in entries:
            path = join(root, below)
            shown = below if root in (".", "./") else path  # x, not ./x
            group = join(root_name, below.rpartition("/")[0])
            self._file(path, shown, below, group, is_named=False)

    def _file(
        self, path: str, shown: str, below: str, group: str, *, is_named: bool
    ) -> None:
        """A file on disk, or a pipe, whose size is None."""
        try:
            status = os.stat(path)  # noqa: PTH116  (pathlib takes longer)
            is_file = S_ISREG(status.st_mode)
            source = Source(
                path=shown,
                group=group,
                file=Path(path),
                bytes=status.st_size if is_file else None,
                is_read_once=not is_file,
            )
            candidate = Candidate(
                source=source,
                below=below,
                identity=(status.st_dev, status.st_ino),
                is_named=is_named,
            )
            self._consider(candidate)
        except (OSError, ValueError) as error:
            if is_named:
                raise cannot_read(shown, error) from None
            self._skip(shown, reason_of(error))

    # --- what they are ----------------------------------------------------------------

    def _consider(self, candidate: Candidate) -> None:
        """Take what is data, look into archives, leave out anything else."""
        by_name = format_of_name(candidate.below)
        form = by_name.format
        is_archive = form == ARCHIVE and candidate.source.member is None
        if is_excluded(candidate.below, self.exclude):
            self.excluded += 1
            return
        if self.input_format and not is_archive:
            form = self.input_format
        name = dataset_name(candidate.below, by_name.suffix)
        source = replace(candidate.source, name=name, format=form)
        if is_archive:
            self._archive(source, candidate)
            return
        reason = None if candidate.is_named else why_no_data(source, candidate.below)
        if reason is None:
            self._add(source, candidate.identity)
        else:
            self._skip(source.path, reason)

    def _archive(self, archive: Source, candidate: Candidate) -> None:
        """Each member is a source, unless the archive as a whole is a harness's log."""
        if candidate.identity in self.taken:
            return
        try:
            sizes = open_archive(archive).sizes
        except DataError:
            if candidate.is_named:
                raise
            self._add(archive, candidate.identity)  # it will fail with this error
            return
        for log in LOGS:
            if log.claims_members is not None and log.claims_members(sizes):
                self._add(replace(archive, format=log.name), candidate.identity)
                return
        self.taken.add(candidate.identity)
        group = join(archive.group, candidate.below.rpartition("/")[2])
        for name, size in sizes.items():
            shown = join(archive.path, name)
            parts = PurePosixPath(name).parts
            if ".." in parts:
                self._skip(shown, "its path points outside the archive")
            elif not any(part.startswith((".", "__MACOSX")) for part in parts):
                member = replace(
                    archive, path=shown, group=group, member=name, bytes=size
                )
                below = join(candidate.below, name)
                self._consider(Candidate(source=member, below=below, identity=shown))

    # --- what comes of it -------------------------------------------------------------

    def _add(self, source: Source, identity: Hashable) -> None:
        """Unless it was met before."""
        if identity in self.taken:
            return
        self.taken.add(identity)
        shown = replace(
            source, group=printable(source.group), path=printable(source.path)
        )
        self.sources.append(shown)

    def _skip(self, shown: str, reason: str) -> None:
        skip = note("skipped", file=printable(shown), reason=printable(reason))
        self.skipped.append(skip)


def no_such_file(text: str) -> InputError:
    """The error for a path that does not exist, with one that is called alike."""
    try:
        siblings = [path.name for path in Path(text).parent.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        siblings = []
    except (OSError, ValueError) as error:  # a folder that may not be listed
        return cannot_read(text, error)
    near = nearest(Path(text).name, siblings)
    hint = near if near.startswith("did you mean") else SEARCH_HINT
    return InputError(f"no such file or folder: {text}", hint=hint)


def dataset_name(below: str, suffix: str) -> str:
    """The path without what says how to read it; of logs, with their task's name."""
    folders, slash, last = below.removesuffix(suffix).rpartition("/")
    parts = []
    for part in folders.split("/"):  # some of them may be archives
        parts.append(part.removesuffix(format_of_name(part).suffix))
    for log in LOGS:
        match = log.task_name.fullmatch(last) if log.task_name else None
        if match is not None:
            last = match["task"]
            break
    return f"{'/'.join(parts)}{slash}{last}"


def why_no_data(source: Source, below: str) -> str | None:
    """Why a file that lies in a folder or an archive is no data; None if it may be."""
    name = below.rpartition("/")[2]
    if ABOUT_TEXT.fullmatch(name) or ABOUT_JSON.fullmatch(name):
        return "about the data or a model"
    if source.format == ARCHIVE:
        return "an archive inside an archive"
    if source.is_read_once:
        return "a pipe or a device"
    reason = None
    if source.file is not None and source.member is None:
        reason = why_no_data_inside(source, source.file)
    if reason is None and not source.format:
        return "unknown suffix"
    return reason


def why_no_data_inside(source: Source, file: Path) -> str | None:
    """The same, by the first bytes of a file."""
    with io.FileIO(file) as opened:  # pathlib takes longer, and files are many
        start = opened.read(START_BYTES)
    form = FORMATS.get(source.format)
    may_be_binary = form is not None and form.is_binary
    if looks_binary(start) and compression(start) is None and not may_be_binary:
        return "binary"
    if ARTEFACT.match(start):
        return "written by chunkscope itself"
    for log in LOGS:
        reason = log.skip_reason(file, start) if log.skip_reason else None
        if reason is not None:
            return reason
    return None


def join(folder: str, name: str) -> str:
    if not folder or not name:
        return folder or name
    return f"{folder.rstrip('/')}/{name}"
