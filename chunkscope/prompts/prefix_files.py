"""Files whose text goes before the prompts, such as few-shot examples: of all datasets, or of one.

A profile keeps where such a file is, and its digest."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from chunkscope.artefacts.files import read_text
from chunkscope.errors import InputError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixFile:
    """`dataset` is whose prompts it goes before; None: of all that have none of their own."""

    path: str
    sha256: str
    dataset: str | None = None
    text: str | None = None  # None: not read yet

    @classmethod
    def given(cls, word: str) -> "PrefixFile":
        """What was written on the command line: FILE, or NAME=FILE where that is no file."""
        dataset, equals, path = word.partition("=")
        if not equals or Path(word).exists():
            dataset, path = "", word
        return cls(path=path, sha256="", dataset=dataset or None)._read()

    @property
    def content(self) -> str:
        file = self if self.text is not None else self._read()
        if file.text is None or file.sha256 != self.sha256:
            raise InputError(
                f"the prefix file {self.path} is not the one that the profile was made with",
                hint="analyze again with it",
            )
        return file.text

    def _read(self) -> "PrefixFile":
        hint = "write --prefix-file FILE, or --prefix-file DATASET=FILE"
        text = read_text(Path(self.path), "prefix file", hint=hint)
        return replace(
            self, text=text, sha256=hashlib.sha256(text.encode()).hexdigest()
        )


def for_one(text: str) -> tuple[str, str]:
    """NAME=PATH, or a text for all datasets: ["a=b"], {a} or a blank may be before its first =."""
    name, sign, path = text.partition("=")
    return (
        (name, path)
        if sign and name == name.rstrip() and not {*'"{'} & {*name}
        else ("", text)
    )


def check_datasets(given: Sequence[str | None], datasets: Sequence[str]) -> None:
    """Raise UsageError unless each, if it names something, is a dataset's name or pattern."""
    for name in filter(None, given):
        if not any(fnmatchcase(dataset, name) for dataset in datasets):
            hint = f"there are: {', '.join(datasets[:12])}{', ...' if datasets[12:] else ''}"
            raise UsageError(f"no dataset is called {name}", hint=hint)
