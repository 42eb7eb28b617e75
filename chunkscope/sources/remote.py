"""Files on other machines, through fsspec: s3://, gs://, az://, hf://, https:// and what it knows.

Credentials, endpoints and proxies are found where the library of each place looks for them. Files
are streamed: what was counted is forgotten.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.sources.base import first_line
from chunkscope.sources.streams import Stream, spooled

_SCHEME = re.compile(r"([a-z][a-z0-9+.]*)://(?=.)", re.IGNORECASE)
_AHEAD_BYTES = 8 << 20  # of a file that is read from front to back
_JUMP_BYTES = 1 << 20  # of one that is jumped about in
_QUERY = re.compile(r"(https?://[^\s?]+)\?\S+")  # where signatures are
_ACCESS_HINT = (
    "give credentials as the library for it takes them (for s3: AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; a public bucket: FSSPEC_S3_ANON=true)"
)
_NETWORK_HINT = "is there a network, and is the address right (AWS_ENDPOINT_URL, a proxy)?"
_AGAIN_HINT = "did the server fail? Run it again"
_NO_ACCESS = {
    "NoCredentialsError", "PartialCredentialsError", "GoogleAuthError", "PermissionError",
}  # fmt: skip
_NO_NETWORK = {
    "EndpointConnectionError", "ConnectTimeoutError", "ConnectionError", "ConnectError",
    "ClientConnectorError", "TimeoutError", "gaierror",
}  # fmt: skip


class RemoteFile(NamedTuple):
    """A file, and where below what was asked for it lies."""

    url: str
    below: str
    size: int | None


def is_remote(text: str) -> bool:
    """`s3://bucket/x`; not `hf:org/name`, which is a dataset and no file."""
    return _SCHEME.match(text) is not None


def without_secrets(text: str) -> str:
    """As it may be shown and kept: a signed address has its password in it."""
    if not is_remote(text):
        return text
    scheme, rest = text.split("://", 1)
    if scheme.lower() in ("http", "https"):
        rest = rest.split("?")[0].split("#")[0]
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def remote_files(text: str) -> tuple[str, list[RemoteFile]]:
    """All files behind an address, sorted, and the name of the folder that they are below.

    The address may be a file (there is no folder then), a folder, or a glob. A `?` or `[` is part
    of a web address, and rather of a key's name than of a pattern.
    """
    with _looking_for(text):
        system, path = _system(text)
        system.invalidate_cache()  # of listings: a process may run for long
        scheme = text.split("://", 1)[0]
        if "*" in text:
            fixed = path.split("*")[0].rpartition("/")[0]
            listed = system.glob(path, detail=True)
            infos = {name: info for name, info in listed.items() if info["type"] == "file"}
        else:
            fixed = path.rstrip("/")
            info = system.info(path)
            if info["type"] == "file":
                return "", [_file(scheme, path, info, PurePosixPath(path).name)]
            infos = system.find(path, detail=True)
    files = [
        _file(scheme, name, info, name.removeprefix(fixed).lstrip("/"))
        for name, info in sorted(infos.items())
        if not name.endswith("/")  # what consoles make to show a folder
    ]
    is_hidden = re.compile(r"(^|/)\.")
    return PurePosixPath(fixed).name or "/", [f for f in files if not is_hidden.search(f.below)]


def _file(scheme: str, path: str, info: Any, below: str) -> RemoteFile:
    """What is on the web is read from front to back: many servers send no parts of files."""
    url = path if "://" in path else f"{scheme}://{path}"
    return RemoteFile(url, below.split("?")[0], None if _is_web(url) else info.get("size"))


def _is_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


def open_remote_stream(url: str, shown: str, *, size: int | None, start: int = 0) -> Stream:
    """A file from one of its bytes on; that it ends early is an error, which comes at the end."""
    how: dict[str, Any] = {"block_size": _AHEAD_BYTES, "cache_type": "readahead", "size": size}
    if size is None:
        how = {"block_size": 0} if _is_web(url) else {}
    file = _opened(url, **how)
    if start:
        file.seek(start)
    count, expected = 0, 0 if size is None else size - start

    def read(size: int) -> bytes:
        nonlocal count
        block = file.read(size)
        count += len(block)
        if not block and count < expected:
            raise InputError(
                f"{shown} ends early: {count:,} of {expected:,} bytes came",
                hint="was it replaced meanwhile? Run it again",
            )
        return block

    return Stream(read, file, partial(explained, shown))


def open_remote(url: str, shown: str) -> IO[bytes]:
    """For readers that jump about in a file; one from the web is copied first."""
    if _is_web(url):
        with open_remote_stream(url, shown, size=None) as stream:
            return spooled(stream, shown)
    return _opened(url, block_size=_JUMP_BYTES)


def _opened(url: str, **how: Any) -> IO[bytes]:
    try:
        system, path = _system(url)
        file: IO[bytes] = system.open(path, "rb", **how)
    except Exception as error:
        raise explained(url, error) from error
    return file


def _system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    return system, path


@contextmanager
def _looking_for(url: str) -> Iterator[None]:
    """What goes wrong while files are looked for is about the place, later about one of them."""
    shown = without_secrets(url)
    try:
        yield
    except ImportError as error:
        raise MissingError(
            f"cannot read {shown}: {first_line(error)}",
            hint="pip install 'chunkscope[remote]' brings the libraries for s3, gs and az",
        ) from error
    except Exception as error:
        if isinstance(error, ValueError) and "rotocol" in str(error):
            raise UsageError(
                f"unknown kind of address: {shown}", hint="one of s3, gs, az, hf, https"
            ) from error
        input_error = explained(shown, error)
        if input_error.hint in (_ACCESS_HINT, _NETWORK_HINT):
            raise MissingError(input_error.message, hint=input_error.hint) from error
        raise input_error from error


def explained(shown: str, error: BaseException) -> InputError:
    """What a library said about a file, as a sentence of ours."""
    shown, chain, cause = without_secrets(shown), [error], error.__cause__ or error.__context__
    while cause is not None:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    kinds = {kind.__name__ for one in chain for kind in type(one).__mro__}
    words = _QUERY.sub(r"\1", first_line(error))
    if isinstance(error, FileNotFoundError):
        if any(getattr(one, "status", 0) >= 500 for one in chain):  # https calls that "not found"
            return InputError(f"cannot read {shown}: the server failed", hint=_AGAIN_HINT)
        return InputError(f"there is no {shown}", hint="check the name; folders need files in them")
    if kinds & _NO_ACCESS:
        return InputError(f"{shown} may not be read: {words}", hint=_ACCESS_HINT)
    if kinds & _NO_NETWORK:
        place = f"{urlsplit(shown).scheme}://{urlsplit(shown).netloc}"
        return InputError(f"{place} cannot be reached: {words}", hint=_NETWORK_HINT)
    return InputError(f"cannot read {shown}: {words}", hint=_AGAIN_HINT)
