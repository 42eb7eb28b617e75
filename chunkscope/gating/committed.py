"""Engine arguments as people commit them: words for a shell, vLLM's YAML, lm-eval's model_args.

Each is read as its reader reads it, odd habits included: what vLLM would refuse, or silently drop,
is kept as a fault beside the values. Nothing is passed over.
"""

import itertools
import json
import re
import shlex
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chunkscope.artefacts.codec import read_text
from chunkscope.errors import InputError
from chunkscope.vllm.deployment import OWN
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import Version, spelled
from chunkscope.vllm.serve_flags import Effect, ServeFlag, find_flag
from chunkscope.vllm.settings import NAMES, Settings

STARTS = (
    ("vllm", "serve"),
    *((p, "-m", "vllm.entrypoints.openai.api_server") for p in ("python", "python3")),
)
HARNESS_COMMANDS = ("lm_eval", "lm-eval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that vLLM would not take, or not take as it is meant.

    `unknown`: as far as is known here; a vLLM of that version may know better.
    """

    what: str
    why: str
    unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """`others` are arguments that no setting here stands for, each as it is written.

    `defaults` are those of who starts vLLM; `words` or `keywords` are what vLLM would be given.
    """

    settings: Settings = OWN
    model: str | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    harmless: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    entry: Entry = Entry.SERVE
    defaults: Settings = OWN
    words: tuple[str, ...] = ()
    keywords: Mapping[str, Any] | None = None


def read_committed(path: Path, version: Version, form: str | None = None) -> Committed:
    hint = "write one: `chunkscope recommend --emit vllm-yaml > vllm.yaml`"
    text = read_text(path, "settings file", hint=hint)
    chosen = form or _form_of(path, text)
    read = {"vllm-yaml": from_yaml, "vllm-args": from_words, "lm-eval": from_model_args}
    try:
        return read[chosen](text, version)
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


def from_words(text: str, version: Version) -> Committed:
    """Flags and values, with or without `vllm serve MODEL`, comments and line ends."""
    # shlex takes a line end after a backslash for a letter; a shell does not.
    joined = re.sub(r"\\\r?\n", " ", text)
    return _Words(shlex.split(joined, comments=True), version).read()


class _Found:
    """What was found so far: values, how they are written, and what is wrong with them."""

    def __init__(self, version: Version, faults: Iterable[Fault] = ()) -> None:
        self.version = version
        self.values: dict[str, Any] = {}
        self.flags: dict[str, ServeFlag] = {}
        self.written: dict[str, str] = {}
        self.faults = list(faults)

    def fault(self, what: str, why: str, *, unknown: bool = False) -> None:
        self.faults.append(Fault(what=what, why=why, unknown=unknown))

    def committed(self, **more: Any) -> Committed:
        names = [name for name in self.written if name not in (*NAMES, "model")]
        harmless = [name for name in names if self._is_harmless(name)]
        return Committed(
            settings=Settings.of(self.values),
            others={name: self.written[name] for name in names if name not in harmless},
            harmless=tuple(harmless),
            faults=tuple(self.faults),
            **more,
        )

    def _is_harmless(self, name: str) -> bool:
        """Of no effect, or what is done anyway."""
        flag = self.flags.get(name)
        if flag is None:
            return False
        return flag.effect is Effect.NONE or self.written[name].lower() == (flag.default or None)


class _Words(_Found):
    """One pass over the words, as argparse goes over them."""

    def __init__(self, words: list[str], version: Version, faults: Iterable[Fault] = ()) -> None:
        super().__init__(version, faults)
        for start in STARTS:
            if tuple(words[: len(start)]) == start:
                words = words[len(start) :]
        # The model is the one word that may stand without a flag.
        self.model = words.pop(0) if words and not words[0].startswith("-") else None
        self.words, self.left = tuple(words), deque(words)

    def read(self) -> Committed:
        while self.left:
            word, equals, value = self.left.popleft().partition("=")
            self._one(word, value if equals else None)
        return self.committed(model=self.values.get("model", self.model), words=self.words)

    def _one(self, word: str, value: str | None) -> None:
        if not word.startswith("-"):
            return self.fault(word, f"vLLM does not know what to do with the word {word!r}")
        # `--some-config.key value` is one key of a JSON argument.
        name, dot, _ = (word.replace("_", "-") if word.startswith("--") else word).partition(".")
        try:
            flag, on = find_flag(name, self.version)
        except ValueError as error:
            return self._unknown(word, value, str(error))
        self.flags[flag.name] = flag
        if dot:
            self.written[flag.name] = f"{word} {self._next_value() if value is None else value}"
        elif flag.is_switch:
            self._switch(flag, value, on=on)
        else:
            self._valued(flag, value)
        return None

    def _switch(self, flag: ServeFlag, value: str | None, *, on: bool) -> None:
        self.written[flag.name] = str(on).lower()
        self.values[flag.name] = on
        if value is not None:
            self.fault(flag.name, f"a switch takes no value, and here it has {value!r}")

    def _valued(self, flag: ServeFlag, value: str | None) -> None:
        words = [value] if value is not None else list(self._next_values(flag))
        self.written[flag.name] = " ".join(words)
        # Later words win, and `auto` takes back an earlier length.
        self.values.pop(flag.name, None)
        if not words and flag.takes != "maybe":
            return self.fault(flag.name, "it needs a value")
        for word in words:
            try:
                self.values[flag.name] = flag.read(word)
            except ValueError as error:
                self.fault(flag.name, str(error))
        return None

    def _next_values(self, flag: ServeFlag) -> Iterable[str]:
        while (word := self._next_value()) is not None:
            yield word
            if not flag.takes_several:
                return

    def _unknown(self, word: str, value: str | None, why: str) -> None:
        """Nobody knows how many words it takes: all that are not flags."""
        name = word.lstrip("-").replace("-", "_")
        words = [value] if value is not None else []
        while value is None and (more := self._next_value()) is not None:
            words.append(more)
        self.written[name] = " ".join(words)
        self.fault(name, why, unknown=True)

    def _next_value(self) -> str | None:
        """The next word, unless it is a flag."""
        if not self.left or re.match(r"-(?!\d+(\.\d+)?\Z)", self.left[0]):
            return None
        return self.left.popleft()


# -- YAML ----------------------------------------------------------------------------------------


def from_yaml(text: str, version: Version) -> Committed:
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
        if value is False:
            dropped += _dropped(str(key), version)
        elif value != []:
            words += [f"--{key}", *_yaml_words(value)]
    return _Words(words, version, dropped).read()


def _yaml_words(value: Any) -> list[str]:
    if value is True:
        return []
    # Only single values are looked at; what an alias repeats could be endless.
    several = value if isinstance(value, list) else [value]
    return ["{}" if isinstance(item, list | dict) else str(item) for item in several]


def _dropped(key: str, version: Version) -> list[Fault]:
    """What it would have switched off stays on."""
    try:
        flag, _ = find_flag(spelled(key), version)
    except ValueError:
        return []
    if flag.effect is not Effect.JUDGED and flag.default != "true":
        return []
    why = f"vLLM drops `{key}: false` without a word; write `no-{key.removeprefix('no-')}: true`"
    return [Fault(what=flag.name, why=why)]


# -- lm-eval -------------------------------------------------------------------------------------


def _own(name: str, default: str | None = None) -> tuple[str, ServeFlag]:
    """A key of lm-eval's own, with what it is unless given; None: of no effect here."""
    return name, ServeFlag(
        name=name,
        takes="text",
        default=default or "",
        effect=Effect.NONE if default is None else Effect.ANY,
    )


# As read in 0.4.9 and 0.4.13, as is what it calls some of vLLM's, and what it sets unasked.
HARNESS_OWN = dict(
    [
        *(_own(name) for name in ("device", "swap_space", "think_end_token", "prefix_token_id")),
        *(_own("batch_size", "auto"), _own("max_gen_toks", "256"), _own("truncation_side", "left")),
        *(_own(name, "") for name in ("add_bos_token", "lora_local_path", "enable_thinking")),
        _own("chat_template_args", ""),
    ]
)
HARNESS_NAMES = {
    "max_length": "max_model_len",
    "max_batch_size": "max_num_seqs",
    "pretrained": "model",
}
HARNESS_DEFAULTS = Settings(gpu_memory_utilization=0.9)


def from_model_args(text: str, version: Version) -> Committed:
    """`pretrained=M,max_model_len=4096,...`, the same as a JSON object, or a command with it."""
    text = _model_args(_uncommented(text).strip())
    pairs = json.loads(text) if text.startswith("{") else _pairs(text)
    found = _Keywords(version)
    if "max_length" in pairs and "max_model_len" in pairs:
        found.fault("max_length", "lm-eval takes it or max_model_len, not both")
    for key, given in pairs.items():
        name = HARNESS_NAMES.get(key, key)
        if name == key or name not in pairs:
            found.one(name, given)
    engine = {n: v for n, v in found.values.items() if n not in (*HARNESS_OWN, "model")}
    return found.committed(
        model=found.values.get("model"),
        entry=Entry.LLM,
        defaults=HARNESS_DEFAULTS,
        keywords=engine,
    )


class _Keywords(_Found):
    """lm-eval's own arguments, and those that it hands on to vLLM's `LLM` class."""

    def one(self, name: str, given: Any) -> None:
        self.written[name] = str(given)
        try:
            flag = self.flags[name] = HARNESS_OWN.get(name) or self._engine_flag(name)
        except ValueError as error:
            return self.fault(name, str(error), unknown=True)
        try:
            self.values[name] = _keyword(flag, given)
        except ValueError as error:
            self.fault(name, str(error))
        return None

    def _engine_flag(self, name: str) -> ServeFlag:
        """The keywords of that class are the engine's arguments, written out."""
        flag, _ = find_flag(spelled(name), self.version)
        if flag.name != name or flag.server:
            raise ValueError("vLLM's LLM class has no such argument")
        return flag


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


def _keyword(flag: ServeFlag, given: Any) -> Any:
    text = str(given)
    if flag.is_switch:
        if text.lower() not in ("true", "false", "1", "0"):
            raise ValueError(f"{text!r} is not true or false")
        return text.lower() in ("true", "1")
    if flag.takes.startswith(("size", "length")):  # no 4K here, and no `auto`
        return int(flag.read(str(int(text))))
    return given if isinstance(given, dict | list) else flag.read(text)
