"""What a notebook shows of a value: a table, a data frame, a chart."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.figures import FIGURES
from chunkscope.errors import MissingError

if TYPE_CHECKING:
    import pandas as pd


def html_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """
    >>> html_table("a < b", ["", "p50"], [["gsm8k", "57"]])[:41]
    '<table><caption>a &lt; b</caption><thead>'
    """
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def frame(rows: Iterable[Mapping[str, Any]]) -> "pd.DataFrame":
    """A row for each mapping, a column for each name."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingError("to_frame() needs pandas", hint="pip install pandas") from None
    return pd.DataFrame(list(rows))


def figures_row(run: object) -> dict[str, float | None]:
    """Every figure of a run by its key: `makespan_s`, `ttft_s.p95`."""
    values = {f.key: f.value(run if f.once else getattr(run, "figures", None)) for f in FIGURES}
    return {key: value for key, value in values.items() if value is not None}


def bar_chart(title: str, bars: Mapping[str, float]) -> Any:
    """Horizontal bars, the first on top, as matplotlib's Axes."""
    try:
        pyplot = import_module("matplotlib.pyplot")
    except ImportError:
        raise MissingError("plot() needs matplotlib", hint="pip install matplotlib") from None
    _, axes = pyplot.subplots()
    axes.barh(list(bars), list(bars.values()))
    axes.invert_yaxis()
    axes.set_xlabel(title)
    return axes
