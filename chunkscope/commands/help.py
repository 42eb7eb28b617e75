"""`chunkscope help`: the manual."""

from pathlib import Path
from typing import Annotated

from chunkscope import console
from chunkscope.commands.options import argument
from chunkscope.errors import UsageError, nearest

GUIDE = Path(__file__).parents[1] / "guide"


def pages() -> dict[str, Path]:
    """The pages of the manual by name."""
    return {page.stem: page for page in sorted(GUIDE.glob("*.md"))}


def known_pages(part: str) -> list[str]:
    return [name for name in pages() if name.startswith(part)]


def help(  # noqa: A001  (the command's name)
    page: Annotated[
        str | None,
        argument(
            "[PAGE]",
            "A command, or accuracy, cluster, config, formats, python, security.",
            complete=known_pages,
        ),
    ] = None,
) -> None:
    """Show a page of the manual.

    Example: chunkscope help recommend
    """
    if page is None:
        for name, file in pages().items():
            console.emit(f"chunkscope help {name:<9}  {subject(file)}\n".encode())
        return
    if page not in pages():
        raise UsageError(f"there is no page {page}", hint=nearest(page, pages()))
    console.emit(pages()[page].read_bytes())
    if page == "accuracy":
        from chunkscope.report.accuracy import accuracy_tables

        console.emit(accuracy_tables().encode())


def subject(page: Path) -> str:
    """What a page is about, by its first line: "# gate: ..."."""
    title = page.read_text(encoding="utf-8").splitlines()[0]
    return title.partition(": ")[2]
