"""Makes what is committed as an example again: artefacts, pages and the README's
pictures.

python tests/make_examples.py
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
EXAMPLE, MEASURED = Path("reports/example"), Path("reports/h200/llama-3.1-8b-long")
COMMANDS = (
    f"analyze sample_data -o {EXAMPLE}/profile.json",
    f"recommend {EXAMPLE}/profile.json --model llama-3.1-8b --gpu h200 "
    f"--vllm-version 0.32.0 -o {EXAMPLE}/plan.json",
    f"report {EXAMPLE}",
    f"report {MEASURED}",
)
WIDTH, HEIGHT = 1120, 1240


def main() -> None:
    for command in COMMANDS:
        print(f"$ chunkscope {command}")
        words = [sys.executable, "-m", "chunkscope", *command.split()]
        subprocess.run(words, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    pictures()


def pictures() -> None:
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHUNKSCOPE_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        top = _opened(browser, EXAMPLE)
        top.screenshot(path=REPOSITORY / EXAMPLE / "report.png")
        # Of the measured page, what only a measurement can show.
        measured = _opened(browser, MEASURED)
        measured.add_style_tag(content=".top { display: none }")
        picture = REPOSITORY / MEASURED.parent / "report.png"
        measured.locator("#measured").screenshot(path=picture)
        browser.close()


def _opened(browser: Any, folder: Path) -> Any:
    page = browser.new_page(
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme="light",
        bypass_csp=True,  # the page takes no style but its own
    )
    page.goto((REPOSITORY / folder / "report.html").as_uri())
    return page


if __name__ == "__main__":
    main()
