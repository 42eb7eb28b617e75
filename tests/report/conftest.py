"""A real browser: Debian's chromium, headless."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = [
    "--no-sandbox",  # root has none, and the page is ours
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# Not for the session: while playwright runs, no other test could use asyncio.
@pytest.fixture(scope="package")
def browser() -> "Iterator[Browser]":
    named = os.environ.get("CHUNKSCOPE_CHROMIUM")
    path = named or shutil.which("chromium")
    if not path:
        missing("no chromium: `apt-get install chromium`, or name it by CHUNKSCOPE_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@dataclass
class Opened:
    """A page, with everything that it said and asked for."""

    page: "Page"
    said: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)


class Opener:
    def __init__(self, browser: "Browser") -> None:
        self._browser = browser
        self._contexts: list = []

    def __call__(self, path: Path, *, width: int = 1280, **how: object) -> Opened:
        context = self._browser.new_context(viewport={"width": width, "height": 900}, **how)
        self._contexts.append(context)
        opened = Opened(context.new_page())
        context.on("request", lambda request: opened.requested.append(request.url))
        opened.page.on("console", lambda message: opened.said.append(message.text))
        opened.page.on("pageerror", lambda error: opened.said.append(str(error)))
        opened.page.goto(path.as_uri())
        return opened

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def show(browser: "Browser") -> Iterator[Opener]:
    """`show(path)` opens a file as a user does: from the disk, in a window of its own."""
    opener = Opener(browser)
    yield opener
    opener.close()
