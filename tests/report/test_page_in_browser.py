"""The page in Debian's chromium: silent, drawn, copied, readable, on a desk and on a phone."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chunkscope.findings import Findings, load_findings
from chunkscope.report.folder import compare
from chunkscope.report.page import render
from tests import build
from tests.conftest import missing
from tests.report import examples

pytestmark = pytest.mark.real
WIDTHS = (390, 768, 1024, 1440)
OPEN_ALL = "document.querySelectorAll('details').forEach(d => { d.open = true })"
DRAWN = """[...document.querySelectorAll('[data-chart]')].every(
    place => place.querySelector('svg path, svg rect'))"""
# Root has no sandbox, and the page is ours.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


# Not for the session: while playwright runs, no other test could use asyncio.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    named = os.environ.get("CHUNKSCOPE_CHROMIUM")
    path = named or shutil.which("chromium")
    if not path:
        missing(
            "no chromium: `apt-get install chromium`, or name it by CHUNKSCOPE_CHROMIUM"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@dataclass
class Opened:
    """A page, with everything that it said and asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[..., Opened]]:
    """`show(path)` opens a file as a user does: from the disk, in a window of its own."""
    with ExitStack() as stack:

        def opener(path: Path, *, width: int = 1280, **how: object) -> Opened:
            context = browser.new_context(
                viewport={"width": width, "height": 900}, **how
            )
            stack.callback(context.close)
            opened = Opened(context.new_page())
            context.on("request", lambda request: opened.requested.append(request.url))
            opened.page.on("console", lambda message: opened.said.append(message.text))
            opened.page.on("pageerror", lambda error: opened.said.append(str(error)))
            opened.page.goto(path.as_uri())
            return opened

        yield opener


def page_of(findings: Findings, place: Path, old: Findings | None = None) -> Path:
    file = place / "report.html"
    file.write_bytes(render(findings, compare(old, findings) if old else None))
    return file


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> Findings:
    return examples.folder(tmp_path_factory.mktemp("all"))


@pytest.fixture(scope="module")
def page(everything, tmp_path_factory) -> Path:
    return page_of(everything, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module", params=["all", "sweep", "limits broken", "changes"])
def any_page(request, everything, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("page")
    if request.param == "limits broken":
        broken = replace(everything, plan=examples.limits_broken(), verification=None)
        return page_of(broken, place)
    if request.param == "sweep":  # and nothing to set
        plan = replace(everything.plan, settings=build.Settings())
        swept = examples.simulation(sweep=True)
        return page_of(
            replace(everything, plan=plan, simulation=swept, verification=None), place
        )
    if request.param == "changes":
        sizes = {
            "max_num_batched_tokens": 32_768,
            "max_num_seqs": 512,
            "max_model_len": 34_816,
        }
        plan = replace(
            everything.plan, settings=build.Settings(**sizes)
        )  # wider than a phone
        new = replace(
            everything, profile=build.profile(short=[9]), plan=plan, verification=None
        )
        return page_of(new, place, everything)
    return page_of(everything, place)


def test_it_loads_in_silence_and_asks_nobody(show, any_page) -> None:
    opened = show(any_page)
    opened.page.wait_for_selector("[data-ready]", state="attached")
    assert opened.said == []
    assert opened.requested == [any_page.as_uri()]


def test_every_chart_is_drawn(show, page) -> None:
    opened = show(page)
    opened.page.evaluate(OPEN_ALL)
    opened.page.wait_for_function(DRAWN)
    places = opened.page.query_selector_all("[data-chart]")
    assert {place.get_attribute("data-chart") for place in places} >= {
        "lengths",
        "measured",
    }
    before = opened.page.inner_html("#histogram")
    opened.page.locator("[data-chart=lengths] select").select_option("1")
    assert opened.page.inner_html("#histogram") != before


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_sticks_out(show, any_page, width: int) -> None:
    opened = show(any_page, width=1440)
    opened.page.set_viewport_size({"width": width, "height": 900})  # charts follow it
    opened.page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")


def test_names_full_of_markup_do_nothing(show, tmp_path) -> None:
    examples.hostile().save(tmp_path / "profile.json")
    opened = show(page_of(load_findings(tmp_path), tmp_path))
    assert (opened.said, opened.page.locator("main b").count()) == ([], 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_against_wcag_aa(
    show, any_page, width: int, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    opened = show(any_page, width=width, color_scheme=scheme, bypass_csp=True)
    opened.page.evaluate(OPEN_ALL)
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    results = Axe().run(opened.page, options=rules)
    assert not results.response["violations"], results.generate_report()


def test_the_copy_button_copies_what_is_shown(show, page) -> None:
    opened = show(page, permissions=["clipboard-read", "clipboard-write"])
    opened.page.click("#copy")
    opened.page.wait_for_function("document.getElementById('copied').textContent")
    shown = opened.page.inner_text("#arguments")
    assert (
        opened.page.evaluate("navigator.clipboard.readText()").strip() == shown.strip()
    )


def test_the_button_turns_the_lights_off_and_on(show, page) -> None:
    opened = show(page, color_scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = opened.page.evaluate(colour)
    opened.page.click("#theme")
    assert opened.page.evaluate(colour) != light
    opened.page.click("#theme")
    assert opened.page.evaluate(colour) == light


def test_the_numbers_are_there_without_javascript(show, page, everything) -> None:
    opened = show(page, java_script_enabled=False)
    text = opened.page.inner_text("main")
    assert f"{everything.profile.overall.max:,}" in text
    assert "scripts" in text
