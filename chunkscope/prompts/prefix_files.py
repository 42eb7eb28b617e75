"""Files whose text goes before the prompts, such as few-shot examples: of all datasets, or of one.

A profile keeps where such a file is and its digest. Whoever counts or sends the prompts again reads
it again, and is told when it is another.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError, UsageError

_MOST_NAMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixFile:
    """`dataset` is whose prompts it goes before; None: of all that have none of their own."""

    path: str
    sha256: str
    dataset: str | None = None
    text: str | None = None  # None: not read yet

    @classmethod
    def given(cls, word: str) -> "PrefixFile":
        """What was written on the command line: FILE, or NAME=FILE."""
        dataset, path = _split(word)
        text = _text_of(path)
        return cls(path=path, sha256=_digest(text), dataset=dataset, text=text)

    @property
    def content(self) -> str:
        if self.text is not None:
            return self.text
        text = _text_of(self.path)
        if _digest(text) != self.sha256:
            raise InputError(
                f"the prefix file {self.path} is not the one that the profile was made with",
                hint="analyze again with it",
            )
        return text

    def recorded(self) -> dict[str, Any]:
        return {"path": self.path, "sha256": self.sha256, "dataset": self.dataset}


def _split(word: str) -> tuple[str | None, str]:
    """A file may have a `=` in its name, and a dataset too: what exists decides."""
    splits = [(word[:at], word[at + 1 :]) for at, letter in enumerate(word) if letter == "="]
    if Path(word).exists() or not splits:
        return None, word
    return next((split for split in splits if Path(split[1]).exists()), splits[0])


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read the prefix file {path}: {error}",
            hint="write --prefix-file FILE, or --prefix-file DATASET=FILE",
        ) from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def assigned(files: Sequence[PrefixFile], names: Sequence[str]) -> tuple[PrefixFile, ...]:
    """Each with its dataset: one without a name is for all, several are in the datasets' order."""
    plain = [file for file in files if file.dataset is None]
    named = Counter(file.dataset for file in files if file.dataset is not None)
    for name, times in named.items():
        if name not in names:
            raise UsageError(
                f"--prefix-file {name}=...: there is no dataset of that name",
                hint=f"the datasets are {_listed(names)}",
            )
        if times > 1:
            raise UsageError(f"--prefix-file {name}=... is given {times} times", hint="one will do")
    if len(plain) <= 1:
        return tuple(files)
    if named or len(plain) != len(names):
        raise UsageError(
            f"{len(plain)} --prefix-file without a name for {len(names)} datasets"
            + (f", beside {len(named)} with one" if named else ""),
            hint="give one for all, one for each in their order, or NAME=FILE; "
            f"the datasets are {_listed(names)}",
        )
    return tuple(replace(file, dataset=name) for file, name in zip(plain, names, strict=True))


def _listed(names: Sequence[str]) -> str:
    left = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {left:,} more" if left > 0 else "")
