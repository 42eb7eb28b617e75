"""Files on other machines, through fsspec: s3://, gs://, az://, hf://, https://, ...

Credentials, endpoints and proxies are found where the library of each place looks for
them. Files are streamed: what was counted is forgotten.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO

from chunkscope.errors import ChunkscopeError, MissingError, UsageError
from chunkscope.sources.base import (
    DataError,
    cannot_read,
    first_line,
    is_remote,
    without_secrets,
)

AHEAD_BYTES = 4 << 20
QUERY = re.compile(r"(https?://[^\s?]+)\?\S+")  # where signatures are


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """`below` is its path below the folder that was named."""

    url: str
    below: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """What is behind an address; `folder` is "" where that is a file."""

    folder: str
    files: list[RemoteFile]


def remote_files(address: str) -> RemoteFiles:
    """The files behind the address of a file or a folder, or a glob; sorted.

    Only `*` makes a glob: a `?` is part of a web address, and `[` rather of a key's
    name than of a pattern.
    """
    with explaining(without_secrets(address), is_search=True):
        from fsspec.core import url_to_fs

        system, path = url_to_fs(address)
        system.invalidate_cache()  # of listings: a process may run for long
        folder = path.rstrip("/")
        name = PurePosixPath(folder).name or "/"
        if "*" in address:
            folder = path.split("*")[0].rpartition("/")[0]
            name = PurePosixPath(folder).name or "/"
            infos = system.glob(path, detail=True)
        else:
            info = system.info(path)
            if info["type"] == "file":
                folder = path.rpartition("/")[0]
                name = ""
                infos = {path: info}
            else:
                infos = system.find(path, detail=True)
    scheme = address.split("://", 1)[0]
    files = []
    for key, info in sorted(infos.items()):
        below = key.removeprefix(folder).lstrip("/")
        # Consoles make files that are called like a folder, to show it.
        if info["type"] != "file" or key.endswith("/") or _is_hidden(below):
            continue
        url = key if "://" in key else f"{scheme}://{key}"
        # A file on the web is read from front to back: many servers send no parts.
        size = None if is_web(url) else info.get("size")
        files.append(RemoteFile(url, below.split("?")[0], size))
    return RemoteFiles(name, files)


def _is_hidden(below: str) -> bool:
    return any(part.startswith(".") for part in below.split("/"))


def is_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


def open_remote(url: str) -> IO[bytes]:
    """A file of which some is read ahead; one on the web from front to back."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    block_size = 0 if is_web(url) else AHEAD_BYTES
    file: IO[bytes] = system.open(path, "rb", block_size=block_size)
    return file


# --- what libraries say ---------------------------------------------------------------


@contextmanager
def explaining(shown: str, *, is_search: bool = False) -> Iterator[None]:
    """Errors of any library as ours.

    While files are looked for, a place that does not answer is missing, not broken.
    """
    try:
        yield
    except ChunkscopeError:
        raise
    except Exception as error:
        ours = explained(shown, error)
        is_unreached = isinstance(ours, DataError) and ours.note.code == "cannot_read"
        if is_search and is_unreached and is_remote(shown):
            raise MissingError(ours.message, hint=ours.hint) from error
        raise ours from error


def explained(shown: str, error: Exception) -> ChunkscopeError:
    """What a library said about a file or a dataset, as a sentence of ours."""
    if isinstance(error, ChunkscopeError):
        return error
    if isinstance(error, ImportError):
        return MissingError(
            f"cannot read {shown}: {first_line(error)}",
            hint="its library is missing: pip install s3fs, gcsfs or adlfs",
        )
    if shown.startswith("hf:"):
        why = first_line(error)
        problem = DataError("cannot_read", path=shown, why=why, cause="hub")
        # An OSError is about the way to the hub, any other about the dataset.
        if isinstance(error, OSError):
            return MissingError(problem.message, hint=problem.hint)
        return problem
    if is_remote(shown):
        return _remote_error(without_secrets(shown), error)
    return cannot_read(shown, error)


def _remote_error(shown: str, error: Exception) -> DataError | UsageError:
    why = QUERY.sub(r"\1", first_line(error))
    if isinstance(error, ValueError) and "rotocol" in why:
        return UsageError(
            f"unknown kind of address: {shown}", hint="one of s3, gs, az, hf, https"
        )
    status = getattr(error.__cause__, "status", 0)
    # https calls a server's failure "not found" as well.
    if isinstance(error, FileNotFoundError) and status < 500:
        return DataError("not_there", path=shown)
    return DataError("cannot_read", path=shown, why=why, cause="remote")
