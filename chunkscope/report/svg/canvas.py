"""The parts that every picture is made of: elements of SVG, and their colours."""

from dataclasses import dataclass, field
from html import escape

LETTER = 6.6  # px of an average letter of the pictures' text
LINE = 16.0  # px from one line of text to the next
SERIES = 7  # colours
# Colours on a light and on a dark ground. Text needs more contrast than areas.
PALETTE = {
    "c1": ("#1f6fd0", "#6aa9f4"),
    "c2": ("#c2410c", "#f08a5d"),
    "c3": ("#0f766e", "#3fc1a6"),
    "c4": ("#6d4bc3", "#a99bf0"),
    "c5": ("#7a5c3e", "#c9a27c"),
    "c6": ("#b83272", "#ef86b5"),
    "c7": ("#5b6b1f", "#b5c36a"),
    "quiet": ("#b9b8b0", "#5d5c57"),
    "grid": ("#e2e1da", "#30302d"),
    "soft": ("#55544f", "#bdbcb3"),
    "ink": ("#14140f", "#f2f2ee"),
    "ground": ("#fdfdfc", "#1a1a19"),
    "on-colour": ("#ffffff", "#0b0b0b"),  # text on one of the colours above
}


def page_style() -> str:
    """The colours of pictures in a page that says whether it is light or dark."""
    rules = []
    for name, (light, dark) in PALETTE.items():
        rules.append(_rule(name, f"light-dark({light}, {dark})"))
    return "\n".join([*rules, STROKES])


def file_style() -> str:
    """The colours of a picture that stands alone, in the plainest CSS."""
    light = "\n".join(_rule(name, colours[0]) for name, colours in PALETTE.items())
    dark = "\n".join(_rule(name, colours[1]) for name, colours in PALETTE.items())
    return f"{STROKES}\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


STROKES = """svg path { stroke-width: 1 } svg .curve { stroke-width: 2 }
svg .point circle { stroke-width: 1.5 }"""


def _rule(name: str, colour: str) -> str:
    return f"svg .{name} {{ fill: {colour} }} svg .{name}-line {{ stroke: {colour} }}"


def look_of(place: int) -> str:
    """The colour of the first, second ... of several."""
    return f"c{place % SERIES + 1}"


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its upper left corner and its size, in px."""

    x: float
    y: float
    width: float
    height: float


@dataclass
class Canvas:
    """A picture that grows, element by element."""

    width: float
    height: float = 0.0
    elements: list[str] = field(default_factory=list)

    def add(self, element: str) -> None:
        self.elements.append(element)

    def rect(self, box: Box, look: str, title: str = "") -> None:
        """`title` is what a browser shows when the pointer rests on it."""
        words = f"<title>{escape(title)}</title>" if title else ""
        self.add(
            f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{max(box.width, 0.5):.1f}" '
            f'height="{max(box.height, 0.0):.1f}" class="{look}">{words}</rect>'
        )

    def across(self, y: float, start: float, end: float, look: str) -> None:
        """A horizontal line."""
        self.path([(start, y), (end, y)], look)

    def down(self, x: float, top: float, bottom: float, look: str) -> None:
        """A vertical line."""
        self.path([(x, top), (x, bottom)], look)

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "start", look: str = ""
    ) -> None:
        """`y` is the base line of the letters."""
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
            f'class="{look or "soft"}">{escape(words)}</text>'
        )

    def path(
        self, points: list[tuple[float, float]], look: str, *, dashes: str = ""
    ) -> None:
        """Points (x, y) that are joined."""
        places = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.add(f'<path d="M{places}" fill="none" class="{look}-line"{dashed}/>')

    def legend(self, entries: list[tuple[str, str]]) -> None:
        """Swatches and names below what is drawn so far, in as many lines as needed."""
        x = 0.0
        y = self.height + LINE
        for name, look in entries:
            size = 18 + text_width(name) + 14
            if x > 0 and x + size > self.width:
                x = 0.0
                y += LINE + 2
            self.rect(Box(x, y - 9, 10, 10), look)
            self.text(x + 15, y, name)
            x += size
        self.height = y + 6

    def svg(self, *, label: str, look: str = "", is_group: bool = False) -> str:
        """The picture as an element of HTML or the whole of a file."""
        role = "group" if is_group else "img"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{look}" role="{role}" '
            f'viewBox="0 0 {self.width:.0f} {self.height:.0f}" '
            f'width="{self.width:.0f}" height="{self.height:.0f}" '
            f'aria-label="{escape(label)}" font-size="12" '
            'font-family="system-ui, sans-serif">\n'
            + "\n".join(self.elements)
            + "\n</svg>"
        )


def text_width(words: str) -> float:
    return LETTER * len(words)


def cut(words: str, width: float) -> str:
    """As much of the words as there is room for."""
    most = int(width / LETTER)
    if len(words) <= most:
        return words
    return words[: max(most - 1, 1)] + "…"
