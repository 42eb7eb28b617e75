"""Files on other machines, through fsspec: s3://, gs://, az://, hf://, https:// and what it knows.

Credentials, endpoints and proxies are found where the library of each place looks for them. Files
are streamed: what was counted is forgotten.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.sources.base import first_line
from chunkscope.sources.byte_stream import FileStream

_SCHEME = re.compile(r"([a-z][a-z0-9+.]*)://(?=.)", re.IGNORECASE)
_AHEAD_BYTES = 8 << 20  # of a file that is read from front to back
_COLUMN_BYTES = 1 << 20  # of one that is jumped about in
_ACCESS_HINT = (
    "give credentials as the library for it takes them (for s3: AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; a public bucket: FSSPEC_S3_ANON=true)"
)
_NETWORK_HINT = "is there a network, and is the address right (AWS_ENDPOINT_URL, a proxy)?"
_PROBE_S = 10.0
_PARTIAL = 206  # an answer with a part of a file
_AGAIN_HINT = "did the server fail? Run it again"
_QUERY = re.compile(r"(https?://[^\s?]+)\?\S+")  # where signatures are
_NO_ACCESS = ("NoCredentialsError", "PartialCredentialsError", "GoogleAuthError")
_NO_NETWORK = ("EndpointConnectionError", "ConnectTimeoutError", "ConnectionError", "ConnectError")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file, and where below what was asked for it lies."""

    url: str
    below: str
    size: int | None
    named: bool = False  # itself, not a folder or a glob


def remote_root(text: str) -> str:
    """The name of the folder that is asked for: "s3://bucket/data/*.jsonl" -> "data"."""
    fixed = text.split("://", 1)[1].split("*")[0].rpartition("/")[0] if "*" in text else text
    return PurePosixPath(fixed.split("://", 1)[-1].rstrip("/")).name


def remote_files(text: str) -> list[RemoteFile]:
    """All files behind an address, sorted: a file, what is below a folder, or what fits a glob."""
    with _explaining(text):
        system, path = _system(text)
        scheme = text.split("://", 1)[0]
        if _is_glob(text):
            fixed = path.split("*")[0].rpartition("/")[0]
            listed = system.glob(path, detail=True)
            found = {name: info for name, info in listed.items() if info["type"] == "file"}
        else:
            info = system.info(path)
            if info["type"] == "file":
                return [_file(scheme, path, info, PurePosixPath(path).name, named=True)]
            fixed = path.rstrip("/")
            found = system.find(path, detail=True)
    files = [
        _file(scheme, name, info, name.removeprefix(fixed).lstrip("/"))
        for name, info in sorted(found.items())
        if not name.endswith("/")  # what consoles make to show a folder
    ]
    return [f for f in files if not any(p.startswith(".") for p in PurePosixPath(f.below).parts)]


def _file(scheme: str, path: str, info: Any, below: str, *, named: bool = False) -> RemoteFile:
    url = path if "://" in path else f"{scheme}://{path}"
    size = info.get("size")
    if _is_web(url) and not _gives_ranges(urlsplit(url).netloc, url):
        size = None  # it is read from front to back, and never in pieces
    return RemoteFile(url=url, below=below.split("?")[0], size=size, named=named)


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


def _is_glob(text: str) -> bool:
    """A `?` or `[` is part of a web address, and rather of a key's name than of a pattern."""
    return "*" in text


def start_of(url: str, size: int) -> bytes:
    with _explaining(url):
        system, path = _system(url)
        with system.open(path, "rb", block_size=size) as file:
            data: bytes = file.read(size)
            return data


def open_stream(url: str, shown: str, *, start: int, size: int | None) -> "RemoteStream":
    with _explaining(url, one_of_many=True):
        system, path = _system(url)
        how: dict[str, Any] = {"block_size": _AHEAD_BYTES, "cache_type": "readahead", "size": size}
        if size is None:
            how = {"block_size": 0} if _is_web(url) else {}
        return RemoteStream(system.open(path, "rb", **how), shown, start=start, size=size)


def open_columns(url: str) -> IO[bytes]:
    """For pyarrow, which jumps about."""
    with _explaining(url, one_of_many=True):
        system, path = _system(url)
        file: IO[bytes] = system.open(path, "rb", block_size=_COLUMN_BYTES)
        return file


class RemoteStream(FileStream):
    """Its errors are sentences, and an end that comes early is one."""

    def __init__(self, file: IO[bytes], shown: str, *, start: int, size: int | None) -> None:
        super().__init__(file, shown, start=start)
        self._expected = None if size is None else size - start

    def _more(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except Exception as error:  # every library has its own
            raise explained(self._shown, error) from error
        if not data and self._expected is not None and self._taken < self._expected:
            raise InputError(
                f"{self._shown} ends early: {self._taken:,} of {self._expected:,} bytes came",
                hint="was it replaced meanwhile? Run it again",
            )
        return data


def _system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url, **_settings(url.split("://", 1)[0].lower()))
    return system, path


@cache
def _settings(scheme: str) -> dict[str, Any]:
    """Listings are asked for anew: a process may run for long."""
    return {"use_listings_cache": False} if scheme in ("s3", "s3a", "gs", "gcs") else {}


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
    except ValueError as error:
        if "rotocol" in str(error):
            raise UsageError(
                f"unknown kind of address: {shown}", hint="one of s3, gs, az, hf, https"
            ) from error
        raise explained(shown, error) from error
    except Exception as error:
        said = explained(shown, error)
        is_missing = not one_of_many and said.hint in (_ACCESS_HINT, _NETWORK_HINT)
        raise (MissingError(said.message, hint=said.hint) if is_missing else said) from error


def explained(shown: str, error: BaseException) -> InputError:
    """What a library said about a file, as a sentence of ours."""
    shown = without_secrets(shown)
    chain = list(_causes(error))
    kinds = {kind.__name__ for one in chain for kind in type(one).__mro__}
    said = _QUERY.sub(r"\1", first_line(Exception(str(error))))
    failed = any(getattr(one, "status", 0) >= 500 for one in chain)  # https calls that "not found"
    if failed and isinstance(error, FileNotFoundError):
        return InputError(f"cannot read {shown}: the server failed", hint=_AGAIN_HINT)
    if isinstance(error, FileNotFoundError):
        return InputError(
            f"there is no {shown}", hint="check the name; a folder needs files below it"
        )
    if kinds & {*_NO_ACCESS, "PermissionError"}:
        return InputError(f"{shown} may not be read: {said}", hint=_ACCESS_HINT)
    if kinds & {*_NO_NETWORK, "ClientConnectorError", "TimeoutError", "gaierror"}:
        return InputError(
            f"{urlsplit(shown).scheme}://{urlsplit(shown).netloc} cannot be reached: {said}",
            hint=_NETWORK_HINT,
        )
    return InputError(f"cannot read {shown}: {said}", hint=_AGAIN_HINT)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
