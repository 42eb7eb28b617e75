"""An artefact: a dataclass that is also a JSON file. Its fields are the schema.

A file begins with its schema and a checksum of everything else in it: one that was torn or edited
by hand is refused. Figures that follow from the fields are written for people and jq and not read.
"""

import hashlib
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from functools import cache
from html import escape
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Union

import orjson

from chunkscope._version import __version__
from chunkscope.artefacts.files import read_text, write_atomically
from chunkscope.artefacts.words import Name
from chunkscope.errors import ChunkscopeError, InputError

if TYPE_CHECKING:
    import pandas as pd

CHECKSUM = "sha256"  # the key of a document that holds it
# Metadata of a field that may differ when the same input is worked on again: no part of the digest.
INCIDENTAL = {"incidental": True}
_NEVER_IDENTITY = {"created", "command", "version"}


def now() -> str:
    """When an artefact is `created`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- values as JSON and back ----------------------------------------------------------------------


class Numbers(tuple[int, ...]):
    """Many whole numbers, which a file has as one line: as a list they would fill most of it.

    >>> plain(Numbers([3, -1]))
    '3 -1'
    """

    __slots__ = ()


NO_NUMBERS = Numbers()


def plain(value: Any) -> Any:
    """The same as JSON gives it back: dataclasses as dictionaries, tuples as lists."""
    return orjson.loads(dumped(value))


def dumped(value: Any) -> bytes:
    """As JSON, which `built` takes back."""

    def written(numbers: Numbers) -> str:
        return " ".join(map(str, numbers))

    return orjson.dumps(value, default=written, option=orjson.OPT_NON_STR_KEYS)


def dump(document: dict[str, Any]) -> bytes:
    """As JSON for people."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


_hints = cache(typing.get_type_hints)


def built(kind: Any, value: Any, where: str = "") -> Any:
    """A value of this type from its JSON; ValueError names a part that is wrong or unknown.

    >>> built(dict[int, Numbers], {"3": "1 2"})
    {3: (1, 2)}
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or (origin is Literal and value in parts):
        return value
    if origin in (Union, UnionType):
        *others, last = sorted(parts, key=lambda part: part is not NoneType)
        for part in others:
            with suppress(ValueError, TypeError):
                return built(part, value, where)
        return built(last, value, where)
    if origin in (tuple, list) and isinstance(value, list):
        return origin(built(parts[0], one, f"{where}.{n}") for n, one in enumerate(value))
    if isinstance(value, dict) and origin in (dict, Mapping):
        return {parts[0](k): built(parts[1], one, f"{where}.{k}") for k, one in value.items()}
    if isinstance(value, dict) and is_dataclass(kind):
        hints = _hints(kind)  # type: ignore[arg-type]
        if unknown := value.keys() - hints:
            raise ValueError(f"{where}.{min(unknown)}: unknown".lstrip("."))
        return kind(**{n: built(hints[n], one, f"{where}.{n}") for n, one in value.items()})  # type: ignore[operator]
    if isinstance(value, str) and kind is Numbers:
        return Numbers(map(int, value.split()))
    if isinstance(value, str) and isinstance(kind, type) and issubclass(kind, str | Path):
        return kind(value)
    if isinstance(value, str) and kind is date:
        return date.fromisoformat(value)
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise ValueError(
        f"{where.lstrip('.')}: {str(value)[:40]!r} is no {getattr(kind, '__name__', kind)}"
    )


# --- files ----------------------------------------------------------------------------------------


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with a checksum of everything else in it, in any order, behind its schema."""
    body = {name: value for name, value in document.items() if name != CHECKSUM}
    checksum = hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return {"schema": body["schema"], CHECKSUM: checksum, **body}


def read(path: Path, made_by: str) -> Any:
    """The JSON in a file; None where it holds something else: data, perhaps."""
    text = read_text(path, hint=f"run `{made_by}` first")
    with suppress(ValueError):
        return orjson.loads(text)
    return None


def checked(document: Any, what: str, schema: str, made_by: str) -> dict[str, Any]:
    """The document as it was written; InputError where it is another, or damaged."""
    written = document.get("schema") if isinstance(document, dict) else None
    if written != schema:
        raise InputError(
            f"{what} has schema {written!r}; this chunkscope reads {schema!r} here",
            hint=f"`{made_by}` writes it",
        )
    whole: dict[str, Any] = sealed(document)
    if document.get(CHECKSUM) != whole[CHECKSUM]:
        hint = f"make it again: `{made_by}`"
        raise InputError(f"{what} is damaged: its checksum is not that of its content", hint=hint)
    return whole


class Artefact:
    """The base of every artefact's dataclass, which has to have a `version`.

    Its schema is `chunkscope/KIND/NUMBER`; it is written to `reports/KIND.json`.
    """

    __slots__ = ()

    schema: ClassVar[str]
    made_by: ClassVar[str]
    default_path: ClassVar[Path]
    version: str

    def __init_subclass__(cls) -> None:
        cls.default_path = Path(f"reports/{cls.schema.split('/')[1]}.json")

    def to_json(self) -> dict[str, Any]:
        """The document as it is written, in plain values."""
        head = {"schema": self.schema, "chunkscope": self.version or __version__}
        figures = {"figures": self.figures()} if self.figures() else {}
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "version"}  # type: ignore[arg-type]
        return sealed(plain(head | figures | content))

    def save(self, path: Name | None = None) -> bytes:
        """Write it; what was written comes back."""
        data = dump(self.to_json())
        write_atomically(Path(path or self.default_path).expanduser(), data)
        return data

    @classmethod
    def load(cls, path: Self | Name | None = None) -> Self:
        """From its file; an artefact that was loaded before is that."""
        if isinstance(path, cls):
            return path
        file = Path(path or cls.default_path).expanduser()  # type: ignore[arg-type]
        return cls.from_json(read(file, cls.made_by), str(file))

    @classmethod
    def from_json(cls, document: Any, what: str = "the artefact") -> Self:
        """Read back what `to_json` wrote; InputError when it is not that."""
        body = checked(document, what, cls.schema, cls.made_by)
        body["version"] = body.pop("chunkscope", None)
        for name in ("schema", CHECKSUM, "figures"):
            body.pop(name, None)
        try:
            value: Self = built(cls, body)
        except (ChunkscopeError, LookupError, TypeError, ValueError, AttributeError) as error:
            hint = f"make it again: `{cls.made_by}`"
            raise InputError(f"{what} is damaged: {error}", hint=hint) from None
        return value

    def digest(self) -> str:
        """What it is by its content: the same whenever, wherever and however it was made."""
        data = orjson.dumps(_identity(self), option=orjson.OPT_SORT_KEYS, default=str)
        return hashlib.sha256(data).hexdigest()

    def figures(self) -> dict[str, Any]:
        """What follows from the fields and is written besides, for people and jq."""
        return {}

    @property
    def headline(self) -> str:
        """What it says, in one line."""
        raise NotImplementedError

    def to_frame(self) -> "pd.DataFrame":
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.headline}>"

    def _repr_html_(self) -> str:
        """A notebook shows the headline above the table."""
        return f"<p>{escape(self.headline)}</p>{self.to_frame().to_html(index=False)}"


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


# --- in a notebook --------------------------------------------------------------------------------


def frame(rows: Iterable[Mapping[str, Any]]) -> "pd.DataFrame":
    """A row for each mapping, a column for each name."""
    import pandas as pd

    return pd.DataFrame(list(rows))
