"""Files on other machines, through fsspec: s3://, gs://, az://, hf://, https:// and what it knows.

Credentials, endpoints and proxies are found where the library of each place looks for them. Files
are streamed: what was counted is forgotten.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
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

_AHEAD_BYTES = 4 << 20
_QUERY = re.compile(r"(https?://[^\s?]+)\?\S+")  # where signatures are


def remote_files(text: str) -> tuple[str, list[tuple[str, str, int | None]]]:
    """The name of the folder that an address or a glob stands for, "" for a file; and the files
    there, sorted: the address of each, its path below the folder, and its size.

    A `?` or `[` is part of a web address, and rather of a key's name than of a pattern.
    """
    with explaining(without_secrets(text), is_search=True):
        from fsspec.core import url_to_fs

        system, path = url_to_fs(text)
        system.invalidate_cache()  # of listings: a process may run for long
        folder = (
            path.split("*")[0].rpartition("/")[0] if "*" in text else path.rstrip("/")
        )
        root = PurePosixPath(folder).name or "/"
        if "*" in text:
            infos = system.glob(path, detail=True)
        elif (info := system.info(path))["type"] == "file":
            infos, folder, root = {path: info}, path.rpartition("/")[0], ""
        else:
            infos = system.find(path, detail=True)
    files = []
    for name, info in sorted(infos.items()):
        below = name.removeprefix(folder).lstrip("/")
        is_hidden = re.search(r"(^|/)\.", below)
        if info["type"] != "file" or name.endswith("/") or is_hidden:
            continue  # consoles make files called like a folder, to show it
        url = name if "://" in name else f"{text.split('://', 1)[0]}://{name}"
        # What is on the web is read from front to back: many servers send no parts of files.
        files.append(
            (url, below.split("?")[0], None if is_web(url) else info.get("size"))
        )
    return root, files


def is_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


def open_remote(url: str) -> IO[bytes]:
    """A file of which some is read ahead; one on the web is read from front to back."""
    with explaining(url):
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url)
        file: IO[bytes] = system.open(
            path, "rb", block_size=0 if is_web(url) else _AHEAD_BYTES
        )
    return file


# --- what libraries say ---------------------------------------------------------------------------

# By the names of exceptions, for their libraries may not be there.
_CAUSES = {
    "access": "NoCredentialsError PartialCredentialsError GoogleAuthError PermissionError",
    "network": "EndpointConnectionError ConnectTimeoutError ConnectionError ConnectError "
    "TimeoutError ClientConnectorError gaierror",
}
_NOT_FROM_THE_HUB = (
    "ConnectionError TimeoutError HTTPError TransportError HfHubHTTPError "
    "DatasetNotFoundError RepositoryNotFoundError GatedRepoError"
)


@contextmanager
def explaining(shown: str, *, is_search: bool = False) -> Iterator[None]:
    """Errors of any library as ours: while files are looked for about the place, else a file."""
    try:
        yield
    except (ChunkscopeError, GeneratorExit):
        raise
    except ImportError as error:
        raise MissingError(
            f"cannot read {shown}: {first_line(error)}",
            hint="pip install 'chunkscope[remote]' brings the libraries for s3, gs and az",
        ) from error
    except Exception as error:
        raise explained(shown, error, is_search=is_search) from error


def explained(
    shown: str, error: BaseException, *, is_search: bool = False
) -> ChunkscopeError:
    """What a library said about a file or a dataset, as a sentence of ours."""
    if not is_remote(shown) and not shown.startswith("hf:"):
        return cannot_read(shown, error)
    shown, words, chain = (
        without_secrets(shown),
        _QUERY.sub(r"\1", first_line(error)),
        [error],
    )
    while is_remote(shown) and (up := chain[-1].__cause__ or chain[-1].__context__):
        chain.append(up)
    kinds = {kind.__name__ for one in chain for kind in type(one).__mro__}
    causes = [cause for cause, names in _CAUSES.items() if kinds & {*names.split()}]
    if not is_remote(shown):
        # "LocalEntryNotFoundError" stands inside a sentence about files that were sought.
        is_missing = (
            kinds & {*_NOT_FROM_THE_HUB.split()} or "LocalEntryNotFoundError" in words
        )
        causes, is_search = (["hub"], True) if is_missing else (["dataset"], False)
    elif isinstance(error, ValueError) and "rotocol" in words:
        return UsageError(
            f"unknown kind of address: {shown}", hint="one of s3, gs, az, hf, https"
        )
    elif any(
        getattr(one, "status", 0) >= 500 for one in chain
    ):  # https calls that "not found"
        causes = []
    elif isinstance(error, FileNotFoundError):
        return DataError("not_there", path=shown)
    problem = DataError(
        "cannot_read", path=shown, why=words, cause=[*causes, "server"][0]
    )
    if is_search and causes:
        return MissingError(problem.message, hint=problem.hint)
    return problem
