"""Engine arguments as people commit them: words for a shell, vLLM's YAML, lm-eval's model_args.

Each is read as its reader reads it, odd habits included: what vLLM would refuse, or silently drop,
is kept as a fault beside the values.
"""

import itertools
import json
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from chunkscope.artefacts.codec import read_text
from chunkscope.engine.choices import Entry
from chunkscope.engine.deployment import OWN
from chunkscope.engine.flags import (
    BY_NAME,
    FLAGS,
    LENGTH_BY_ITSELF,
    OTHER_FLAGS,
    SHORT,
    TAKE_SUFFIXES,
    Flag,
)
from chunkscope.engine.settings import Settings, Value
from chunkscope.errors import InputError

SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
ON = {flag.spelling: flag for flag in FLAGS}
OFF = {flag.off_spelling: flag for flag in FLAGS if flag.off_spelling}
# What lm-eval (read in 0.4.9 and 0.4.13) calls some of them, and what it sets unasked.
HARNESS_NAMES = {"max_length": "max_model_len", "max_batch_size": "max_num_seqs"}
HARNESS_COMMANDS = ("lm_eval", "lm-eval")
HARNESS_DEFAULTS = Settings(gpu_memory_utilization=0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that vLLM would not take, or not take as it is meant."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """`named` are all names found, known here or not; `defaults` are those of who starts vLLM."""

    settings: Settings = OWN
    named: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    entry: Entry = Entry.SERVE
    defaults: Settings = OWN


def read_committed(path: Path, form: str | None = None) -> Committed:
    hint = "write one: `chunkscope recommend --emit vllm-yaml > vllm.yaml`"
    text = read_text(path, "settings file", hint=hint)
    chosen = form or _form_of(path, text)
    read = {"vllm-yaml": from_yaml, "vllm-args": from_words, "lm-eval": from_model_args}
    try:
        return read[chosen](text)
    except ValueError as error:
        raise InputError(
            f"{path} cannot be read as {chosen}: {error}",
            hint="say what it is: `form` may be vllm-args, vllm-yaml or lm-eval",
        ) from None


def _form_of(path: Path, text: str) -> str:
    """By its name, else by how its first word looks."""
    if path.suffix.lower() in (".yaml", ".yml"):
        return "vllm-yaml"
    first = next(iter(_uncommented(text).split()), "")
    if first.startswith("{") or re.match(r"[A-Za-z_]+=", first) or first in HARNESS_COMMANDS:
        return "lm-eval"
    return "vllm-args"


def _uncommented(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


# -- words ---------------------------------------------------------------------------------------


def from_words(text: str) -> Committed:
    """Flags and values, with or without `vllm serve MODEL`, comments and line ends."""
    # shlex takes a line end after a backslash for a letter; a shell does not.
    joined = re.sub(r"\\\r?\n", " ", text)
    return _Words(shlex.split(joined, comments=True)).read()


class _Words:
    """One pass over the words, as argparse goes over them."""

    def __init__(self, words: list[str], faults: Iterable[Fault] = ()) -> None:
        if words[:2] == ["vllm", "serve"]:
            words = words[2:]
        # The model is the one word that may stand without a flag.
        self.left = deque(words[1:] if words and not words[0].startswith("-") else words)
        self.values: dict[str, Value] = {}
        self.named: list[str] = []
        self.faults = list(faults)

    def read(self) -> Committed:
        while self.left:
            word, equals, value = self.left.popleft().partition("=")
            self._one(word, value if equals else None)
        return Committed(
            settings=Settings.of(self.values), named=tuple(self.named), faults=tuple(self.faults)
        )

    def _one(self, word: str, value: str | None) -> None:
        spelled = "--" + SHORT[word].replace("_", "-") if word in SHORT else word
        spelled = spelled.replace("_", "-")
        if not spelled.startswith("-"):
            self._fault(word, f"vLLM does not know what to do with the word {word!r}")
        elif spelled in OFF:
            self._switch(OFF[spelled], value, on=False)
        elif spelled in ON and ON[spelled].off_spelling:
            self._switch(ON[spelled], value, on=True)
        elif spelled in ON:
            self._valued(ON[spelled], value)
        else:
            self._other(spelled, value)

    def _switch(self, flag: Flag, value: str | None, *, on: bool) -> None:
        self.named.append(flag.name)
        if value is None:
            self.values[flag.name] = on
        else:
            self._fault(flag.name, f"a switch takes no value, and here it has {value!r}")

    def _valued(self, flag: Flag, value: str | None) -> None:
        self.named.append(flag.name)
        value = self._next_value() if value is None else value
        if value is None:
            return self._fault(flag.name, "it needs a value")
        try:
            read = _value(flag, value)
        except ValueError as error:
            return self._fault(flag.name, str(error))
        # Later words win, and `auto` takes back an earlier length.
        self.values.pop(flag.name, None)
        if read is not None:
            self.values[flag.name] = read
        return None

    def _other(self, spelled: str, value: str | None) -> None:
        """A flag that is none of ours: it may take any number of words."""
        self.named.append(_bare(spelled))
        while value is None and self._next_value() is not None:
            pass
        known = {flag.spelling for flag in OTHER_FLAGS}
        near = get_close_matches(spelled, [*ON, *OFF], n=1, cutoff=0.92)
        if near and spelled not in known:
            why = f"no argument known here; did you mean {_bare(near[0])}?"
            self._fault(_bare(spelled), why)

    def _next_value(self) -> str | None:
        """The next word, unless it is a flag."""
        if not self.left or re.match(r"-(?!\d+(\.\d+)?\Z)", self.left[0]):
            return None
        return self.left.popleft()

    def _fault(self, what: str, why: str) -> None:
        self.faults.append(Fault(what=what, why=why))


def _bare(spelling: str) -> str:
    return spelling.lstrip("-").replace("-", "_")


def _value(flag: Flag, text: str) -> Value | None:
    """As vLLM's parser reads it; None where it means "by itself"."""
    if flag.name == "max_model_len" and text in LENGTH_BY_ITSELF:
        return None
    if flag.name == "gpu_memory_utilization":
        return _number(text, float)
    return _number(text, _suffixed if flag.name in TAKE_SUFFIXES else int)


def _suffixed(text: str) -> int:
    """4096, 4K, 4k or 25.6k: vLLM takes a fraction before a small letter only."""
    if len(text) > 20 or not re.fullmatch(r"\d+([kKmMgG]|\.\d+[kmg])", text):
        return int(text)
    return int(float(text[:-1]) * SUFFIXES[text[-1]])


def _number(text: str, kind: Callable[[str], Value]) -> Value:
    """No setting is endless, nor larger than any computer."""
    try:
        if abs(value := kind(text)) <= 10**18:
            return value
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{text[:40]!r} is no number that vLLM reads")


# -- YAML ----------------------------------------------------------------------------------------


def from_yaml(text: str) -> Committed:
    """`key: value`. vLLM makes words of it: `key: true` is a switch, `key: false` is dropped."""
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it holds no `key: value` lines")  # noqa: TRY004
    words: list[str] = []
    dropped = []
    for key, value in found.items():
        if value is not False:
            words += [f"--{key}", *_yaml_words(value)]
        elif fault := _dropped(str(key)):
            dropped.append(fault)
    return _Words(words, dropped).read()


def _yaml_words(value: Any) -> list[str]:
    if value is True:
        return []
    # Only single values are looked at; what an alias repeats could be endless.
    several = value if isinstance(value, list) else [value]
    return ["{}" if isinstance(item, list | dict) else str(item) for item in several]


def _dropped(key: str) -> Fault | None:
    spelled = "--" + key.replace("_", "-")
    flag = ON.get(spelled) or OFF.get(spelled)
    if flag is None:
        return None
    why = f"vLLM drops `{key}: false` without a word; write `no-{key.removeprefix('no-')}: true`"
    return Fault(what=flag.name, why=why)


# -- lm-eval -------------------------------------------------------------------------------------


def from_model_args(text: str) -> Committed:
    """`pretrained=M,max_model_len=4096,...`, the same as a JSON object, or a command with it."""
    text = _model_args(_uncommented(text).strip())
    pairs = json.loads(text) if text.startswith("{") else _pairs(text)
    values: dict[str, Value] = {}
    faults = []
    if "max_length" in pairs and "max_model_len" in pairs:
        faults.append(Fault(what="max_length", why="lm-eval takes it or max_model_len, not both"))
    for key, given in pairs.items():
        name = HARNESS_NAMES.get(key, key)
        if name not in BY_NAME or (key in HARNESS_NAMES and name in pairs):
            continue
        try:
            values[name] = _keyword(BY_NAME[name], given)
        except ValueError as error:
            faults.append(Fault(what=name, why=str(error)))
    named = tuple(HARNESS_NAMES.get(key, key) for key in pairs)
    return Committed(
        settings=Settings.of(values),
        named=named,
        faults=tuple(faults),
        entry=Entry.LLM,
        defaults=HARNESS_DEFAULTS,
    )


def _model_args(text: str) -> str:
    if not text.startswith(HARNESS_COMMANDS):
        return text
    words = shlex.split(text.replace("\\\n", " "))
    at = next((i for i, w in enumerate(words) if w in ("--model_args", "-a")), None)
    if at is None:
        raise ValueError("the command has no --model_args")
    given = itertools.takewhile(lambda word: not word.startswith("-"), words[at + 1 :])
    return ",".join(given)


def _pairs(text: str) -> dict[str, str]:
    found = {}
    for part in " ".join(text.split()).split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{part.strip()!r} is no key=value")
        found[key.strip()] = value.strip()
    return found


def _keyword(flag: Flag, given: Any) -> Value:
    text = str(given)
    if flag.off_spelling:
        if text.lower() not in ("true", "false", "1", "0"):
            raise ValueError(f"{text!r} is not true or false")
        return text.lower() in ("true", "1")
    return _number(text, float if flag.name == "gpu_memory_utilization" else int)
