"""Which file holds the budget, and reading it.

`--config FILE`, else chunkscope.toml, else pyproject.toml. In pyproject.toml the table is
[tool.chunkscope.gate], elsewhere [gate].
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chunkscope.artefacts.codec import read_text
from chunkscope.errors import InputError
from chunkscope.gating.budget import Budget, parse_budget, unknown_key

OWN = Path("chunkscope.toml")
PROJECT = Path("pyproject.toml")
HINT = "write a starting file with `chunkscope gate --init`"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFile:
    """`notes`: what a reader should know about which file was taken."""

    path: Path
    budget: Budget
    text: str
    prefix: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Files that the budget names are looked for from here."""
        return self.path.parent

    def lines(self) -> dict[tuple[str, ...], int]:
        """Where each key stands, for annotations: {("data", "p95"): 7}."""
        return {
            key[len(self.prefix) :]: number
            for key, number in _lines(self.text)
            if key[: len(self.prefix)] == self.prefix
        }


def find_budget(config: Path | None = None) -> BudgetFile:
    if config is not None:
        return read_budget(config)
    own = OWN.exists()
    project = PROJECT.exists() and _has_table(PROJECT, if_damaged=not own)
    if own:
        note = f"{PROJECT} has a [tool.chunkscope.gate] too: not read, {OWN} comes first"
        return read_budget(OWN, notes=(note,) if project else ())
    if project:
        return read_budget(PROJECT)
    raise InputError(f"there is no {OWN}, and no [tool.chunkscope.gate] in {PROJECT}", hint=HINT)


def read_budget(path: Path, *, notes: tuple[str, ...] = ()) -> BudgetFile:
    return parse_file(read_text(path, hint=HINT), path, notes=notes)


def parse_file(text: str, path: Path, *, notes: tuple[str, ...] = ()) -> BudgetFile:
    """Everything beside our table, in a file or table of ours, is a mistake."""
    ours, place = _ours(_toml(text, path), path)
    prefix = (*place, "gate")
    for key in ours or ():
        if key != "gate":
            raise unknown_key(key, ["gate"], f"{path}: {'.'.join((*place, key))}")
    table = ours.get("gate") if ours else None
    if not isinstance(table, dict):
        raise InputError(f"{path} has no [{'.'.join(prefix)}] table", hint=HINT)
    budget = parse_budget(table, file=str(path), prefix=".".join(prefix))
    return BudgetFile(path=path, budget=budget, text=text, prefix=prefix, notes=notes)


def _ours(document: dict[str, Any], path: Path) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """The part that is about chunkscope, if there is one, and where it stands."""
    if path.name != PROJECT.name:
        return document, ()
    tool = document.get("tool")
    ours = tool.get("chunkscope") if isinstance(tool, dict) else None
    return ours if isinstance(ours, dict) else None, ("tool", "chunkscope")


def _has_table(path: Path, *, if_damaged: bool) -> bool:
    """A damaged file is read where there is no other: that will say what is wrong."""
    try:
        return _ours(_toml(read_text(path, hint=HINT), path), path)[0] is not None
    except InputError:
        return if_damaged


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except RecursionError:
        raise InputError(f"{path} is no TOML: it is nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise InputError(f"{path} is no TOML: {error}") from None


def _lines(text: str) -> list[tuple[tuple[str, ...], int]]:
    """Tables and keys by line, as far as one line tells: tomllib keeps no positions."""
    found: list[tuple[tuple[str, ...], int]] = []
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(r"\s*\[[^\[]", line):
            table = _path_of(line)
            found.append((table, number))
        elif key := re.match(r"\s*([A-Za-z0-9_-]+)\s*=", line):
            found.append(((*table, key[1]), number))
    return found


def _path_of(header: str) -> tuple[str, ...]:
    """
    >>> _path_of('[gate.data.of."a b"]')
    ('gate', 'data', 'of', 'a b')
    """
    try:
        level: Any = tomllib.loads(header)
    except ValueError:
        return ()
    path: list[str] = []
    while isinstance(level, dict) and level:
        ((key, level),) = level.items()
        path.append(key)
    return tuple(path)
