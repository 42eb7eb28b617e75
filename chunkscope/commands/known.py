"""`chunkscope models`, `chunkscope gpus` and `chunkscope help`: what is known without a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from chunkscope import console
from chunkscope.commands.options import Json, complete_gpu, complete_model
from chunkscope.errors import InputError, UsageError

GUIDE = Path(__file__).parents[1] / "guide"


def models(
    part: Annotated[
        str | None,
        typer.Argument(
            metavar="[PART]", help="Only names that contain it.", autocompletion=complete_model
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the models known by name. Others: a folder with a config.json, or a hub id.

    Example: chunkscope models qwen3
    """
    from chunkscope.models.find import MODELS, built_in

    shapes = [(name, model.hub_ids, built_in(name)) for name, model in MODELS.items()]
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "hub_ids": list(hub_ids),
            "parameters": shape.parameters.total,
            "context": shape.limit,
        }
        for name, hub_ids, shape in shapes
        if shape is not None and _has(part, name, *hub_ids)
    ]
    cells = [
        (
            row["name"],
            row["hub_ids"][0],
            f"{row['parameters'] / 1e9:,.1f}B",
            f"{row['context']:,}" if row["context"] else "-",
        )
        for row in rows
    ]
    _show("models", part, rows, ("name", "on the hub", "parameters", "context"), cells, as_json)


def gpus(
    part: Annotated[
        str | None,
        typer.Argument(
            metavar="[PART]", help="Only names that contain it.", autocompletion=complete_gpu
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the GPUs known by name. Others: --gpu 80GiB.

    Example: chunkscope gpus h
    """
    from chunkscope.hardware.gpus import ALIASES, CARDS

    figures = ("memory_gib", "bandwidth_gb_s", "dense_tflops")
    rows: list[dict[str, Any]] = [
        {
            "name": card.name,
            "title": card.title,
            "also": [alias for alias, name in ALIASES.items() if name == card.name],
            **{name: getattr(card, name) for name in figures},
        }
        for card in CARDS
        if _has(part, card.name, card.title)
    ]
    cells = [(row["name"], row["title"], *(_figure(row[name]) for name in figures)) for row in rows]
    _show("gpus", part, rows, ("name", "GPU", "GiB", "GB/s", "dense TFLOPS"), cells, as_json)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}".removesuffix(".0")


def _has(part: str | None, *names: str) -> bool:
    return part is None or any(part.lower() in name.lower() for name in names)


def _show(
    what: str,
    part: str | None,
    rows: list[dict[str, Any]],
    headings: tuple[str, ...],
    cells: Sequence[tuple[str, ...]],
    as_json: bool,
) -> None:
    if not rows:
        raise InputError(
            f"no known name contains {part!r}", hint=f"`chunkscope {what}` lists all of them"
        )
    if as_json:
        from chunkscope.artefacts.codec import dump

        return console.emit(dump({what: rows}))
    from chunkscope.report import terminal
    from chunkscope.report.section import Column, Section, Table

    columns = tuple(Column(heading=head, right=at > 1) for at, head in enumerate(headings))
    table = Table(columns=columns, rows=tuple(cells))
    return console.show(lambda out: terminal.draw([Section(table=table)], out))


# -- the manual ----------------------------------------------------------------------------------


def pages() -> dict[str, Path]:
    return {page.stem: page for page in sorted(GUIDE.glob("*.md"))}


def _complete_page(part: str) -> list[str]:
    return [name for name in pages() if name.startswith(part)]


def show_help(
    page: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAGE]",
            help="A command, `config`, `formats`, `python` or `security`.",
            autocompletion=_complete_page,
        ),
    ] = None,
) -> None:
    """Show a page of the manual.

    Example: chunkscope help recommend
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
