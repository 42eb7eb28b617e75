"""Reading the engine's settings that people commit, as vLLM and lm-eval read them.

There are three forms: the YAML that `vllm serve --config` reads, a line of flags for
`vllm serve`, and lm-eval's model_args. What vLLM would refuse or silently drop is a
refusal beside the values; nothing is passed over. Scripts, Dockerfiles and manifests
are not read: an error says which file to commit instead.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from chunkscope.artefacts.files import read_text
from chunkscope.artefacts.note import Fact
from chunkscope.errors import InputError
from chunkscope.vllm.engine import Refusal
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import ServeFlag, flags_of, parse_words, why_unknown
from chunkscope.vllm.rules import Version
from chunkscope.vllm.settings import NAMES, OWN, Settings, Value

HINT = (
    "commit the YAML that `vllm serve MODEL --config` reads: "
    "`chunkscope recommend --emit vllm-yaml > vllm.yaml`; "
    "of an lm_eval command, commit what follows --model_args"
)
OPERATORS = ";&|<>()"  # of a shell
OTHER_PROGRAMS = ("lm_eval", "lm-eval", "python", "python3")  # they look like a model
Written = bool | str | list[str] | None  # what argparse makes of a flag's words


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedSettings:
    """What a committed file says about the engine.

    `others` are arguments that no setting stands for, as they are written; `defaults`
    are those of whoever starts vLLM.
    """

    form: str = "vllm-args"
    settings: Settings = OWN
    model: str | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    entry: Entry = Entry.SERVE
    defaults: Settings = OWN


def read_settings(path: Path, version: Version) -> CommittedSettings:
    """The settings in a file; an InputError if it has none of the three forms."""
    text = read_text(path, "settings file", hint=HINT)
    try:
        match form_of(path, text):
            case "vllm-yaml":
                return from_yaml(text, version)
            case "lm-eval":
                return from_model_args(text, version)
            case _:
                return from_flags(text, version)
    except ValueError as error:
        raise InputError(
            f"{path} is neither vLLM's YAML nor a line of its flags nor lm-eval's "
            f"model_args: {error}",
            hint=HINT,
        ) from None


def form_of(path: Path, text: str) -> str:
    """By the file's name, else by how its first word looks."""
    if path.suffix.lower() in (".yaml", ".yml"):
        return "vllm-yaml"
    name, equals, _ = text.lstrip().partition("=")
    if equals and name.isidentifier() and name.islower():
        return "lm-eval"
    return "vllm-args"


def _refusal(argument: str, code: str, **values: Fact) -> Refusal:
    return Refusal(argument=argument, code=code, values=dict(values))


# -- flags -----------------------------------------------------------------------------


def from_flags(text: str, version: Version) -> CommittedSettings:
    """Of a line such as `org/model --max-num-seqs 8`, on one line or several."""
    lexer = shlex.shlex(
        text.replace("\\\n", " "), posix=True, punctuation_chars=OPERATORS
    )
    lexer.whitespace_split = True
    lexer.commenters = ""  # vLLM knows no comments
    words = list(lexer)
    if words[:2] == ["vllm", "serve"]:
        words = words[2:]
    for word in words:
        if "$" in word or "`" in word or not word.strip(OPERATORS):
            raise ValueError(f"a shell has to read {word!r}")
    # Only the model may stand before the flags; other programs look like one.
    several = len(words) > 1 and not words[0].startswith("-")
    is_model = several and words[1].startswith("-") and words[0] not in OTHER_PROGRAMS
    if (several and not is_model) or "serve" in words:
        raise ValueError("it is more than `vllm serve` and its flags")
    return from_words(words, version)


def from_words(words: list[str], version: Version) -> CommittedSettings:
    """What `vllm serve` makes of its words."""
    model = None
    # The model is the one word that may stand without a flag, unless a flag names it.
    names = [word.partition("=")[0] for word in words]
    if words and not words[0].startswith("-") and "--model" not in names:
        model, *words = words
    try:
        given, unknown = parse_words(words, version)
    except ValueError as error:
        refusal = _refusal("arguments", "argument_refused", why=str(error))
        return CommittedSettings(model=model, refusals=(refusal,))
    values: dict[str, Value] = {}
    others: dict[str, str] = {}
    refusals = []
    for name, written in given.items():
        flag = flags_of(version)[name]
        try:
            value = flag.read(written) if isinstance(written, str) else written
        except ValueError as error:
            refusals.append(_refusal(name, "argument_refused", why=str(error)))
            continue
        if name in NAMES:
            values[name] = value
        elif not _changes_nothing(flag, written):
            others[name] = _text(written)
    model = others.pop("model", model)
    more_others, more_refusals = _unknown_arguments(unknown, version)
    return CommittedSettings(
        settings=Settings.of(values),
        model=model,
        others=others | more_others,
        refusals=(*refusals, *more_refusals),
    )


def _text(written: Written) -> str:
    """A flag's words as text."""
    if isinstance(written, bool):
        return str(written).lower()
    if isinstance(written, list):
        return " ".join(written)
    return written or ""


def _changes_nothing(flag: ServeFlag, written: Written) -> bool:
    """It touches neither memory nor speed, or says what is done anyway."""
    is_default = flag.default != "" and _text(written).lower() == flag.default
    return flag.harmless or is_default


def _unknown_arguments(
    words: list[str], version: Version
) -> tuple[dict[str, str], list[Refusal]]:
    """What vLLM's parser does not know: as it is written, and why it is refused.

    An unknown flag has all words behind it: nobody knows how many it takes.
    """
    others: dict[str, str] = {}
    refusals = []
    name = ""
    for word in words:
        option, _, value = word.partition("=")
        if word.startswith("-"):
            name = _name_of_key(option, version) or option.lstrip("-").replace("-", "_")
            others[name] = value
            if name not in flags_of(version):
                why = why_unknown(option, version)
                refusals.append(_refusal(name, "argument_unknown", **why))
        elif name:
            others[name] = f"{others[name]} {word}".strip()
        else:
            refusals.append(_refusal(word, "argument_stray", word=word))
    return others, refusals


def _name_of_key(option: str, version: Version) -> str:
    """The argument of which an option sets one key: `-cc.mode` is of `-cc`."""
    spelling, dot, _ = option.partition(".")
    for flag in flags_of(version).values():
        if dot and spelling in flag.spellings:
            return flag.name
    return ""


# -- vLLM's YAML -----------------------------------------------------------------------


def from_yaml(text: str, version: Version) -> CommittedSettings:
    """Of `key: value` lines. vLLM makes words of them, and drops `key: false`."""
    words = []
    dropped = []
    for key, value in _yaml_mapping(text).items():
        flag = flags_of(version).get(key.replace("-", "_"))
        parts = value if isinstance(value, list) else [value]
        if flag is None and any(isinstance(part, dict | list) for part in parts):
            raise ValueError(f"`{key}` is no argument of vLLM")
        if value is False:
            if flag is not None and _is_missed(flag):
                instead = key.removeprefix("no-")
                refusal = _refusal(
                    flag.name, "argument_dropped", key=key, instead=instead
                )
                dropped.append(refusal)
        elif value is True:
            words.append(f"--{key}")
        elif parts:
            words.append(f"--{key}")
            words += [_scalar(part) for part in parts]
    committed = from_words(words, version)
    return replace(
        committed, form="vllm-yaml", refusals=(*dropped, *committed.refusals)
    )


def _is_missed(flag: ServeFlag) -> bool:
    """Does it matter that vLLM drops `flag: false`? Other switches are off anyway."""
    return flag.name in NAMES or flag.default == "true"


def _scalar(value: object) -> str:
    """As a word. What is nested is not looked at: an alias may repeat it endlessly."""
    return "{}" if isinstance(value, list | dict) else str(value)


def _yaml_mapping(text: str) -> dict[str, object]:
    import yaml

    try:
        documents = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise ValueError("it is no list of `key: value` lines")
    return {str(key): value for key, value in documents[0].items()}


# -- lm-eval's model_args --------------------------------------------------------------

# As read in lm-eval 0.4.9 and 0.4.13: its own keys, of no effect here or with one.
WITHOUT_EFFECT = ("device", "swap_space", "think_end_token", "prefix_token_id")
HARNESS_KEYS = (
    "add_bos_token",
    "lora_local_path",
    "enable_thinking",
    "chat_template_args",
    "batch_size",
    "max_gen_toks",
    "truncation_side",
)
# What it calls some of vLLM's.
HARNESS_NAMES = {
    "max_length": "max_model_len",
    "max_batch_size": "max_num_seqs",
    "pretrained": "model",
}
HARNESS_DEFAULTS = Settings(gpu_memory_utilization=0.9)  # what it sets unasked


def from_model_args(text: str, version: Version) -> CommittedSettings:
    """Of `pretrained=M,max_model_len=4096,...`: keywords of vLLM's LLM class."""
    pairs = _pairs(text)
    words: list[str] = []
    others: dict[str, str] = {}
    refusals = []
    for key, value in pairs.items():
        name = HARNESS_NAMES.get(key, key)
        flag = flags_of(version).get(name)
        if name != key and name in pairs:
            refusals.append(_refusal(key, "argument_twice", other=name))
        elif name in HARNESS_KEYS:
            if not value.startswith("auto"):
                others[name] = value
        elif name in WITHOUT_EFFECT:
            continue
        elif flag is None or flag.server:
            refusals.append(_refusal(name, "argument_not_of_llm"))
        elif flag.takes.startswith(("size", "length")) and not value.isdecimal():
            # `4K` and `auto` are words of the command line alone.
            refusals.append(_refusal(name, "argument_no_number", value=value))
        else:
            words += _keyword(flag, value)
    committed = from_words(words, version)
    return replace(
        committed,
        form="lm-eval",
        others={**committed.others, **others},
        refusals=(*refusals, *committed.refusals),
        entry=Entry.LLM,
        defaults=HARNESS_DEFAULTS,
    )


def _pairs(text: str) -> dict[str, str]:
    """Of two equal keys the last one counts."""
    pairs = {}
    for part in " ".join(text.split()).split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{part.strip()!r} is not key=value")
        pairs[key.strip()] = value.strip()
    return pairs


def _keyword(flag: ServeFlag, value: str) -> list[str]:
    """A keyword of Python as words for `vllm serve`."""
    spelling = flag.spellings[0]
    is_switch = flag.takes in ("switch", "on")
    if is_switch and value.lower() in ("true", "1"):
        return [spelling]
    if is_switch and value.lower() in ("false", "0"):
        return [f"--no-{spelling[2:]}"] if flag.takes == "switch" else []
    return [f"{spelling}={value}"]
