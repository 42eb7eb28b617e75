"""A real browser: Debian's chromium, headless."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Root has no sandbox, and the page is ours.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


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


@pytest.fixture
def show(browser: "Browser") -> "Iterator[Callable[..., Opened]]":
    """`show(path)` opens a file as a user does: from the disk, in a window of its own."""
    with ExitStack() as stack:

        def opener(path: Path, *, width: int = 1280, **how: object) -> Opened:
            context = browser.new_context(viewport={"width": width, "height": 900}, **how)
            stack.callback(context.close)
            opened = Opened(context.new_page())
            context.on("request", lambda request: opened.requested.append(request.url))
            opened.page.on("console", lambda message: opened.said.append(message.text))
            opened.page.on("pageerror", lambda error: opened.said.append(str(error)))
            opened.page.goto(path.as_uri())
            return opened

        yield opener
