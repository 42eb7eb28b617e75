"""HTTP to a server that runs already, and what it tells about itself.

The key is sent to the host that was named and to no other: redirects are not followed,
and nothing of the environment (proxies, .netrc) is used. Where a server quotes the key,
it is shown as ***.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Self
from urllib.parse import urlsplit

import msgspec

from chunkscope.console import printable
from chunkscope.errors import MissingError, UsageError
from chunkscope.verification.endpoint import metrics
from chunkscope.verification.endpoint.metrics import Metrics
from chunkscope.vllm.log.failures import Status

PATIENCE_S = 30.0  # for what a server can say at once
# vLLM closes a connection that was idle for 5 s, and a busy one just when it is used
# again.
IDLE_S = 1.0
KEY_VARIABLES = "CHUNKSCOPE_API_KEY (over https also OPENAI_API_KEY)"
_MOST_BYTES = 64 << 20
_QUOTED = 300  # characters of a server's own text
# What people copy with an address: http://host:8000/v1/chat/completions
_ENDPOINT = re.compile(
    r"/*(/v1(/(chat/)?completions|/models)?|/metrics|/health|/docs)?/*$"
)


def parse_address(url: str) -> str:
    """What comes before /v1 or /metrics.

    A wrong address may hold a secret: it is not shown.
    """
    wrong = UsageError(
        "a server's address begins with http:// or https:// and has no password, "
        "? or #",
        hint="write it as in http://localhost:8000; put a key into the "
        f"environment variable {KEY_VARIABLES}",
    )
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise wrong
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise wrong
    return f"{parts.scheme}://{parts.netloc}{_ENDPOINT.sub('', parts.path)}"


def key_for(address: str) -> str:
    """The key for a server, or "".

    Everybody's key for OpenAI is not sent to whatever host is named, and never in the
    clear.
    """
    key = os.environ.get("CHUNKSCOPE_API_KEY", "")
    if not key and address.startswith("https://"):
        key = os.environ.get("OPENAI_API_KEY", "")
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise UsageError(
            "the API key has characters that a key cannot have",
            hint=f"is {KEY_VARIABLES} set to the key alone, without quotes or a "
            "newline?",
        )
    return key


class RequestFailed(Exception):  # noqa: N818  (it is what happened)
    """The message continues "the server ...".

    `code` is the HTTP status of an answer.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    @property
    def status(self) -> Status:
        """Would it say the same again?

        Then it is a refusal, all else is a breakdown.
        """
        if self.code is not None and 300 <= self.code < 500:
            return Status.REFUSED
        return Status.DIED


class Connection:
    """Many requests at once to one host. It is made where an event loop runs."""

    def __init__(self, url: str) -> None:
        import aiohttp

        self.address = parse_address(url)
        self._key = key_for(self.address)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
            headers=headers,
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
        """The answer as it comes in; RequestFailed unless it is 200.

        A `body` is posted.
        """
        import aiohttp

        method = "GET" if body is None else "POST"
        url = self.address + path
        try:
            async with self._session.request(
                method, url, data=body, allow_redirects=False
            ) as response:
                parts = response.content.iter_any()
                if response.status != HTTPStatus.OK:
                    text = self.safe(error_text(await whole(parts)))
                    said = f": {text}" if text else ""
                    raise RequestFailed(
                        f"answered {response.status}{said}", response.status
                    )
                yield parts
        except aiohttp.ClientPayloadError:
            raise RequestFailed("broke off its answer") from None
        except (aiohttp.ClientError, OSError) as error:
            text = str(error).replace(
                " ssl:default", ""
            )  # aiohttp says so of http, too
            detail = self.safe(text) or type(error).__name__
            raise RequestFailed(f"cannot be reached: {detail}") from None

    async def metrics(self) -> Metrics | None:
        """/metrics as it is now; None where there is none."""
        try:
            text = await self.ask("/metrics")
        except RequestFailed:
            return None
        return metrics.parse(text.decode("utf-8", "replace"))

    def safe(self, text: str) -> str:
        """Text of a stranger as it can be shown: one short line, without the key."""
        if self._key:
            text = text.replace(self._key, "***")
        text = printable(" ".join(text.split())).rstrip(".")
        return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."

    def unusable(self, failure: RequestFailed) -> MissingError:
        """A server that cannot be measured at all."""
        code = failure.code
        if code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            hint = f"put the right key into the environment variable {KEY_VARIABLES}"
        elif code == HTTPStatus.NOT_FOUND:
            hint = (
                "nothing is at /v1 there: name what comes before it "
                "(http://host:8000/prefix)"
            )
        elif code is not None and 300 <= code < 400:
            hint = (
                "name the address it redirects to if you trust it: the key goes to no "
                "other host"
            )
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


# -- what a server tells about itself --------------------------------------------------


class ErrorDetail(msgspec.Struct):
    message: str


class ErrorBody(msgspec.Struct):
    """`{"error": {"message": "..."}}`"""

    error: ErrorDetail


class ListedModel(msgspec.Struct):
    id: str
    owned_by: str | None = None
    max_model_len: Annotated[int, msgspec.Meta(ge=1)] | None = None


class ModelList(msgspec.Struct):
    """What /v1/models answers."""

    data: list[ListedModel]


class VersionBody(msgspec.Struct):
    version: str


def error_text(body: bytes) -> str:
    """The message of an error as OpenAI writes it, else the text itself."""
    try:
        return msgspec.json.decode(body, type=ErrorBody).error.message
    except (msgspec.MsgspecError, ValueError):
        text = body.decode("utf-8", "replace")
    return "" if "<html" in text.lower() else text


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
    listed = await _listed_model(connection, model)
    reading = await connection.metrics()
    if reading is not None and not reading.is_vllm:
        reading = None
    is_vllm = reading is not None or listed.owned_by == "vllm"
    return Server(
        model=listed.id,
        is_vllm=is_vllm,
        version=await _version(connection) if is_vllm else None,
        max_model_len=listed.max_model_len,
        metrics=reading,
    )


async def _version(connection: Connection) -> str | None:
    with contextlib.suppress(RequestFailed, msgspec.MsgspecError, ValueError):
        body = msgspec.json.decode(await connection.ask("/version"), type=VersionBody)
        return connection.safe(body.version)
    return None


async def _listed_model(connection: Connection, name: str | None) -> ListedModel:
    """The model of that name, or the only one."""
    address = connection.address
    try:
        models = await _models(connection)
    except RequestFailed as failure:
        if failure.code == HTTPStatus.NOT_FOUND and name is not None:
            return ListedModel(id=name)  # some servers have one model, and no list
        raise connection.unusable(failure) from None
    if not models:
        raise MissingError(
            f"{address} serves no model", hint="is it still loading one?"
        )
    names = ", ".join(model.id for model in models)
    hint = f"name one with --model: {connection.safe(names)}"
    if name is None and len(models) > 1:
        raise UsageError(f"{address} serves several models", hint=hint)
    for model in models:
        if name in (None, model.id):
            return model
    raise UsageError(f"{address} does not serve {name}", hint=hint)


async def _models(connection: Connection) -> list[ListedModel]:
    body = await connection.ask("/v1/models")
    try:
        return msgspec.json.decode(body, type=ModelList).data
    except (msgspec.MsgspecError, ValueError):
        raise MissingError(
            f"{connection.address} answers, but not as an OpenAI-compatible server "
            "does",
            hint="is it the address of the server itself? `/v1/models` must list its "
            "models",
        ) from None
