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
    light_rules = []
    dark_rules = []
    for name, (light, dark) in PALETTE.items():
        light_rules.append(_rule(name, light))
        dark_rules.append(_rule(name, dark))
    light = "\n".join(light_rules)
    dark = "\n".join(dark_rules)
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


def tag(name: str, content: str = "", **attributes: str | float) -> str:
    """An element of SVG. Fractions have one decimal, what is empty is left out.

    >>> tag("circle", r=2.0, class_="c1")
    '<circle r="2.0" class="c1"></circle>'
    """
    parts = [name]
    for key, value in attributes.items():
        text = f"{value:.1f}" if isinstance(value, float) else str(value)
        if not text:
            continue
        parts.append(f'{key.strip("_").replace("_", "-")}="{escape(text)}"')
    return f"<{' '.join(parts)}>{content}</{name}>"


def title(words: str) -> str:
    """What a browser shows when the pointer rests on the element around it."""
    return tag("title", escape(words)) if words else ""


@dataclass
class Canvas:
    """A picture that grows, element by element."""

    width: float
    height: float = 0.0
    elements: list[str] = field(default_factory=list)

    def add(self, element: str) -> None:
        self.elements.append(element)

    def rect(self, box: Box, look: str, words: str = "") -> None:
        """`words` are shown when the pointer rests on it."""
        width, height = max(box.width, 0.5), max(box.height, 0.0)
        size = {"width": width, "height": height}
        self.add(tag("rect", title(words), x=box.x, y=box.y, **size, class_=look))

    def dot(self, x: float, y: float, radius: float, look: str, words: str) -> None:
        """A filled circle."""
        self.add(tag("circle", title(words), cx=x, cy=y, r=radius, class_=look))

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
        look = look or "soft"
        self.add(tag("text", escape(words), x=x, y=y, text_anchor=anchor, class_=look))

    def path(
        self, points: list[tuple[float, float]], look: str, *, dashes: str = ""
    ) -> None:
        """Points (x, y) that are joined."""
        places = [f"{x:.1f} {y:.1f}" for x, y in points]
        d = f"M{' L'.join(places)}"
        look = f"{look}-line"
        self.add(tag("path", d=d, fill="none", class_=look, stroke_dasharray=dashes))

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
        width, height = round(self.width), round(self.height)
        return tag(
            "svg",
            "\n".join(self.elements),
            xmlns="http://www.w3.org/2000/svg",
            class_=look,
            role="group" if is_group else "img",
            viewBox=f"0 0 {width} {height}",
            width=width,
            height=height,
            aria_label=label,
            font_size=12,
            font_family="system-ui, sans-serif",
        )


def text_width(words: str) -> float:
    return LETTER * len(words)


def cut(words: str, width: float) -> str:
    """As much of the words as there is room for."""
    most = int(width / LETTER)
    if len(words) <= most:
        return words
    return words[: max(most - 1, 1)] + "…"
