"""`chunkscope models` and `chunkscope gpus`: what is known by name, without a network."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chunkscope import console

if TYPE_CHECKING:
    from rich.console import Console

Part = Annotated[str | None, typer.Argument(metavar="[PART]", help="Only names with this in them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the list as JSON.")]


def models(part: Part = None, as_json: AsJson = False) -> None:
    """List the models that are known by name. Others: a folder with a config.json, or a hub id.

    Example: chunkscope models qwen3
    """
    from chunkscope.models.find import built_in
    from chunkscope.models.table import MODELS

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
        [
            row["name"],
            row["hub_ids"][0],
            f"{row['parameters'] / 1e9:,.1f}B",
            f"{row['context']:,}" if row["context"] else "-",
        ]
        for row in rows
    ]
    _show("models", rows, ("name", "on the hub", "parameters", "context"), cells, as_json)


def gpus(part: Part = None, as_json: AsJson = False) -> None:
    """List the GPUs that are known by name. Others: --gpu-memory 80GiB.

    Example: chunkscope gpus h
    """
    from chunkscope.hardware.gpus import ALIASES, CARDS

    rows: list[dict[str, Any]] = [
        {
            "name": card.name,
            "title": card.title,
            "also": [alias for alias, name in ALIASES.items() if name == card.name],
            "memory_gib": card.memory_gib,
            "bandwidth_gb_s": card.bandwidth_gb_s,
            "dense_tflops": card.dense_tflops,
        }
        for card in CARDS
        if _has(part, card.name, card.title)
    ]
    cells = [
        [row["name"], row["title"], *(_figure(row[name]) for name in _FIGURES)] for row in rows
    ]
    _show("gpus", rows, ("name", "GPU", "GiB", "GB/s", "dense TFLOPS"), cells, as_json)


_FIGURES = ("memory_gib", "bandwidth_gb_s", "dense_tflops")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}".removesuffix(".0")


def _has(part: str | None, *names: str) -> bool:
    return part is None or any(part.lower() in name.lower() for name in names)


def _show(
    what: str,
    rows: list[dict[str, Any]],
    headings: Sequence[str],
    cells: list[list[str]],
    as_json: bool,
) -> None:
    if as_json:
        from chunkscope.artefacts.codec import dump

        return console.emit(dump({what: rows}))
    if not rows:
        return console.say("none of that name is known; without a word all of them are listed")
    return console.show(lambda out: _print(headings, cells, out))


def _print(headings: Sequence[str], cells: list[list[str]], out: "Console") -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < 2 else "right", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    out.print(table)
