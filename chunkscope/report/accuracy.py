"""The tables of `chunkscope help accuracy`: every number that predictions rest on."""

import textwrap
from collections.abc import Iterator

from chunkscope.hardware.accuracy import MEASURED
from chunkscope.hardware.constants import CONSTANTS, Constant

WIDTH = 100


def accuracy_tables() -> str:
    """How near predictions came, by kind of model, and the numbers they are made of."""
    lines = ["", "## How near predicted times came on the H200", ""]
    for kind in MEASURED:
        name = ", ".join(kind.traits) or "dense"
        lines.append(f"- {name}: {kind.least:+.0%} to {kind.most:+.0%}")
    lines += ["", "## The numbers"]
    for constant in CONSTANTS.values():
        lines.extend(_constant_lines(constant))
    return "\n".join(lines) + "\n"


def _constant_lines(constant: Constant) -> Iterator[str]:
    yield ""
    yield f"{constant.name} = {constant.value} {constant.unit} ({constant.basis})"
    yield from textwrap.wrap(
        constant.source, WIDTH, initial_indent="    ", subsequent_indent="    "
    )
    if constant.test:
        yield f"    test: {constant.test}"
