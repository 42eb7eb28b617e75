"""Makes the README's picture of the report: `python -m tests.browser.screenshot`."""

import os
import shutil

from playwright.sync_api import sync_playwright

from tests.browser.conftest import FLAGS
from tests.conftest import REPOSITORY

EXAMPLE = REPOSITORY / "reports" / "example"
WIDTH, HEIGHT = 1120, 1440


def main() -> None:
    chromium = os.environ.get("CHUNKSCOPE_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto((EXAMPLE / "report.html").as_uri())
        page.screenshot(path=EXAMPLE / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
