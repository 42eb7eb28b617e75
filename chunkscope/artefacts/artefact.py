"""An artefact: a dataclass that is also a file. Its fields are the schema.

A file begins with its schema and a checksum of everything else in it: one that was torn or edited
by hand is refused. Figures that follow from the fields are written for people and jq and not read.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

import orjson

from chunkscope._version import __version__
from chunkscope.artefacts import codec
from chunkscope.artefacts.schema import plain, validated
from chunkscope.artefacts.words import Name, path_of

# Metadata of a field that may differ when the same input is worked on again: no part of the digest.
INCIDENTAL = {"incidental": True}
_NEVER_IDENTITY = {"created", "command", "version"}


def now() -> str:
    """When an artefact is `created`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Artefact:
    """The base of every artefact's dataclass, which has to have a `version`."""

    __slots__ = ()

    title: ClassVar[str]  # what messages call it
    schema: ClassVar[str]
    made_by: ClassVar[str]
    default_path: ClassVar[Path]
    version: str

    def to_json(self) -> dict[str, Any]:
        """The document as it is written, in plain values."""
        head = {"schema": self.schema, "chunkscope": self.version or __version__}
        figures = {"figures": self.figures()} if self.figures() else {}
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "version"}  # type: ignore[arg-type]
        return codec.sealed(plain(head | figures | content))

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read back what `to_json` wrote; InputError when it is not that."""
        what = f"the {cls.title}"
        return cls._read(codec.checked(document, what, cls.schema, made_by=cls.made_by), what)

    def save(self, path: Name | None = None) -> bytes:
        """Write it; what was written comes back."""
        data = codec.dump(self.to_json())
        codec.write_atomically(path_of(path or self.default_path), data)
        return data

    @classmethod
    def load(cls, path: Name | None = None) -> Self:
        path = path_of(path or cls.default_path)
        return cls._read(codec.read(path, cls.schema, made_by=cls.made_by), path)

    @classmethod
    def given(cls, value: Self | Name) -> Self:
        """The artefact itself, or the file that holds it."""
        return value if isinstance(value, cls) else cls.load(value)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.headline}>"

    @property
    def headline(self) -> str:
        """What it says, in one line."""
        raise NotImplementedError

    def digest(self) -> str:
        """What it is by its content: the same whenever, wherever and however it was made."""
        data = orjson.dumps(_identity(self), option=orjson.OPT_SORT_KEYS, default=str)
        return hashlib.sha256(data).hexdigest()

    def figures(self) -> dict[str, Any]:
        """What follows from the fields and is written besides, for people and jq."""
        return {}

    @classmethod
    def _read(cls, document: dict[str, Any], what: Path | str) -> Self:
        with codec.reading(what, cls.made_by):
            document["version"] = document.pop("chunkscope")
            head = ("schema", codec.CHECKSUM, "figures")
            return validated(cls, {n: value for n, value in document.items() if n not in head})


def _identity(value: Any) -> Any:
    """A value without what is incidental, and without fields that say nothing.

    So a field that later versions add changes no digest; 3.0 is 3, as JSON may give it back.
    """
    if is_dataclass(value):
        parts = {
            f.name: _identity(getattr(value, f.name))
            for f in fields(value)
            if f.name not in _NEVER_IDENTITY and not f.metadata.get("incidental")
        }
        return {name: part for name, part in parts.items() if part not in (None, "", [], {})}
    if isinstance(value, Mapping):
        return {str(name): _identity(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_identity(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
