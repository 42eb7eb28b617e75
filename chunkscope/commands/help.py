"""`chunkscope help`."""

from pathlib import Path
from typing import Annotated

import typer

from chunkscope import console
from chunkscope.errors import UsageError

GUIDE = Path(__file__).parents[1] / "guide"


def pages() -> dict[str, Path]:
    return {page.stem: page for page in sorted(GUIDE.glob("*.md"))}


def show_help(
    page: Annotated[
        str | None,
        typer.Argument(metavar="[PAGE]", help="A command, `formats`, `python` or `security`."),
    ] = None,
) -> None:
    """Show a page of the manual: examples, formats, words.

    Example: chunkscope help formats
    """
    if page is None:
        titles = [path.read_text(encoding="utf-8").splitlines()[0] for path in pages().values()]
        named = [title.removeprefix("# ").split(": ") for title in titles]
        lines = [f"chunkscope help {name:<9}  {about}\n" for name, about in named]
        console.emit("".join(lines).encode())
    elif page in pages():
        console.emit(pages()[page].read_bytes())
    else:
        raise UsageError(f"there is no page {page}", hint=f"one of {', '.join(pages())}")
