"""What a notebook shows of a value: a small table, or bars drawn as SVG. No library is needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from chunkscope.artefacts.words import Name, path_of

_BAR_HEIGHT, _ROOM, _LABELS, _FIGURES = 22, 320, 210, 130


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


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    figure: str


@dataclass(frozen=True, slots=True, repr=False)
class BarChart:
    """Bars to look at: notebooks show them, `str` and `save` give the SVG.

    >>> chart = BarChart("prompts", (Bar("short", 3, "3"), Bar("long", 1, "1")))
    >>> chart
    <BarChart of prompts: short 3, long 1>
    >>> str(chart).count("<rect")
    2
    """

    title: str
    bars: tuple[Bar, ...]

    def __repr__(self) -> str:
        shown = ", ".join(f"{bar.label} {bar.figure}" for bar in self.bars)
        return f"<{type(self).__name__} of {self.title}: {shown}>"

    def __str__(self) -> str:
        most = max((bar.value for bar in self.bars), default=0) or 1
        drawn = [self._drawn(row, bar, most) for row, bar in enumerate(self.bars, start=1)]
        width, height = _LABELS + _ROOM + _FIGURES, (len(self.bars) + 1) * _BAR_HEIGHT + 8
        title = escape(self.title)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="12" '
            f'fill="currentColor"><text x="0" y="15" font-weight="bold">{title}</text>'
            f"{''.join(drawn)}</svg>"
        )

    def _drawn(self, row: int, bar: Bar, most: float) -> str:
        top = row * _BAR_HEIGHT
        length = max(1.0, bar.value / most * _ROOM) if bar.value else 0.0
        return (
            f'<text x="{_LABELS - 8}" y="{top + 15}" text-anchor="end">{escape(bar.label)}</text>'
            f'<rect x="{_LABELS}" y="{top + 3}" width="{length:.1f}" height="{_BAR_HEIGHT - 8}" '
            f'fill="#4a76b8"/><text x="{_LABELS + length + 6:.1f}" y="{top + 15}">'
            f"{escape(bar.figure)}</text>"
        )

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: Name) -> Path:
        """Write it as an SVG file."""
        file = path_of(path)
        file.write_text(str(self), encoding="utf-8")
        return file
