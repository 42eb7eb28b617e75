"""An artefact: a dataclass that is also a file. Its fields are the schema.

What is written besides, for readers and for jq, follows from the fields: when a file is read back,
it has to follow from them again.
"""

from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

from chunkscope._version import __version__
from chunkscope.artefacts import codec
from chunkscope.artefacts.schema import SchemaError, check_same, plain, validated
from chunkscope.artefacts.words import Name, path_of


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
    added_later: ClassVar[frozenset[str]] = frozenset()  # keys that older files do not have
    version: str

    def to_json(self) -> dict[str, Any]:
        """The document as it is written, in plain values."""
        head = {"schema": self.schema, "chunkscope": self.version or __version__}
        document: dict[str, Any] = plain(head | self._document())
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read back what `to_json` wrote; InputError when it is not that."""
        with codec.reading(f"the {cls.title}", cls.made_by):
            return cls._checked(plain(document))

    def save(self, path: Name | None = None) -> bytes:
        """Write it; what was written comes back."""
        data = codec.dump(self.to_json())
        codec.write_atomically(path_of(path or self.default_path), data)
        return data

    @classmethod
    def load(cls, path: Name | None = None) -> Self:
        path = path_of(path or cls.default_path)
        document = codec.read(path, cls.schema, made_by=cls.made_by)
        with codec.reading(path, cls.made_by):
            return cls._checked(document)

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
        """The sha256 of the file that it is written to."""
        return codec.digest(self.to_json())

    def _document(self) -> dict[str, Any]:
        """What is written, apart from the schema and the version: the fields, unless overridden."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "version"}  # type: ignore[arg-type]

    @classmethod
    def _upgraded(cls, document: dict[str, Any]) -> dict[str, Any]:
        """A document of an older version in today's form; the same unless overridden."""
        return document

    @classmethod
    def _fields(cls, document: dict[str, Any]) -> dict[str, Any]:
        """The reverse of `_document`, of values that are not checked yet."""
        return document

    @classmethod
    def _checked(cls, document: Any) -> Self:
        found = document.get("schema") if isinstance(document, dict) else None
        if found != cls.schema:
            raise SchemaError(f"its schema is {found!r}, not {cls.schema!r}")
        document = cls._upgraded(document)
        rest = {name: value for name, value in document.items() if name != "schema"}
        value = validated(cls, cls._fields({"version": rest.pop("chunkscope"), **rest}))
        check_same(document, value.to_json(), cls.added_later)
        return value
