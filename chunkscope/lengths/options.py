"""How analyze was asked: one value is the command line, the cache's key and the profile's record.

An option is added in one place, as a field of `AnalyzeOptions` or of what it says about reading and
selecting. It then is part of the cache's key and of the record that `verify --data` repeats; the
exceptions are listed here, each with its reason.
"""

import datetime
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.schema import SchemaError, validated
from chunkscope.artefacts.words import day, path_of, several
from chunkscope.errors import InputError
from chunkscope.lengths.shards import PIECE_BYTES
from chunkscope.prompts.harness.rendering import Rendering, RenderOptions
from chunkscope.prompts.prefix_files import PrefixFile
from chunkscope.prompts.selection import SelectOptions
from chunkscope.sources.base import ReadOptions, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """Everything `analyze` can be told."""

    tokenizer: str | None = None
    select: SelectOptions = field(default_factory=SelectOptions)
    prefix_files: tuple[PrefixFile, ...] = ()  # instead of a prefix that is the same for all
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
    order: Path | None = None  # where the rows are written, those that begin alike together
    exact_check: bool = False
    use_cache: bool = True
    piece_bytes: int = PIECE_BYTES  # of a large file; prompts behind the first are not compared

    def __post_init__(self) -> None:
        """As people write it: names of files, days, and one word for a list of one."""
        for name in ("chat_template", "order"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, path_of(given))
        if isinstance(self.chat_date, str):
            object.__setattr__(self, "chat_date", day(self.chat_date))
        given_files: Any = self.prefix_files
        is_one = isinstance(given_files, str | os.PathLike | PrefixFile)
        files = (given_files,) if is_one else tuple(given_files)
        made = [f if isinstance(f, PrefixFile) else PrefixFile.given(os.fspath(f)) for f in files]
        object.__setattr__(self, "prefix_files", tuple(made))
        for name in ("include", "exclude", "names"):
            object.__setattr__(self, name, several(getattr(self, name)))

    @property
    def divided_into(self) -> int | None:
        """The size of pieces; None where every row of a source has to be seen at once."""
        return None if self.sample is not None or self.order is not None else self.piece_bytes

    def flat(self) -> dict[str, Any]:
        """Each option by its own name, those about reading and selecting like the others."""
        values: dict[str, Any] = {}
        for option in fields(self):
            value = getattr(self, option.name)
            parts = fields(value) if option.name in _PARTS else ()
            values |= {part.name: getattr(value, part.name) for part in parts}
            if not parts:
                values[option.name] = value
        return values | {"seed": self.seed if self.sample else None}

    def of_dataset(self, name: str) -> "AnalyzeOptions":
        """As they are for one dataset: with its own prefix."""
        for file in sorted(self.prefix_files, key=lambda file: file.dataset is None):
            if file.dataset in (name, None):
                return replace(
                    self, select=replace(self.select, prefix=file.content), prefix_files=()
                )
        return self

    def rendering(self, say: Callable[[str], None] = lambda _: None) -> Rendering:
        """For tasks of a harness, asked as these options say."""
        return Rendering(
            options=self.render,
            tokenizer=self.tokenizer,
            chat=self.apply_chat_template,
            chat_template=self.chat_template,
            trust_remote_code=self.read.trust_remote_code,
            say=say,
        )

    def cache_key(self) -> dict[str, Any]:
        """Every option that can change the profile of a dataset."""
        return {name: value for name, value in self.flat().items() if name not in NOT_IN_THE_KEY}

    def recorded(self) -> dict[str, Any]:
        """What the profile says of them, in plain values; `from_record` reads it."""
        defaults = AnalyzeOptions().flat()
        return {
            "prefix_sha256" if name == "prefix" else name: _plain(name, value)
            for name, value in self.flat().items()
            if name not in NOT_RECORDED and (name in _ALWAYS_RECORDED or value != defaults[name])
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "AnalyzeOptions":
        """What a profile recorded: the whole of it, apart from the text of prefixes."""
        known = {name: record[name] for name in cls().flat() if record.get(name) is not None}
        parts = {
            part: {f.name: known.pop(f.name) for f in fields(kind) if f.name in known}
            for part, kind in _PARTS.items()
        }
        try:
            return validated(cls, {**known, **parts})
        except SchemaError as error:
            raise InputError(
                f"the profile is damaged: options.{error}",
                hint="make it again: `chunkscope analyze data/`",
            ) from None


_PARTS: dict[str, Any] = {"select": SelectOptions, "read": ReadOptions, "render": RenderOptions}

NOT_IN_THE_KEY = {
    "tokenizer": "what it is by content is in the key",
    "prefix_files": "each dataset's own prefix is",
    "chat_template": "likewise",
    "chat_date": "likewise, where a template prints the date",
    "input_format": "every dataset has its format, which is in the key",
    "names": "which datasets there are, not what is in them",
    "include": "likewise",
    "exclude": "likewise",
    "trust_remote_code": "whether a tokenizer may be used, not what it says",
    "exact_check": "the lengths are the same, whoever counted them",
    "use_cache": "likewise",
    **dict.fromkeys((f.name for f in fields(RenderOptions)), "what is rendered is in the key"),
    "order": "what is written besides",
}
NOT_RECORDED = {
    "chat_template": "its digest is, beside the tokenizer",
    "trust_remote_code": "each run is asked anew",
    "exact_check": "the tokenizer's notes tell it",
    "use_cache": "the result is the same",
    "timeout": "likewise",
    "order": "likewise",
}
# The others are recorded only where they were given: profiles of old stay as they are.
_ALWAYS_RECORDED = {
    *("tokenizer", "fields", "template", "prefix", "output_field", "chat", "apply_chat_template"),
    *("chat_date", "special_tokens", "sample", "seed", "include", "exclude"),
}
_NAMES_OF_FILES = {
    *("tokenizer", "include", "exclude", "names", "path", "dataset", "include_path"),
}


def _plain(name: str, value: Any) -> Any:
    """As JSON can hold it."""
    if name == "prefix":
        return hashlib.sha256(value.encode()).hexdigest() if value else None
    if isinstance(value, PrefixFile):
        return {part: _plain(part, one) for part, one in value.recorded().items()}
    if isinstance(value, tuple):
        return [_plain(name, one) for one in value]
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, str) and name in _NAMES_OF_FILES:
        return printable(value)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
