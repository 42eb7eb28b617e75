"""Files: JSON with a schema name and a checksum, written whole or not at all."""

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from chunkscope.errors import ChunkscopeError, InputError

CHECKSUM = "sha256"  # the key of a document that holds it


class CannotWriteError(InputError):
    """A disk that is full, a place that is not there or not ours."""


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Replace `path` by `data` in one step, so that a full disk or a kill leaves the old file."""
    parts = [data] if isinstance(data, bytes) else data
    with _writing(path):
        path = Path(os.path.realpath(path))  # a link is followed, not replaced
        if path.exists() and not path.is_file() and not path.is_dir():  # -o /dev/stdout
            with path.open("wb") as special:
                special.writelines(parts)
        else:
            _replace(path, parts, sync=True)


def write_checked(path: Path, data: bytes) -> None:
    """Write `data` under its own checksum, for `read_checked`: quickly, as a cache may lose it."""
    with _writing(path):
        _replace(path, (hashlib.sha256(data).hexdigest().encode(), b"\n", data))


def read_checked(path: Path) -> bytes:
    """What `write_checked` wrote; ValueError when it is not as it was written."""
    checksum, _, data = path.read_bytes().partition(b"\n")
    if checksum != hashlib.sha256(data).hexdigest().encode():
        raise ValueError(f"{path} is not as it was written")
    return data


def _replace(path: Path, parts: Iterable[bytes], *, sync: bool = False) -> None:
    # A name may be as long as the disk allows.
    temporary = os.path.join(path.parent, f"{path.name[:200]}.{secrets.token_hex(4)}")  # noqa: PTH118
    try:
        try:
            file = open(temporary, "xb")  # noqa: PTH123, SIM115  (thousands of them)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(temporary, "xb")  # noqa: PTH123, SIM115
        with file:
            file.writelines(parts)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise CannotWriteError(
            f"cannot write {path}: {getattr(error, 'strerror', None) or error}",
            hint="nothing was changed; choose another place with --output",
        ) from error


def dump(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with a checksum of everything else in it, in any order, behind its schema."""
    body = {name: value for name, value in document.items() if name != CHECKSUM}
    checksum = hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return {"schema": body["schema"], CHECKSUM: checksum, **body}


def read(path: Path, schema: str, *, made_by: str) -> dict[str, Any]:
    """Read an artefact and make sure that it is one of this kind and version, and whole."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"no such file: {path}", hint=f"run `{made_by}` first") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    with reading(path, made_by):
        document = orjson.loads(data)
    return checked(document, path, schema, made_by=made_by)


def checked(document: Any, what: Path | str, schema: str, *, made_by: str) -> dict[str, Any]:
    """The document, if it is of this schema and as it was written; InputError else."""
    written = document.get("schema") if isinstance(document, dict) else None
    if written != schema:
        raise InputError(
            f"{what} has schema {written!r}; this chunkscope reads {schema!r} here",
            hint=f"`{made_by}` writes it",
        )
    with reading(what, made_by):
        if document.get(CHECKSUM) != sealed(document)[CHECKSUM]:
            raise ValueError("its checksum is not that of its content")
    return dict(document)


@contextmanager
def reading(what: Path | str, made_by: str) -> Iterator[None]:
    """Whatever is wrong with the values of a document becomes the one sentence about damage."""
    try:
        yield
    except (ChunkscopeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{what} is damaged: {error}", hint=f"make it again: `{made_by}`"
        ) from None


def read_text(path: Path, what: str = "file", *, hint: str) -> str:
    """A file that people write, called `what` in messages; `hint`: how to get one."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"no such {what}: {path}", hint=hint) from None
    except UnicodeDecodeError:
        raise InputError(f"the {what} {path} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        ) from None
