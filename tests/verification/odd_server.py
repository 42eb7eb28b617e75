"""A small OpenAI-compatible server whose every answer can be made odd.

It stands beside the real one (test_real_endpoint.py), for what no real server does on
call.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class OddServer:
    """Serves in a thread of its own: `with OddServer(...) as server: server.url`.

    `answer` takes over `/v1/completions`; `routes` adds to or replaces the others.
    """

    answer: Handler | None = None
    models: Any = None
    routes: dict[str, Handler] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(
        default_factory=list
    )
    url: str = ""

    def __enter__(self) -> "OddServer":
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._until_end(ready)), daemon=True
        )
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *ignored: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What was asked for, of those paths that answer prompts."""
        return [body for path, _, body in self.requests if path.endswith("completions")]

    async def _until_end(self, ready: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._any)
        async with TestServer(application, shutdown_timeout=0.1) as server:
            self.url = f"http://127.0.0.1:{server.port}"
            ready.set()
            await self._end.wait()

    async def _any(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else {}
        self.requests.append((request.path, dict(request.headers), body))
        known = {
            "/v1/models": self._models,
            "/v1/completions": self.answer or streamed("Hello", " you", "!"),
            **self.routes,
        }
        if request.path not in known:
            return web.json_response({"detail": "Not Found"}, status=404)
        return await known[request.path](request)

    async def _models(self, _: web.Request) -> web.StreamResponse:
        if self.models is not None:
            return web.json_response(self.models)
        return web.json_response(
            {"object": "list", "data": [{"id": "odd", "owned_by": "me"}]}
        )


def says(status: int, body: Any, **headers: str) -> Handler:
    """The same answer to everything."""

    async def answer(_: web.Request) -> web.StreamResponse:
        if isinstance(body, str):
            return web.Response(status=status, text=body, headers=headers)
        return web.json_response(body, status=status, headers=headers)

    return answer


def event(text: str, *, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def usage(prompt: int, output: int, **details: Any) -> bytes:
    counted = {"prompt_tokens": prompt, "completion_tokens": output, **details}
    return b"data: " + json.dumps({"choices": [], "usage": counted}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def raw(*parts: bytes, pause_s: float = 0.0) -> Handler:
    """Exactly these bytes, one after the other."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(pause_s)
        await response.write_eof()
        return response

    return answer


def streamed(*texts: str, pause_s: float = 0.0) -> Handler:
    """An answer in pieces, with the usage at its end, as OpenAI sends it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        prompt = asked.get("prompt")
        tokens = len(prompt) if isinstance(prompt, list) else 5
        pieces = [event(text) for text in texts]
        last = [event("", finish="length"), usage(tokens, len(texts)), DONE]
        return await raw(*pieces, *last, pause_s=pause_s)(request)

    return answer
