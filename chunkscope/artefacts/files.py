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

from chunkscope.errors import InputError, UsageError

Name = str | os.PathLike[str]  # of a file


def several(value: Name | Sequence[Name]) -> tuple[str, ...]:
    """A single word or path is a list of one, not of its letters.

    >>> several("*.jsonl"), several(["a", "b"])
    (('*.jsonl',), ('a', 'b'))
    """
    names: tuple[object, ...] = (value,)
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        names = tuple(value)
    texts = []
    for name in names:
        if not isinstance(name, str | os.PathLike):
            raise UsageError(
                f"not a name: {name!r:.60}",
                hint="names are text, and rows are read from a file: save them as JSON "
                "lines first",
            )
        texts.append(str(name))
    return tuple(texts)


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Replace a file in one step, so that a full disk or a kill leaves the old one."""
    parts = [data] if isinstance(data, bytes) else data
    temporary = path
    try:
        is_device = path.exists() and not path.is_file() and not path.is_dir()
        if not is_device:  # such as -o /dev/stdout, which cannot be replaced
            path = Path(os.path.realpath(path))  # a link is followed, not replaced
            temporary = path.parent / f"{path.name[:200]}.{os.urandom(4).hex()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.writelines(parts)
        if temporary != path:
            temporary.replace(path)
    except OSError as error:
        reason: object = error.strerror or error
        if isinstance(error, FileExistsError):
            reason = "Not a directory"
        raise InputError(
            f"cannot write {path}: {reason}",
            hint="choose another place with -o (gate: -c), or make this one writable",
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
    """`$CHUNKSCOPE_CACHE_DIR`, else `~/.cache/chunkscope`.

    Where that cannot be written, or others could have written it, it is a folder for
    this run alone: what a cache holds is believed.
    """
    place = os.environ.get("CHUNKSCOPE_CACHE_DIR")
    if not place:
        parent = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        place = f"{parent}/chunkscope"
    return _usable(place)


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
