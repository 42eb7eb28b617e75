"""Files whose text goes before the prompts, such as few-shot examples.

A profile keeps where such a file is, and its digest.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from chunkscope.artefacts.files import Name, read_text
from chunkscope.errors import InputError, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixFile:
    """A file whose text goes before prompts. `text` None: it is not read yet."""

    path: str
    sha256: str
    text: str | None = None

    @classmethod
    def read(cls, path: Name) -> "PrefixFile":
        text = read_text(Path(path), "prefix file", hint="write --prefix-file FILE")
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(path=str(path), sha256=digest, text=text)

    @property
    def content(self) -> str:
        """The text; InputError if the file is not the one with this digest."""
        if self.text is not None:
            return self.text
        file = PrefixFile.read(self.path)
        if file.text is None or file.sha256 != self.sha256:
            raise InputError(
                f"the prefix file {self.path} is not the one that the profile was made "
                "with",
                hint="analyze again with it",
            )
        return file.text


def check_datasets(patterns: Sequence[str], datasets: Sequence[str]) -> None:
    """Raise InputError unless each pattern matches the name of a dataset."""
    for pattern in patterns:
        if not any(fnmatchcase(dataset, pattern) for dataset in datasets):
            raise InputError(
                f'[datasets."{pattern}"] matches no dataset',
                hint=nearest(pattern, datasets),
            )
