"""From what was named on the command line to the datasets there are.

Order is the order of the arguments, then names sorted; each real file counts once, however many
links lead to it. What is left out of a folder is said, never silently dropped.
"""

import glob
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from chunkscope.console import say
from chunkscope.errors import InputError, UsageError
from chunkscope.prompts.harness import inspect_log, lm_eval
from chunkscope.prompts.harness.rendering import Rendering, is_task
from chunkscope.sources.archives import Member, members
from chunkscope.sources.base import ReadOptions, Skipped, Source, cannot_read, printable
from chunkscope.sources.columnar import saved_files, saved_splits
from chunkscope.sources.file_kind import (
    START_BYTES,
    FoundFile,
    LeftOut,
    format_of,
    is_about_the_data,
    kind_of_packed,
    why,
)
from chunkscope.sources.formats import (
    FORMATS,
    archive_suffix,
    format_of_name,
    known_suffix,
    peek_stdin,
)
from chunkscope.sources.hub import hub_source
from chunkscope.sources.patterns import fitting, fixed_part, identity, is_folder, matches
from chunkscope.sources.remote import (
    RemoteFile,
    is_remote,
    remote_files,
    remote_root,
    start_of,
    without_secrets,
)
from chunkscope.sources.source_names import named_sources

_SEARCH_HINT = (
    "name a file or a folder, a glob in quotes, `-`, s3://bucket/, hf:org/name, or lm-eval:task"
)


def discover(
    paths: Sequence[str],
    *,
    names: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    options: ReadOptions,
    rendering: Rendering | None = None,
) -> tuple[list[Source], list[Skipped]]:
    """All datasets behind `paths`, with unique names, and the files that were left out."""
    if options.input_format is not None and options.input_format not in FORMATS:
        raise UsageError(
            f"unknown --input-format: {options.input_format}",
            hint=f"one of {', '.join(sorted(FORMATS))}",
        )
    search = _Search(options, tuple(include), tuple(exclude), rendering or Rendering())
    for path in paths:
        search.argument(path)
    if not search.sources:
        raise _nothing_found(paths, search)
    return named_sources(search.sources, names), search.skipped


@dataclass(slots=True)
class _Search:
    """What was found so far. A file, an archive, a hub dataset and stdin are `taken` once."""

    options: ReadOptions
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    rendering: Rendering
    sources: list[Source] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    filtered: int = 0
    taken: set[str] = field(default_factory=set)
    folders: set[tuple[int, int]] = field(default_factory=set)

    def argument(self, text: str) -> None:
        path = Path(text)
        if not text:  # pathlib would take it for the current folder
            raise InputError("a path is empty", hint="was a shell variable not set?")
        if text == "-":
            self._stdin()
        elif is_remote(text) and not os.path.lexists(text):
            self._remote(text)
        elif text.startswith("hf:") and not os.path.lexists(text):
            if self._is_new(text):
                self._add(hub_source(text, self.options))
        elif is_task(text) and not os.path.lexists(text):
            for source in self.rendering.sources(text) if self._is_new(text) else ():
                self._add(source)
        elif _exists(path, text):
            if path.is_dir():
                group = _folder_name(path)
                self._folder(FoundFile(file=path, shown=_as_typed(text), below="", group=group))
            else:
                self._file(
                    FoundFile(file=path, shown=text, below=path.name, group="", explicit=True)
                )
        elif glob.has_magic(text):
            self._glob(text)
        else:
            raise InputError(f"no such file or folder: {text}", hint=_SEARCH_HINT)

    def _is_new(self, key: str) -> bool:
        """Whether this was not met before; from now on it was."""
        is_new = key not in self.taken
        self.taken.add(key)
        return is_new

    def _add(self, source: Source) -> None:
        said = source.name, source.group, source.path
        name, group, path = shown = tuple(map(printable, said))
        known = source if shown == said else replace(source, name=name, group=group, path=path)
        self.sources.append(known)

    def _skip(self, shown: str, reason: str) -> None:
        self.skipped.append(Skipped(printable(shown), printable(reason)))

    def _stdin(self) -> None:
        if not self._is_new("-"):
            return
        if sys.stdin is not None and sys.stdin.isatty():
            say("reading from the terminal: type or paste the data, then Ctrl-D")
        found = self.options.input_format or kind_of_packed(peek_stdin())
        if found not in FORMATS:
            what = f"a {found} archive" if found else "neither text nor parquet"
            raise InputError(
                f"cannot read standard input: it looks like {what}",
                hint="save it to a file, or say what it is: --input-format jsonl",
            )
        self._add(Source(name="stdin", group="", path="-", format=found, file=None))

    def _glob(self, pattern: str) -> None:
        """What matches counts as found in the folder before the first `*`."""
        fixed = fixed_part(pattern)
        found = fitting(pattern)
        if not found:
            raise InputError(f"nothing matches {pattern}", hint=_SEARCH_HINT)
        for match in found:
            path = Path(match)
            below = Path(os.path.relpath(match, fixed)).as_posix()
            inside = PurePosixPath(_folder_name(fixed)) / below
            if path.is_dir():
                shown, group = _as_typed(match), inside.as_posix()
                self._folder(FoundFile(file=path, shown=shown, below=below, group=group))
            else:
                group = inside.parent.as_posix()
                self._file(FoundFile(file=path, shown=match, below=below, group=group))

    def _remote(self, text: str) -> None:
        """What is behind an address; of a folder or glob what its name tells is data."""
        shown = printable(without_secrets(text))
        files = remote_files(text)
        if not files:
            raise InputError(f"there are no files in {shown}", hint="check the name or the pattern")
        root = remote_root(text)
        for file in files:
            above = PurePosixPath(file.below).parent.as_posix()
            group = "" if file.named else _join(root, "" if above == "." else above)
            if self._is_wanted(file.below) and self._is_new(file.url):
                self._remote_file(file, group)

    def _remote_file(self, file: RemoteFile, group: str) -> None:
        shown = without_secrets(file.url)
        kind = self.options.input_format or format_of_name(file.below)
        if is_about_the_data(file.below) and not file.named:
            return self._skip(shown, "about the data, not data")
        if kind is None and file.named and not archive_suffix(file.below):
            kind = kind_of_packed(start_of(file.url, START_BYTES))
        if archive_suffix(file.below) or kind in ("zip", "tar"):
            return self._skip(shown, "an archive on another machine: fetch it first")
        if kind is None:
            return self._skip(shown, "unknown suffix")
        return self._add(
            Source(
                name=_name(file.below),
                group=group,
                path=shown,
                format=kind,
                file=None,
                bytes=file.size,
                url=file.url,
            )
        )

    # --- folders -----------------------------------------------------------------------------

    def _folder(self, folder: FoundFile) -> None:
        """Walk a folder in sorted order; a link back to a folder above ends there."""
        waiting = [(True, folder)]
        while waiting:  # not by recursion: folders may be nested deeper than Python's stack
            goes_deeper, found = waiting.pop()
            if not goes_deeper:
                self._file(found)
                continue
            try:
                waiting += reversed(self._entries(found))
            except OSError as error:
                if not found.below:
                    raise cannot_read(found.shown, error) from error
                self._skip(found.shown, why(error))
            except InputError as error:
                if not found.below:
                    raise
                self._skip(found.shown, str(error))

    def _entries(self, folder: FoundFile) -> list[tuple[bool, FoundFile]]:
        """What is in a folder that was not met before, each with whether it is a folder itself."""
        known = identity(folder.file)
        if known in self.folders:
            return []
        self.folders.add(known)
        if splits := saved_splits(folder.file):
            for split in splits:
                self._saved_split(folder, split)
            return []
        entries: list[tuple[bool, FoundFile]] = []
        for entry in sorted(os.scandir(folder.file), key=lambda entry: entry.name):
            below, deeper = _join(folder.below, entry.name), is_folder(entry)
            if entry.name.startswith(".") or (deeper and self._is_excluded(below)):
                continue
            found = FoundFile(
                file=Path(entry.path),
                shown=_join(folder.shown, entry.name),
                below=below,
                group=_join(folder.group, entry.name) if deeper else folder.group,
            )
            entries.append((deeper, found))
        return entries

    def _saved_split(self, dataset: FoundFile, split: str) -> None:
        """One split of what `save_to_disk` wrote; "" where it has none."""
        folder = dataset.file / split
        shown, below = _join(dataset.shown, split), _join(dataset.below, split)
        if not self._is_wanted(below or folder.name):
            return
        try:
            size = sum(file.stat().st_size for file in saved_files(folder, shown))
        except (InputError, OSError) as error:
            self._skip(shown, str(error))
            return
        source = Source(
            name=below or _folder_name(folder),
            group=dataset.group,
            path=shown,
            format="saved",
            file=folder,
            bytes=size,
        )
        if self._is_new(os.path.realpath(folder)):
            self._add(source)

    # --- files -------------------------------------------------------------------------------

    def _file(self, found: FoundFile) -> None:
        if archive_suffix(found.file.name):
            if not self._is_excluded(found.below):
                self._archive(found)
            return
        if not self._is_wanted(found.below):
            return
        try:
            kind = format_of(found, self.options.input_format)
            size = found.size()
        except LeftOut as reason:
            self._skip(found.shown, str(reason))
            return
        if kind in ("zip", "tar"):
            self._archive(found)
        elif self._is_new(os.path.realpath(found.file)):
            self._add_file(found, kind, size)

    def _add_file(self, found: FoundFile, kind: str, size: int | None) -> None:
        self._add(
            Source(
                name=_name(found.below),
                group=found.group,
                path=found.shown,
                format=kind,
                file=found.file,
                bytes=size,
            )
        )

    def _archive(self, found: FoundFile) -> None:
        if not self._is_new(os.path.realpath(found.file)):
            return
        try:
            listed = members(found.file, found.shown)
        except InputError as error:
            if found.explicit:
                raise
            self._skip(found.shown, error.message)
            return
        if inspect_log.is_inspect_zip(member.name for member in listed):
            if self._is_wanted(found.below):
                self._add_file(found, "inspect", found.size())
            return
        for member in listed:
            below = _join(found.below, member.name)
            if ".." in PurePosixPath(member.name).parts:
                self._skip(_join(found.shown, member.name), "its path leads out of the archive")
            elif not _is_hidden(member.name) and self._is_wanted(below):
                self._member(found, member)

    def _member(self, archive: FoundFile, member: Member) -> None:
        shown = _join(archive.shown, member.name)
        kind = self.options.input_format or format_of_name(member.name)
        if is_about_the_data(member.name):
            self._skip(shown, "about the data, not data")
        elif member.problem:
            self._skip(shown, member.problem)
        elif archive_suffix(member.name):
            self._skip(shown, "an archive inside an archive")
        elif kind is None:
            self._skip(shown, "unknown suffix")
        else:
            archive_name = archive.below.removesuffix(archive_suffix(archive.below) or "")
            inner = member.name.removesuffix(known_suffix(member.name))
            self._add(
                Source(
                    name=_join(archive_name, inner),
                    group=_join(archive.group, archive.file.name),
                    path=shown,
                    format=kind,
                    file=archive.file,
                    member=member.name,
                    bytes=member.size,
                    offset=member.offset,
                )
            )

    # --- include and exclude -----------------------------------------------------------------

    def _is_wanted(self, below: str) -> bool:
        wanted = not self.include or any(matches(below, pattern) for pattern in self.include)
        wanted = wanted and not self._is_excluded(below)
        self.filtered += not wanted
        return wanted

    def _is_excluded(self, below: str) -> bool:
        return any(matches(below, pattern) for pattern in self.exclude)


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


def _is_hidden(member: str) -> bool:
    parts = PurePosixPath(member).parts
    return "__MACOSX" in parts or any(part.startswith(".") and part != "." for part in parts)


def _as_typed(text: str) -> str:
    """ "data/" -> "data"; "." -> "", since people write x, not ./x."""
    return "" if text in (".", "./") else text.rstrip("/") or text[:1]


def _folder_name(folder: Path) -> str:
    return Path(os.path.abspath(folder)).name or "/"  # noqa: PTH100  (keeps links as named)


def _name(below: str) -> str:
    """Without what says how to read it; the logs of lm-eval and Inspect by their task."""
    name = below.removesuffix(known_suffix(below) or archive_suffix(below) or "")
    last = PurePosixPath(name).name
    task = lm_eval.task_in(last) or inspect_log.task_in(last)
    return name if task is None else PurePosixPath(name).with_name(task).as_posix()


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
        hint="it reads jsonl, json, csv, tsv, parquet, arrow, txt, md and Inspect's eval, also "
        "compressed or in a zip or tar; for another suffix give --input-format",
    )
