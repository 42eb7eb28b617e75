"""Every option of `vllm serve`, by version: how it is spelled, what it takes, what it is to us.

serve_flags.csv holds what the parsers of 0.10.2 to 0.32.0 say of themselves, one release of each
minor version (tests/vllm/serve_flag_rows.py writes it). What is not in it, no vLLM known here
takes.
"""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from chunkscope.vllm.flags import OLDEST, Version, dotted, spelled

SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
MOST = 10**18  # no setting is endless, nor larger than any computer


class Effect(StrEnum):
    """What an option does to memory and speed."""

    JUDGED = "judged"  # it is compared with the plan
    NONE = "none"
    ANY = "any"  # or so much as none, but nobody here can say


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFlag:
    """`also` are other names; `takes` a kind of value, with a `?` where None is one too."""

    name: str
    takes: str
    effect: Effect
    default: str = ""
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    server: bool = False  # of the server alone: the `LLM` class does not have it
    since: Version = OLDEST
    until: Version | None = None

    def known_to(self, version: Version) -> bool:
        return self.since <= version and (self.until is None or version < self.until)

    @property
    def spellings(self) -> tuple[str, ...]:
        return tuple(n if n.startswith("-") else spelled(n) for n in (self.name, *self.also))

    @property
    def is_switch(self) -> bool:
        return self.takes in ("switch", "on")

    @property
    def takes_several(self) -> bool:
        return self.takes == "texts"

    def read(self, text: str) -> Any:
        """The value as vLLM's parser makes it of a word; ValueError where it refuses the word."""
        if self.takes.endswith("?") and text in ("", "None"):
            return None
        if self.choices and text not in self.choices:
            raise ValueError(f"{text[:40]!r} is none of {', '.join(self.choices)}")
        kind = self.takes.removesuffix("?")
        if kind == "length" and text.lower() in ("auto", "-1"):
            return None
        if kind == "json":
            return _json(text)
        return _number(text, NUMBERS[kind]) if kind in NUMBERS else text


def _size(text: str) -> int:
    """4096, 4K, 4k or 25.6k: vLLM takes a fraction before a small letter only."""
    if len(text) > 20 or not re.fullmatch(r"\d+([kKmMgG]|\.\d+[kmg])", text):
        return int(text)
    return int(float(text[:-1]) * SUFFIXES[text[-1]])


NUMBERS: dict[str, Callable[[str], float]] = {
    "int": int,
    "float": float,
    "size": _size,
    "length": _size,
}


def _number(text: str, kind: Callable[[str], float]) -> float:
    try:
        if abs(value := kind(text)) <= MOST:
            return value
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{text[:40]!r} is no number that vLLM reads")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{text[:40]!r} is no JSON") from None


def find_flag(word: str, version: Version) -> tuple[ServeFlag, bool]:
    """The option that this version takes a word for, and whether it switches it on.

    Like argparse it takes the beginning of a name where only one goes on like that. ValueError says
    why it would refuse the word.

    >>> find_flag("--max-num-b", (0, 24, 0))[0].name, find_flag("--no-enforce-eager", (0, 24, 0))[1]
    ('max_num_batched_tokens', False)
    """
    known = _spellings(version)
    if word in known:
        return known[word]
    longer = [name for name in known if word.startswith("--") and name.startswith(word)]
    if len(longer) == 1:
        return known[longer[0]]
    if longer:
        raise ValueError(f"{word} could be {longer[0]} or {longer[1]}")
    raise ValueError(_why_unknown(word, version))


def _why_unknown(word: str, version: Version) -> str:
    rows = [flag for flag in _table() if word in flag.spellings]
    if rows and version < rows[0].since:
        return f"vLLM knows it since {dotted(rows[0].since)}, not in {dotted(version)}"
    if rows or word in REMOVED:
        return f"vLLM {dotted(version)} does not know it any more"
    near = get_close_matches(word.lower(), _spellings(version), n=1, cutoff=0.8)
    hint = f"; did you mean {near[0].lstrip('-')}?" if near else ""
    return f"vLLM {dotted(version)} has no such argument{hint}"


REMOVED = frozenset({"--num-scheduler-steps"})  # before the oldest version here


@cache
def _spellings(version: Version) -> dict[str, tuple[ServeFlag, bool]]:
    found: dict[str, tuple[ServeFlag, bool]] = {}
    for flag in _table():
        if flag.known_to(version):
            found |= dict.fromkeys(flag.spellings, (flag, True))
            if flag.takes == "switch":
                found["--no" + flag.spellings[0][1:]] = (flag, False)
    return found


@cache
def flags_by_name() -> dict[str, ServeFlag]:
    """As the newest version that has it knows each."""
    return {flag.name: flag for flag in _table()}


@cache
def _table() -> tuple[ServeFlag, ...]:
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as text:
        return tuple(_flag(row) for row in csv.DictReader(text))


def _flag(row: dict[str, str]) -> ServeFlag:
    return ServeFlag(
        name=row["name"],
        also=tuple(row["also"].split()),
        takes=row["takes"],
        choices=tuple(row["choices"].split("|")) if row["choices"] else (),
        default=row["default"],
        effect=Effect(row["effect"]),
        server=row["server"] == "yes",
        since=_version(row["since"]),
        until=_version(row["until"]) if row["until"] else None,
    )


def _version(text: str) -> Version:
    major, minor, patch = map(int, text.split("."))
    return major, minor, patch
