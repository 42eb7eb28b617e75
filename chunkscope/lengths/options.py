"""How analyze was asked: one value is the command line and the profile's record.

A new option is a field of `AnalyzeOptions`, or of what it says about reading and selecting."""

import datetime
import os
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from chunkscope.artefacts.files import several
from chunkscope.errors import UsageError
from chunkscope.prompts.harness.rendering import RenderOptions
from chunkscope.prompts.options import PER_DATASET, SelectOptions
from chunkscope.prompts.prefix_files import PrefixFile, for_one
from chunkscope.sources.base import ReadOptions, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """The options of `analyze`."""

    tokenizer: str | None = None
    select: SelectOptions = field(default_factory=SelectOptions)
    prefix_files: tuple[
        PrefixFile, ...
    ] = ()  # text before the prompts: of all datasets, or of one
    apply_chat_template: bool = False  # send text prompts as one user message each
    chat_template: Path | None = None
    chat_date: datetime.date | None = None
    special_tokens: bool = True
    sample: int | None = None
    seed: int = 0
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    read: ReadOptions = field(default_factory=ReadOptions)
    render: RenderOptions = field(default_factory=RenderOptions)
    names: tuple[str, ...] = ()
    keep_longest: int = 10
    prefixes: bool = True  # also find what prompts share

    def __post_init__(self) -> None:
        """As people write it: names of files, days, and one word for a list of one."""
        object.__setattr__(
            self, "tokenizer", self.tokenizer and os.fspath(self.tokenizer)
        )
        if self.chat_template is not None:
            object.__setattr__(
                self, "chat_template", Path(self.chat_template).expanduser()
            )
        if isinstance(self.chat_date, str):
            try:
                day = datetime.date.fromisoformat(self.chat_date)
            except ValueError as error:
                raise UsageError(str(error), hint="write it like 2026-01-31") from None
            object.__setattr__(self, "chat_date", day)
        files: Any = self.prefix_files
        files = files if isinstance(files, list | tuple) else (files,)
        loaded = [
            f if isinstance(f, PrefixFile) else PrefixFile.given(*several(f))
            for f in files
        ]
        if len({file.dataset for file in loaded}) < len(loaded):
            raise UsageError(
                "two --prefix-file for the same data", hint="NAME=FILE is for one set"
            )
        object.__setattr__(self, "prefix_files", tuple(loaded))
        for name, least in (("sample", 1), ("keep_longest", 0)):
            if not (
                (n := getattr(self, name)) is None
                or (hasattr(n, "__index__") and n >= least)
            ):
                raise UsageError(f"{name} is {n!r}, not a whole number from {least} on")
        for name in ("include", "exclude", "names"):
            object.__setattr__(self, name, several(getattr(self, name)))

    @property
    def named(self) -> list[str]:
        """The datasets that some option is for, by their names or patterns."""
        given = [
            text for name in PER_DATASET for text in getattr(self.select, name) or ()
        ]
        names = [
            *(file.dataset for file in self.prefix_files),
            *(for_one(x)[0] for x in given),
        ]
        return [*filter(None, names)]

    def for_dataset(self, dataset: str) -> tuple[str, SelectOptions]:
        """The prefix text and prompt fields of one dataset; options that name it win."""

        def chosen(given: list[tuple[Any, Any]]) -> Any:
            own = [
                value for name, value in given if name and fnmatchcase(dataset, name)
            ]
            return own or [value for name, value in given if not name]

        files = chosen([(file.dataset, file) for file in self.prefix_files])
        given = {
            name: [*map(for_one, getattr(self.select, name) or ())]
            for name in PER_DATASET
        }
        select = self.select
        if any(name for pairs in given.values() for name, _ in pairs):
            select = replace(
                select, **{name: chosen(pairs) for name, pairs in given.items()}
            )
        return files[0].content if files else "", select

    def recorded(self) -> "AnalyzeOptions":
        """As a profile keeps them, without those of one run and without texts."""
        return replace(
            self,
            tokenizer=printable(self.tokenizer) if self.tokenizer else None,
            prefix_files=tuple(
                replace(file, path=printable(file.path), text=None)
                for file in self.prefix_files
            ),
            chat_template=None,
            include=tuple(map(printable, self.include)),
            exclude=tuple(map(printable, self.exclude)),
            names=tuple(map(printable, self.names)),
            read=replace(self.read, trust_remote_code=False),
            render=replace(self.render, timeout=RenderOptions().timeout),
        )
