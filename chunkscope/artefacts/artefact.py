"""An artefact: a dataclass that is also a JSON file. Its fields are the schema.

A file begins with its schema and a checksum of everything else in it: one that was torn
or edited by hand is refused. Figures that follow from the fields are written for people
and jq and not read.
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import orjson

from chunkscope._version import __version__
from chunkscope.artefacts.files import Name, read_text, write_atomically
from chunkscope.errors import ChunkscopeError, InputError

if TYPE_CHECKING:
    import pandas as pd

PRETTY = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
# Metadata of a field that may differ when the same input is worked on again: no part of
# the digest.
INCIDENTAL = {"incidental": True}
_NEVER_IDENTITY = {"created", "command", "version"}


def now() -> str:
    """When an artefact is `created`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Numbers(tuple[int, ...]):
    """Many whole numbers, which a file holds in one line instead of a list.

    >>> plain(Numbers([3, -1]))
    '3 -1'
    """

    __slots__ = ()


NO_NUMBERS = Numbers()


def dumped(value: Any, option: int = 0) -> bytes:
    """As JSON, which `built` takes back; `PRETTY` for people."""
    return orjson.dumps(
        value,
        default=lambda numbers: " ".join(map(str, numbers)),
        option=option | orjson.OPT_NON_STR_KEYS,
    )


def plain(value: Any) -> Any:
    """The same as JSON gives it back: dataclasses as dictionaries, tuples as lists."""
    return orjson.loads(dumped(value))


def built(kind: Any, value: Any) -> Any:
    """A value of this type from its JSON; ValueError names a part of another type.

    >>> built(dict[int, Numbers], {"3": "1 2"})
    {3: (1, 2)}
    """
    import msgspec

    def special(kind: Any, value: Any) -> Any:
        if kind is Numbers:
            return Numbers(int(word) for word in value.split())
        return kind(value)

    try:
        return msgspec.convert(value, kind, str_keys=True, dec_hook=special)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def checksum(document: dict[str, Any]) -> str:
    """Of everything else in the document, in any order."""
    body = {name: value for name, value in document.items() if name != "sha256"}
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()


def read(path: Path, schema: str, made_by: str) -> dict[str, Any]:
    """The document in a file; InputError where it is another one, or damaged."""
    text = read_text(path, hint=f"run `{made_by}` first")
    document = None
    with suppress(ValueError):  # it was cut off, or holds something else: data, perhaps
        document = orjson.loads(text)
    hint = f"run `{made_by}` first and pass its file"
    if not isinstance(document, dict) or not document.get("schema"):
        raise InputError(f"{path} is data or cut off, not a result", hint=hint)
    if document["schema"] != schema:
        raise InputError(f"{path} is {document['schema']}, not {schema}", hint=hint)
    if document.get("sha256") != checksum(document):
        raise InputError(
            f"{path} is damaged: its checksum is wrong", hint=f"run `{made_by}` again"
        )
    return dict(document)


class Shown:
    """What Python shows of a result: a few words, and in a notebook its table."""

    __slots__ = ()

    def summary(self) -> str:
        """What it is, in a few words."""
        return ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.summary()}".rstrip() + ">"

    def _repr_html_(self) -> str:
        table = ""
        if hasattr(self, "to_frame"):
            table = self.to_frame().to_html(index=False)
        return f"<p>{escape(repr(self))}</p>{table}"


class Artefact(Shown):
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
        values: dict[str, Any] = {
            "schema": self.schema,
            "sha256": "",
            "chunkscope": self.version or __version__,
        }
        figures = self.figures()
        if figures:
            values["figures"] = figures
        for field in fields(self):  # type: ignore[arg-type]
            if field.name != "version":
                values[field.name] = getattr(self, field.name)
        document: dict[str, Any] = plain(values)
        document["sha256"] = checksum(document)
        return document

    def save(self, path: Name | None = None) -> bytes:
        """Write it. Returns what was written."""
        data = dumped(self.to_json(), PRETTY)
        write_atomically(Path(path or self.default_path).expanduser(), data)
        return data

    @classmethod
    def load(cls, path: Self | Name | None = None) -> Self:
        """Read it from its file; an artefact is returned as it is."""
        if isinstance(path, cls):
            return path
        file = Path(path or cls.default_path).expanduser()  # type: ignore[arg-type]
        document = read(file, cls.schema, cls.made_by)
        try:
            value: Self = built(cls, {**document, "version": document["chunkscope"]})
        except (
            ChunkscopeError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
        ) as error:
            raise InputError(
                f"{file} is damaged: {error}", hint=f"run `{cls.made_by}`"
            ) from None
        return value

    def digest(self) -> str:
        """A hash of its content, the same whenever and wherever it was made."""
        data = orjson.dumps(_identity(self), option=orjson.OPT_SORT_KEYS, default=str)
        return hashlib.sha256(data).hexdigest()

    def figures(self) -> dict[str, Any]:
        """Values computed from the fields and written with them, for people and jq."""
        return {}


def _identity(value: Any) -> Any:
    """What counts of a value: a field that later versions add changes no digest."""
    if is_dataclass(value):
        parts = {}
        for field in fields(value):
            if field.name in _NEVER_IDENTITY or field.metadata:
                continue
            part = _identity(getattr(value, field.name))
            if part not in (None, "", [], {}):
                parts[field.name] = part
        return parts
    if isinstance(value, Mapping):  # a note may hold the command that was typed
        return {str(n): _identity(part) for n, part in value.items() if n != "command"}
    if isinstance(value, list | tuple):
        return [_identity(part) for part in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # as JSON may give it back
    return value


def frame(rows: Iterable[Mapping[str, Any]]) -> "pd.DataFrame":
    """A row for each mapping, a column for each name."""
    import pandas as pd

    return pd.DataFrame(list(rows))
