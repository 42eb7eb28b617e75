"""Artefacts on disk: JSON with a schema name, written whole or not at all."""

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from chunkscope.artefacts.schema import SchemaError
from chunkscope.errors import ChunkscopeError, InputError

CHECKSUM = "sha256"  # the key of a document that holds it
_OURS = re.compile(r"chunkscope/([a-z]+)/\d+")


class CannotWriteError(InputError):
    """A disk that is full, a place that is not there or not ours."""


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Replace `path` by `data` in one step, so that a full disk or a kill leaves the old file."""
    parts = [data] if isinstance(data, bytes) else data
    try:
        path = Path(os.path.realpath(path))  # a link is followed, not replaced
        if _is_special(path):
            with path.open("wb") as special:
                special.writelines(parts)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".chunkscope-")
    except (OSError, ValueError) as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101  (mkstemp's 0600 is for secrets)
        os.replace(temporary, path)  # noqa: PTH105
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108


def write_checked(path: Path, data: bytes) -> None:
    """Write `data` under its own checksum, for `read_checked`: quickly, as a cache may lose it."""
    temporary = f"{path}.{os.getpid()}"
    try:
        try:
            file = open(temporary, "wb")  # noqa: PTH123, SIM115  (thousands of them)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.with_name(os.path.basename(temporary)).open("wb")  # noqa: PTH119
        with file:
            file.write(_checksum(data) + b"\n" + data)
        os.replace(temporary, path)  # noqa: PTH105
    except OSError as error:
        raise _cannot_write(path, error) from error


def read_checked(path: Path) -> bytes:
    """What `write_checked` wrote; ValueError when it is not as it was written."""
    checksum, _, data = path.read_bytes().partition(b"\n")
    if checksum != _checksum(data):
        raise ValueError(f"{path} is not as it was written")
    return data


def _checksum(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _is_special(path: Path) -> bool:
    """A device or a pipe (`-o /dev/stdout`) is written to: root could replace it by a file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


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
        document = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"no such file: {path}", hint=f"run `{made_by}` first") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise _damaged(path, f"not JSON: {error}", made_by) from error
    return checked(document, path, schema, made_by=made_by)


def checked(document: Any, what: Path | str, schema: str, *, made_by: str) -> dict[str, Any]:
    """The document, if it is of this schema and as it was written; InputError else."""
    written = document.get("schema") if isinstance(document, dict) else None
    if written != schema:
        kind, _, version = schema.rpartition("/")
        if isinstance(written, str) and written.startswith(kind + "/"):
            raise InputError(
                f"{what} has schema {written}; this chunkscope reads version {version}",
                hint=f"run `{made_by}` again with this version, or update chunkscope",
            )
        if isinstance(written, str) and (other := _OURS.fullmatch(written)):
            raise InputError(
                f"{what} is a {other[1]} file, not a {kind.partition('/')[2]} file",
                hint=f"`{made_by}` writes one",
            )
        raise _damaged(what, f"its schema is {written!r}, not {schema!r}", made_by)
    with reading(what, made_by):
        if document.get(CHECKSUM) != sealed(document)[CHECKSUM]:
            raise SchemaError("it is not as it was written (its checksum differs)")
    found: dict[str, Any] = document
    return found


def read_text(path: Path, what: str = "file", *, hint: str) -> str:
    """A file that people write, called `what` in messages; `hint`: how to get one."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"no such {what}: {path}", hint=hint) from None
    except (OSError, ValueError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
        named = path if what == "file" else f"the {what} {path}"
        raise InputError(
            f"cannot read {named}: {getattr(error, 'strerror', None) or why}"
        ) from None


@contextmanager
def reading(what: Path | str, made_by: str) -> Iterator[None]:
    """Whatever is wrong with the values of a document becomes the one sentence about damage."""
    try:
        yield
    except (SchemaError, ChunkscopeError) as error:  # the latter from values that check themselves
        raise _damaged(what, str(error), made_by) from None
    except KeyError as error:
        raise _damaged(what, f"{error.args[0]} is missing", made_by) from None
    except (TypeError, ValueError, AttributeError) as error:  # a text where a dictionary should be
        raise _damaged(what, f"it is built differently ({error})", made_by) from None


def _damaged(what: Path | str, why: str, made_by: str) -> InputError:
    return InputError(f"{what} is damaged: {why}", hint=f"make it again: `{made_by}`")


def _cannot_write(path: Path, error: OSError | ValueError) -> CannotWriteError:
    return CannotWriteError(
        f"cannot write {path}: {getattr(error, 'strerror', None) or error}",
        hint="nothing was changed; choose another place with --output",
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
