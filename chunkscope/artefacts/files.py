"""Files: written whole or not at all, and read; and the folder of the cache."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from stat import S_IWGRP, S_IWOTH
from typing import Any

from chunkscope.errors import InputError, UsageError

Name = str | os.PathLike[str]  # of a file


def several(value: Name | Sequence[Name]) -> tuple[str, ...]:
    """A single word or path is a list of one, not of its letters.

    >>> several("*.jsonl"), several(["a", "b"])
    (('*.jsonl',), ('a', 'b'))
    """
    is_list = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    names: tuple[Any, ...] = tuple(value) if is_list else (value,)  # type: ignore[arg-type]
    for name in names:
        if not isinstance(name, str | os.PathLike):
            hint = "names are text, and rows are read from a file: save them as JSON lines first"
            raise UsageError(f"not a name: {name!r:.60}", hint=hint)
    return tuple(map(str, names))


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Replace `path` by `data` in one step, so that a full disk or a kill leaves the old file."""
    parts = [data] if isinstance(data, bytes) else data
    temporary = path
    try:
        if (
            path.is_file() or path.is_dir() or not path.exists()
        ):  # and not -o /dev/stdout
            path = Path(os.path.realpath(path))  # a link is followed, not replaced
            temporary = path.parent / f"{path.name[:200]}.{os.urandom(4).hex()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.writelines(parts)
        if temporary != path:
            temporary.replace(path)
    except OSError as error:
        why = (
            "Not a directory"
            if isinstance(error, FileExistsError)
            else error.strerror or error
        )
        raise InputError(
            f"cannot write {path}: {why}",
            hint="choose another place with --output (gate: --config), or make this one writable",
        ) from error
    finally:
        if temporary != path:
            with suppress(OSError):
                temporary.unlink()


def read_text(path: Path, what: str = "file", *, hint: str) -> str:
    """A file that people write, called `what` in messages; `hint`: how to get one."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot read the {what} {path}: {reason}", hint=hint
        ) from None


def cache_folder() -> Path:
    """`$CHUNKSCOPE_CACHE_DIR`, else `~/.cache/chunkscope`; where that cannot be written, or others
    could have written it, a folder for this run alone: what a cache holds is believed."""
    place = os.environ.get("CHUNKSCOPE_CACHE_DIR")
    return _usable(
        place or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/chunkscope"
    )


@cache
def _usable(place: str) -> Path:
    # A container without a user has no home.
    with suppress(OSError, ValueError, RuntimeError):
        folder = Path(place).expanduser()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK) and _is_ours(folder):
            return folder
    temporary = tempfile.mkdtemp(prefix="chunkscope-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can have written it."""
    if not hasattr(os, "geteuid"):  # Windows has no such modes, and homes of its own
        return True
    status = folder.stat()
    others_write = status.st_mode & (S_IWGRP | S_IWOTH)
    return not others_write and status.st_uid in (os.geteuid(), 0)
