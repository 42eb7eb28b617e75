"""How analyze was asked: the command line, and the profile's record.

A new option is a field of `AnalyzeOptions`, or of what it says about reading and
selecting.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

from chunkscope.artefacts.files import several
from chunkscope.errors import InputError, UsageError, nearest
from chunkscope.prompts.harness.rendering import RenderOptions
from chunkscope.prompts.options import PER_DATASET, SelectOptions
from chunkscope.prompts.prefix_files import PrefixFile
from chunkscope.sources.base import ReadOptions, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOptions:
    """What differs for the datasets of one pattern. None: as for all datasets."""

    fields: tuple[str, ...] | None = None
    each: tuple[str, ...] | None = None
    template: tuple[str, ...] | None = None
    choices: tuple[str, ...] | None = None
    output_field: tuple[str, ...] | None = None
    prefix_file: PrefixFile | None = None

    @classmethod
    def of(cls, pattern: str, table: object) -> "DatasetOptions":
        """From a table such as [datasets."mmlu*"] of chunkscope.toml."""
        place = f'[datasets."{pattern}"]'
        if isinstance(table, DatasetOptions):
            return table
        if not isinstance(table, Mapping):
            raise InputError(f"{place} is not a table")
        names = {option.name for option in fields(cls)} - {"fields"} | {"field"}
        values: dict[str, Any] = {}
        for key, value in table.items():
            name = str(key).replace("-", "_")
            if name not in names:
                raise InputError(
                    f"{place} has no option {key}", hint=nearest(name, names)
                )
            if not is_text(value):
                raise InputError(f"{place} {key} is {value!r:.60}, not text")
            values["fields" if name == "field" else name] = several(value)
        if "prefix_file" in values:
            values["prefix_file"] = PrefixFile.read(values["prefix_file"][-1])
        return cls(**values)

    def over(self, select: SelectOptions) -> SelectOptions:
        """The options of all datasets, with these in their place."""
        values: dict[str, Any] = {}
        if self.fields is not None or self.template is not None:
            values = {"fields": (), "template": None}
        for name in PER_DATASET:
            if getattr(self, name) is not None:
                values[name] = getattr(self, name)
        return replace(select, **values)


def is_text(value: object) -> bool:
    """Whether a value of a table is a text, or a list of texts with at least one."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(item, str) for item in value)
    return isinstance(value, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """The options of `analyze`."""

    tokenizer: str | None = None
    select: SelectOptions = field(default_factory=SelectOptions)
    prefix_file: PrefixFile | None = None  # whose text goes before the prompts
    datasets: dict[str, DatasetOptions] = field(default_factory=dict)  # by pattern
    apply_chat_template: bool = False  # send text prompts as one user message each
    chat_template: Path | None = None
    chat_date: datetime.date | None = None
    special_tokens: bool = True
    sample: int | None = None
    seed: int = 0
    exclude: tuple[str, ...] = ()
    read: ReadOptions = field(default_factory=ReadOptions)
    render: RenderOptions = field(default_factory=RenderOptions)
    keep_longest: int = 10
    prefixes: bool = True  # also find what prompts share

    def __post_init__(self) -> None:
        """Take options as people write them: names of files, and days as texts."""
        if self.tokenizer is not None:
            self._set("tokenizer", str(self.tokenizer))
        if self.chat_template is not None:
            self._set("chat_template", Path(self.chat_template).expanduser())
        if isinstance(self.chat_date, str):
            self._set("chat_date", read_day(self.chat_date))
        if not isinstance(self.prefix_file, PrefixFile | None):
            self._set("prefix_file", PrefixFile.read(several(self.prefix_file)[-1]))
        datasets = {}
        for pattern, table in self.datasets.items():
            datasets[pattern] = DatasetOptions.of(pattern, table)
        self._set("datasets", datasets)
        if self.sample is not None:
            check_whole_number("sample", self.sample, least=1)
        check_whole_number("keep_longest", self.keep_longest, least=0)
        self._set("exclude", several(self.exclude))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def of_dataset(self, dataset: str) -> list[DatasetOptions]:
        """The options of the patterns that match a dataset; the last one wins."""
        patterns = self.datasets.items()
        return [options for name, options in patterns if fnmatchcase(dataset, name)]

    def for_dataset(self, dataset: str) -> SelectOptions:
        """What the prompt of a dataset is."""
        select = self.select
        for options in self.of_dataset(dataset):
            select = options.over(select)
        return select

    def prefix_for(self, dataset: str) -> str:
        """The text before its prompts."""
        file = self.prefix_file
        for options in self.of_dataset(dataset):
            file = options.prefix_file or file
        return "" if file is None else file.content

    def recorded(self) -> "AnalyzeOptions":
        """As a profile keeps them, without those of one run and without texts."""
        datasets = {}
        for pattern, options in self.datasets.items():
            file = recorded_file(options.prefix_file)
            datasets[pattern] = replace(options, prefix_file=file)
        return replace(
            self,
            tokenizer=printable(self.tokenizer) if self.tokenizer else None,
            prefix_file=recorded_file(self.prefix_file),
            datasets=datasets,
            chat_template=None,
            exclude=tuple(printable(pattern) for pattern in self.exclude),
            read=replace(self.read, trust_remote_code=False),
            render=replace(self.render, timeout=RenderOptions().timeout),
        )


def recorded_file(file: PrefixFile | None) -> PrefixFile | None:
    """The file without its text."""
    if file is None:
        return None
    return replace(file, path=printable(file.path), text=None)


def read_day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(str(error), hint="write it like 2026-01-31") from None


def check_whole_number(name: str, value: object, *, least: int) -> None:
    if not isinstance(value, SupportsIndex) or index(value) < least:
        raise UsageError(f"{name} is {value!r}, not a whole number from {least} on")
