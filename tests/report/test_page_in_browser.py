"""The page in Debian's chromium: silent, drawn, copied, readable, on a desk and on a
phone."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chunkscope.findings import Findings, load_findings
from chunkscope.report.page import render
from tests import build
from tests.conftest import missing
from tests.report import examples

pytestmark = pytest.mark.real
WIDTHS = (360, 768, 1280, 1920)
OPEN_ALL = "document.querySelectorAll('details').forEach(d => { d.open = true })"
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


Show = Callable[..., Opened]


@pytest.fixture
def show(browser: Any) -> Iterator[Show]:
    """`show(path)` opens a file as a user does: from the disk, in a window of its
    own."""
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


def page_of(findings: Findings, place: Path) -> Path:
    file = place / "report.html"
    file.write_bytes(render(findings))
    return file


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    findings = examples.folder(tmp_path_factory.mktemp("all"))
    sizes = {"max_num_batched_tokens": 32_768, "max_num_seqs": 512}
    settings = build.Settings(**sizes, max_model_len=34_816)  # wider than a phone
    return replace(findings, plan=replace(findings.plan, settings=settings))


@pytest.fixture(scope="module")
def page(everything: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(everything, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module", params=["all", "sweep", "limits broken"])
def any_page(
    request: pytest.FixtureRequest,
    everything: Findings,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    place = tmp_path_factory.mktemp("page")
    planned = replace(everything, verification=None)
    if request.param == "limits broken":
        return page_of(replace(planned, plan=examples.limits_broken()), place)
    if request.param == "sweep":
        swept = examples.simulation(sweep=True)
        return page_of(replace(planned, simulation=swept), place)
    return page_of(everything, place)


def test_it_loads_in_silence_and_asks_nobody(show: Show, any_page: Path) -> None:
    opened = show(any_page)
    opened.page.wait_for_selector("[data-ready]", state="attached")
    assert opened.said == []
    assert opened.requested == [any_page.as_uri()]


@pytest.mark.parametrize("width", [360, 1280])
def test_each_picture_is_shown_once(show: Show, page: Path, width: int) -> None:
    opened = show(page, width=width)
    opened.page.evaluate(OPEN_ALL)
    for figure in opened.page.query_selector_all("figure"):
        shown = [svg for svg in figure.query_selector_all("svg") if svg.is_visible()]
        assert len(shown) == 1


def test_a_point_says_what_it_is_when_it_is_clicked(show: Show, page: Path) -> None:
    opened = show(page)
    point = opened.page.locator(".point:visible").first
    point.click()
    figure = point.locator("xpath=ancestor::figure")
    assert figure.locator(".chosen").inner_text() == point.get_attribute("aria-label")


def test_a_point_can_be_chosen_with_the_keyboard(show: Show, page: Path) -> None:
    opened = show(page)
    point = opened.page.locator(".point:visible").last
    point.focus()
    opened.page.keyboard.press("Enter")
    figure = point.locator("xpath=ancestor::figure")
    assert figure.locator(".chosen").inner_text() == point.get_attribute("aria-label")


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_sticks_out(show: Show, any_page: Path, width: int) -> None:
    opened = show(any_page, width=width)
    opened.page.evaluate(OPEN_ALL)
    opened.page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")


def test_names_full_of_markup_do_nothing(show: Show, tmp_path: Path) -> None:
    examples.hostile().save(tmp_path / "profile.json")
    opened = show(page_of(load_findings(tmp_path), tmp_path))
    assert (opened.said, opened.page.locator("main b").count()) == ([], 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_against_wcag_aa(
    show: Show, any_page: Path, width: int, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    opened = show(any_page, width=width, color_scheme=scheme, bypass_csp=True)
    opened.page.evaluate(OPEN_ALL)
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    results = Axe().run(opened.page, options=rules)
    assert not results.response["violations"], results.generate_report()


def test_the_copy_button_copies_what_is_shown(show: Show, page: Path) -> None:
    opened = show(page, permissions=["clipboard-read", "clipboard-write"])
    opened.page.click("#copy")
    opened.page.wait_for_function("document.getElementById('copied').textContent")
    shown = opened.page.inner_text("#arguments")
    assert (
        opened.page.evaluate("navigator.clipboard.readText()").strip() == shown.strip()
    )


def test_the_button_turns_the_lights_off_and_on(show: Show, page: Path) -> None:
    opened = show(page, color_scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = opened.page.evaluate(colour)
    opened.page.click("#theme")
    assert opened.page.evaluate(colour) != light
    opened.page.click("#theme")
    assert opened.page.evaluate(colour) == light


def test_all_is_there_without_javascript(
    show: Show, page: Path, everything: Findings
) -> None:
    opened = show(page, java_script_enabled=False)
    assert f"{everything.profile.overall.max:,}" in opened.page.inner_text("main")
    assert opened.page.locator("svg:visible").count() > 3
