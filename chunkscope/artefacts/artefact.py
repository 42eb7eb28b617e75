"""An artefact: a dataclass that is also a file. Its fields are the schema.

A file begins with its schema and a checksum of everything else in it: one that was torn or edited
by hand is refused. Figures that follow from the fields are written for people and jq and not read.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import orjson

from chunkscope._version import __version__
from chunkscope.artefacts import codec
from chunkscope.artefacts.files import write_atomically
from chunkscope.artefacts.words import Name
from chunkscope.errors import MissingError

if TYPE_CHECKING:
    import pandas as pd

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
        return codec.sealed(codec.plain(head | figures | content))

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read back what `to_json` wrote; InputError when it is not that."""
        return codec.checked(document, f"the {cls.title}", cls.schema, cls.made_by, cls._built)

    def save(self, path: Name | None = None) -> bytes:
        """Write it; what was written comes back."""
        data = codec.dump(self.to_json())
        write_atomically(Path(path or self.default_path).expanduser(), data)
        return data

    @classmethod
    def load(cls, path: Name | None = None) -> Self:
        file = Path(path or cls.default_path).expanduser()
        return codec.read(file, cls.schema, cls.made_by, cls._built)

    @classmethod
    def _built(cls, document: dict[str, Any]) -> Self:
        head = ("schema", "chunkscope", codec.CHECKSUM, "figures")
        body = {name: value for name, value in document.items() if name not in head}
        value: Self = codec.built(cls, body | {"version": document["chunkscope"]})
        return value

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

    def _repr_html_(self) -> str | None:
        """A notebook shows the headline above the table."""
        if find_spec("pandas") is None:
            return None
        return f"<p>{escape(self.headline)}</p>{self.to_frame().to_html(index=False)}"

    def to_frame(self) -> "pd.DataFrame":
        raise NotImplementedError

    def digest(self) -> str:
        """What it is by its content: the same whenever, wherever and however it was made."""
        data = orjson.dumps(_identity(self), option=orjson.OPT_SORT_KEYS, default=str)
        return hashlib.sha256(data).hexdigest()

    def figures(self) -> dict[str, Any]:
        """What follows from the fields and is written besides, for people and jq."""
        return {}


def frame(rows: Iterable[Mapping[str, Any]]) -> "pd.DataFrame":
    """A row for each mapping, a column for each name."""
    table: pd.DataFrame = _installed("pandas").DataFrame(list(rows))
    return table


def bar_chart(title: str, bars: Mapping[str, float]) -> Any:
    """Horizontal bars, the first on top, as matplotlib's Axes."""
    _, axes = _installed("matplotlib.pyplot").subplots()
    axes.barh(list(bars), list(bars.values()))
    axes.invert_yaxis()
    axes.set_xlabel(title)
    return axes


def _installed(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MissingError(f"this needs {package}", hint=f"pip install {package}") from None


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
