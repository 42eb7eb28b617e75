"""Every option of `vllm serve`, by version: how it is spelled, what it takes, what it is to us.

serve_flags.csv holds what the parsers of 0.10.2 to 0.32.0 say of themselves, one release of each
minor version (tests/vllm/serve_flag_rows.py writes it). What is not in it, no vLLM known here
takes.
"""

import argparse
import csv
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from chunkscope.vllm.flags import dotted, release, spelled
from chunkscope.vllm.rules import OLDEST, Version

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

    def read(self, text: str) -> Any:
        """The value as vLLM's parser makes it of a word; ValueError where it refuses the word."""
        kind = self.takes.removesuffix("?")
        if kind != self.takes and text in ("", "None"):
            return None
        if self.choices and text not in self.choices:
            raise ValueError(f"{text[:40]!r} is none of {', '.join(self.choices)}")
        if kind not in NUMBERS or (kind == "length" and text.lower() in ("auto", "-1")):
            return None if kind == "length" else text
        with suppress(ValueError, OverflowError, RecursionError):
            value = NUMBERS[kind](text)
            if kind == "json" or abs(value) <= MOST:
                return value
        raise ValueError(f"{text[:40]!r} is no value that vLLM reads")


def _size(text: str) -> int:
    """4096, 4K, 4k or 25.6k: vLLM takes a fraction before a small letter only."""
    if len(text) > 20 or not re.fullmatch(r"\d+([kKmMgG]|\.\d+[kmg])", text):
        return int(text)
    return int(float(text[:-1]) * SUFFIXES[text[-1]])


NUMBERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "json": json.loads,
    "size": _size,
    "length": _size,
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse_words(
    words: Sequence[str], version: Version
) -> tuple[dict[str, bool | str | list[str] | None], list[str]]:
    """What each option is given, as it is written, and the words that this version does not know.

    As argparse goes over them: the beginning of a name will do, and later words win. ValueError
    says what it refuses.

    >>> parse_words(["--max-num-s", "512", "--no-enforce-eager", "--foo"], (0, 24, 0))
    ({'max_num_seqs': '512', 'enforce_eager': False}, ['--foo'])
    """
    # vLLM takes `--max_model_len` for `--max-model-len`; values keep their underscores.
    dashed = [re.sub(r"^--[^=]*", lambda name: name[0].replace("_", "-"), word) for word in words]
    given, unknown = _parser(version).parse_known_args(dashed)
    return vars(given), unknown


@cache
def _parser(version: Version) -> _Parser:
    parser = _Parser(prog="vllm", add_help=False, argument_default=argparse.SUPPRESS)
    for flag in flags_of(version).values():
        how: dict[str, Any] = {"nargs": {"maybe": "?", "texts": "*"}.get(flag.takes)}
        if flag.takes == "switch":
            how = {"action": argparse.BooleanOptionalAction}
        elif flag.takes == "on":
            how = {"action": "store_true"}
        parser.add_argument(*flag.spellings, dest=flag.name, **how)
    return parser


def why_unknown(word: str, version: Version) -> str:
    """Why this version does not take an option."""
    rows = [flag for flag in _table() if word in flag.spellings]
    if rows and version < rows[0].since:
        return f"vLLM knows it since {dotted(rows[0].since)}, not in {dotted(version)}"
    if rows or word in REMOVED:
        return f"vLLM {dotted(version)} does not know it any more"
    spellings = [name for flag in flags_of(version).values() for name in flag.spellings]
    near = get_close_matches(word.lower(), spellings, n=1, cutoff=0.8)
    hint = f"; did you mean {near[0].lstrip('-')}?" if near else ""
    return f"vLLM {dotted(version)} has no such argument{hint}"


REMOVED = frozenset({"--num-scheduler-steps"})  # before the oldest version here


@cache
def flags_of(version: Version) -> dict[str, ServeFlag]:
    """The options of a version, by name."""
    return {flag.name: flag for flag in _table() if flag.known_to(version)}


@cache
def flags_by_name() -> dict[str, ServeFlag]:
    """As the newest version that has it knows each."""
    return {flag.name: flag for flag in _table()}


@cache
def _table() -> tuple[ServeFlag, ...]:
    text = Path(__file__).with_suffix(".csv").read_text(encoding="utf-8")
    return tuple(
        ServeFlag(
            name=row["name"],
            also=tuple(row["also"].split()),
            takes=row["takes"],
            choices=tuple(filter(None, row["choices"].split("|"))),
            default=row["default"],
            effect=Effect(row["effect"]),
            server=row["server"] == "yes",
            since=release(row["since"]).version,
            until=release(row["until"]).version if row["until"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    )
