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

from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.sources.base import first_line
from chunkscope.sources.streams import Stream

_SCHEME = re.compile(r"([a-z][a-z0-9+.]*)://(?=.)", re.IGNORECASE)
_AHEAD_BYTES = 8 << 20  # of a file that is read from front to back
_JUMP_BYTES = 1 << 20  # of one that is jumped about in
_PROBE_S = 10.0
_PARTIAL = 206  # an answer with a part of a file
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
    with _explaining(text):
        system, path = _system(text)
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
    url = path if "://" in path else f"{scheme}://{path}"
    size = info.get("size")
    if _is_web(url) and not _gives_ranges(urlsplit(url).netloc, url):
        size = None  # it is read from front to back, and never in parts
    return RemoteFile(url, below.split("?")[0], size)


def _is_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


_ranges: dict[str, bool] = {}  # by server


def _gives_ranges(server: str, url: str) -> bool:
    """Whether a web server sends parts of files; few say so, some send all when asked for one."""
    from urllib.request import Request, urlopen

    if server not in _ranges:
        try:
            with urlopen(Request(url, headers={"Range": "bytes=0-0"}), timeout=_PROBE_S) as answer:  # noqa: S310
                _ranges[server] = answer.status == _PARTIAL
        except (OSError, ValueError):
            return False
    return _ranges[server]


def open_remote_stream(url: str, shown: str, *, size: int | None, start: int = 0) -> Stream:
    """A file from one of its bytes on; that it ends early is an error, which comes at the end."""
    with _explaining(url, one_of_many=True):
        system, path = _system(url)
        how: dict[str, Any] = {"block_size": _AHEAD_BYTES, "cache_type": "readahead", "size": size}
        if size is None:
            how = {"block_size": 0} if _is_web(url) else {}
        file = system.open(path, "rb", **how)
        if start:
            file.seek(start)
    count, expected = 0, 0 if size is None else size - start

    def read(size: int) -> bytes:
        nonlocal count
        block: bytes = file.read(size)
        count += len(block)
        if not block and count < expected:
            raise InputError(
                f"{shown} ends early: {count:,} of {expected:,} bytes came",
                hint="was it replaced meanwhile? Run it again",
            )
        return block

    return Stream(read, file, partial(explained, shown))


def open_remote(url: str) -> IO[bytes]:
    """For readers that jump about in a file."""
    with _explaining(url, one_of_many=True):
        system, path = _system(url)
        file: IO[bytes] = system.open(path, "rb", block_size=_JUMP_BYTES)
        return file


def _system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    # Listings are asked for anew: a process may run for long.
    anew = {"use_listings_cache": False} if re.match("(s3a?|gcs?|gs)://", url.lower()) else {}
    system, path = url_to_fs(url, **anew)
    return system, path


@contextmanager
def _explaining(url: str, *, one_of_many: bool = False) -> Iterator[None]:
    """What goes wrong while files are looked for is about the place, later about one of them."""
    shown = without_secrets(url)
    try:
        yield
    except ChunkscopeError:
        raise
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
        if not one_of_many and input_error.hint in (_ACCESS_HINT, _NETWORK_HINT):
            raise MissingError(input_error.message, hint=input_error.hint) from error
        raise input_error from error


def explained(shown: str, error: BaseException) -> InputError:
    """What a library said about a file, as a sentence of ours."""
    shown = without_secrets(shown)
    chain = list(_causes(error))
    kinds = {kind.__name__ for one in chain for kind in type(one).__mro__}
    words = _QUERY.sub(r"\1", first_line(error))
    if isinstance(error, FileNotFoundError):
        if any(getattr(one, "status", 0) >= 500 for one in chain):  # https calls that "not found"
            return InputError(f"cannot read {shown}: the server failed", hint=_AGAIN_HINT)
        hint = "check the name; a folder needs files below it"
        return InputError(f"there is no {shown}", hint=hint)
    if kinds & _NO_ACCESS:
        return InputError(f"{shown} may not be read: {words}", hint=_ACCESS_HINT)
    if kinds & _NO_NETWORK:
        place = f"{urlsplit(shown).scheme}://{urlsplit(shown).netloc}"
        return InputError(f"{place} cannot be reached: {words}", hint=_NETWORK_HINT)
    return InputError(f"cannot read {shown}: {words}", hint=_AGAIN_HINT)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
