"""HTTP to a server that runs already, and what it tells about itself.

The key is sent to the host that was named and to no other: redirects are not followed, and
nothing of the environment (proxies, .netrc) is used. Where a server quotes the key, it is shown
as ***.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from chunkscope.errors import MissingError, UsageError
from chunkscope.sources.base import printable
from chunkscope.verification.endpoint import metrics
from chunkscope.verification.endpoint.metrics import Metrics
from chunkscope.vllm.log.failures import Status

PATIENCE_S = 30.0  # for what a server can say at once
# vLLM closes a connection that was idle for 5 s, and a busy one just when it is used again.
IDLE_S = 1.0
KEY_VARIABLES = "CHUNKSCOPE_API_KEY (over https also OPENAI_API_KEY)"
_MOST_BYTES = 64 << 20
_QUOTED = 300
_ENDPOINT = re.compile(
    r"/*(/v1(/(chat/)?completions|/models)?|/metrics|/health|/docs)?/*$"
)


def parse_address(url: str) -> str:
    """What comes before /v1 or /metrics, as it may be written. A wrong one may hold a secret."""
    try:
        parts = urlsplit(url.strip())
        is_fine = (
            parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        )
    except ValueError:
        is_fine = False
    if not is_fine or "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError(
            "a server's address begins with http:// or https:// and has no password, ? or #",
            hint="write it as in http://localhost:8000; put a key into the "
            f"environment variable {KEY_VARIABLES}",
        )
    return f"{parts.scheme}://{parts.netloc}{_ENDPOINT.sub('', parts.path)}"


def key_for(address: str) -> str | None:
    """Everybody's key for OpenAI is not sent to whatever host is named, and never in the clear."""
    key = os.environ.get("CHUNKSCOPE_API_KEY")
    is_safe = address.startswith("https://")
    return key or (os.environ.get("OPENAI_API_KEY") if is_safe else None)


class RequestFailed(Exception):  # noqa: N818  (it is what happened)
    """The message continues "the server ..."; `code` is the HTTP status of an answer."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.message, self.code = message, code

    @property
    def status(self) -> Status:
        """Would it say the same again? Then it is a refusal, all else is a breakdown."""
        return Status.REFUSED if self.code and 300 <= self.code < 500 else Status.DIED


class Connection:
    """Many requests at once to one host. It is made where an event loop runs."""

    def __init__(self, url: str) -> None:
        import aiohttp

        self.address = parse_address(url)
        self._key = key = key_for(self.address) or ""
        if not (key.isascii() and key.isprintable() and key == key.strip()):
            raise UsageError(
                "the API key has characters that a key cannot have",
                hint=f"is {KEY_VARIABLES} set to the key alone, without quotes or a newline?",
            )
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
            headers=headers | ({"Authorization": f"Bearer {key}"} if key else {}),
            # How long all of it may take is for the caller to say.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE_S),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *ignored: object) -> None:
        await self._session.close()

    async def ask(self, path: str) -> bytes:
        """A question that is answered at once, or it is a failure."""
        try:
            async with asyncio.timeout(PATIENCE_S), self.stream(path) as parts:
                return await whole(parts)
        except TimeoutError:
            raise RequestFailed(f"gave no answer within {PATIENCE_S:.0f} s") from None

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The answer as it comes in; RequestFailed unless it is 200. A `body` is posted."""
        import aiohttp

        method, url = "GET" if body is None else "POST", self.address + path
        try:
            async with self._session.request(
                method, url, data=body, allow_redirects=False
            ) as response:
                parts, status = response.content.iter_any(), response.status
                if status != HTTPStatus.OK:
                    message = self.safe(_message(await whole(parts)))
                    raise RequestFailed(
                        f"answered {status}{message and f': {message}'}", status
                    )
                yield parts
        except aiohttp.ClientPayloadError:
            raise RequestFailed("broke off its answer") from None
        except (aiohttp.ClientError, OSError) as error:
            text = str(error).replace(" ssl:default", "")  # which is http, too
            detail = self.safe(text) or type(error).__name__
            raise RequestFailed(f"cannot be reached: {detail}") from None

    async def metrics(self) -> Metrics | None:
        """/metrics as it is now; None where there is none."""
        with contextlib.suppress(RequestFailed):
            return metrics.parse(
                (await self.ask("/metrics")).decode("utf-8", "replace")
            )
        return None

    def safe(self, text: str) -> str:
        """Text of a stranger as it can be shown: on one line, not too long, without the key."""
        text = text.replace(self._key, "***") if self._key else text
        text = printable(" ".join(text.split())).rstrip(".")
        return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."

    def unusable(self, failure: RequestFailed) -> MissingError:
        """A server that cannot be measured at all."""
        if failure.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            hint = f"put the right key into the environment variable {KEY_VARIABLES}"
        elif failure.code and 300 <= failure.code < 400:
            hint = "name the address it redirects to if you trust it: the key goes to no other host"
        elif failure.code == HTTPStatus.NOT_FOUND:
            hint = "nothing is at /v1 there: name what comes before it (http://host:8000/prefix)"
        else:
            hint = (
                "is it running? Start it with `vllm serve MODEL`, or check the address"
            )
        return MissingError(f"{self.address} {failure.message}", hint=hint)


async def whole(parts: AsyncIterator[bytes]) -> bytes:
    """All of an answer, unless it is too large to be one."""
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > _MOST_BYTES:
            raise RequestFailed(f"sent an answer of more than {_MOST_BYTES >> 20} MB")
    return bytes(body)


def _part(body: bytes, name: str) -> Any:
    """One part of the object in an answer; None where there is none."""
    try:
        content = orjson.loads(body)
    except ValueError:
        return None
    return content.get(name) if isinstance(content, dict) else None


def _message(body: bytes) -> str:
    """That of an error in any of the usual shapes, else the text itself."""
    part = _part(body, "error") or _part(body, "detail") or _part(body, "message")
    part = part.get("message") if isinstance(part, dict) else part
    text = part if isinstance(part, str) else body.decode("utf-8", "replace")
    return "" if "<html" in text.lower() else text


# -- what a server tells about itself ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One model that is served. None is what is not told."""

    model: str
    is_vllm: bool = False
    version: str | None = None
    max_model_len: int | None = None
    metrics: Metrics | None = None


async def meet(connection: Connection, model: str | None) -> Server:
    """Find out who answers; an error of ours when that is nobody."""
    server = _choose(await _models(connection, model), model, connection)
    reading = await connection.metrics()
    if reading is not None and reading.is_vllm:
        server = replace(server, is_vllm=True, metrics=reading)
    with contextlib.suppress(RequestFailed):
        version = (
            _part(await connection.ask("/version"), "version")
            if server.is_vllm
            else None
        )
        if isinstance(version, str):
            server = replace(server, version=connection.safe(version))
    return server


async def _models(connection: Connection, model: str | None) -> list[Server]:
    try:
        listed = _part(await connection.ask("/v1/models"), "data")
    except RequestFailed as failure:
        if failure.code == HTTPStatus.NOT_FOUND and model is not None:
            return []  # some servers have only the one thing they are there for
        raise connection.unusable(failure) from None
    if not isinstance(listed, list):
        raise MissingError(
            f"{connection.address} answers, but not as an OpenAI-compatible server does",
            hint="is it the address of the server itself? `/v1/models` must list its models",
        )
    servers = []
    for entry in listed:
        if isinstance(entry, dict) and entry.get("id"):
            longest, is_vllm = (
                entry.get("max_model_len"),
                entry.get("owned_by") == "vllm",
            )
            is_length = type(longest) is int and 0 < longest <= metrics.MOST
            length = longest if is_length else None
            servers.append(
                Server(model=str(entry["id"]), is_vllm=is_vllm, max_model_len=length)
            )
    return servers


def _choose(
    models: Sequence[Server], name: str | None, connection: Connection
) -> Server:
    address, names = connection.address, [server.model for server in models]
    hint = f"name one with --model: {connection.safe(', '.join(names))}"
    if not models and name is None:
        raise MissingError(
            f"{address} serves no model", hint="is it still loading one?"
        )
    if name is None and len(models) > 1:
        raise UsageError(f"{address} serves several models", hint=hint)
    if name is not None and models and name not in names:
        raise UsageError(f"{address} does not serve {name}", hint=hint)
    return next(
        (s for s in models if name in (None, s.model)), Server(model=name or "")
    )
