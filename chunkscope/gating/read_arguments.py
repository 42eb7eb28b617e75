"""Engine arguments as people commit them, each form read as its reader reads it: what vLLM would
refuse, or silently drop, is a fault beside the values. Nothing is passed over."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any

from chunkscope.artefacts.files import read_text
from chunkscope.errors import InputError
from chunkscope.vllm.deployment import Refusal
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import (
    ServeFlag,
    WordParser,
    flags_of,
    parse_words,
    why_unknown,
)
from chunkscope.vllm.rules import Version
from chunkscope.vllm.settings import NAMES, OWN, Settings

START = r"""(?:"[^"\s]*\bvllm"|'[^'\s]*\bvllm'|(?<!-c )\bvllm(?:@\S+|\.entry\S+main)?)\s+serve\b"""
SERVE = re.compile(START + r"|\brun .*/vllm-openai\S*|\bvllm\.entry\S+api_server\b")
# What is printed, or looked for among processes, starts nothing.
SAID = r"""(?:^|[;&|])[ \t@]*(?:(?:if|while|until|then|do|else|!) +)*"""
SAID += r"""(?:echo|printf(?! -v)|pkill|(?:kill \$\()?pgrep) """
SAID += r"""(?:"[^"]*"|'[^']*'|[^"';&|\n])*"""
COMMENT = re.compile(rf"""(?m)(?:^|(?<=[ \t]))#.*$|{SAID}|("[^"\n]*"|'[^'\n]*')""")
# A variable that is set to a plain value or list on lines of its own; behind what it may be set not
# at all or again; what goes to or comes from a file; and a command, up to what ends it in a shell.
SET = r"(?m)^(?:(?:export|readonly) )?(\w+)="
PLAIN = (
    r"""(?:"([^"$`\\\n]*)"|'([^'$`\\\n]*)'|([\w./:@+,=-]*)|\(([^$`\\()]*)\))[ \t]*$"""
)
BRANCH = re.compile(
    r"(?m)^\s*(?:if|for|while|until|case|function)\b|\(\)|<<|(?:&&|[|{]|^\()\s*$"
)
SUBSTITUTION = re.compile(r"\$\(\(.*?\)\)|[$<>]\([^()\n]*\)|`[^`\n]*`")
REDIRECT = re.compile(
    r"""(?<=\s)[\d&]?(?:>>?|<)(?:&\d|&?\s*(?:"[^"]*"|'[^']*'|[^\s<>|;&'"])+)"""
)
ONE = re.compile(
    r"""(?:\$\(\)|\(.*|\\.?|'[^']*(?:'|$)|"(?:\\.|[^"\\])*(?:"|$)|[^\\'"|;&()\n])*"""
)
# A `vllm` that is another command; what may change memory or speed from outside of the command.
REDEFINED = re.compile(r"\bvllm *\(\)|\b(?:alias|function) vllm\b")
VARIABLE = re.compile(
    r"(?<![\w$])(?<!\${)VLLM_(?!LOG(?!I)|API_KEY|HOST|PORT|(?:PID|VERSION|IMAGE|TAG|URL)\b)\w+"
    r"|EnvironmentFile|env[-_]file|envFrom|\bextends(?=\W?:)"  # the last is Compose's
)
COMMAND = r"""(?m)(?:^|[;&|(])\s*(\.|source|eval|xargs|export(?= +"?\$)|env(?=.* \$\(.* vllm))"""
SOURCED = re.compile(COMMAND + r"(?![\w/.=-]|[^;&|\n]*(?:activate|conda))")
HARNESS_COMMAND = re.compile(r"\blm[_-]eval(?=\s)")
HARNESS_OPTIONS = re.compile("-M|-a|-C|--mo|--co")
# Those with a value; a variable behind any other word may be more options.
HARNESS_TAKES = re.compile(
    r"-(?![swx]$|-(?:log_s|check_i|write_o|show_c|predict|trust|conf))[^=]+$"
)
MANIFEST = re.compile(
    r"""(?ms)^(?:services|apiVersion):|\A\s*\{.*"(?:services|apiVersion)"\s*:"""
)
# Of a Dockerfile: a list of words, or, with anything behind it, what Docker hands to a shell.
INSTRUCTION = re.compile(
    r"(?mi)^[ \t]*(ENTRYPOINT|CMD)[ \t]+(?!=)(?:(\[.*\])|(.+?))\s*$"
)
STAGE = re.compile(
    r"(?mi)^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(\S+)(?:[ \t]+AS[ \t]+(\S+))?"
)


def refusal(argument: str, code: str, **values: Any) -> Refusal:
    """Why vLLM would not take an argument, or not take it as it is meant."""
    return Refusal(argument=argument, code=code, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedArguments:
    """`others`: what no setting stands for, as written; `defaults`: those of who starts vLLM."""

    settings: Settings = OWN
    model: str | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    entry: Entry = Entry.SERVE
    defaults: Settings = OWN


def read_arguments(
    path: Path, version: Version, form: str | None = None
) -> CommittedArguments:
    hint = "write one: `chunkscope recommend --emit vllm-yaml > vllm.yaml`"
    text = read_text(path, "settings file", hint=hint)
    chosen = form or form_of(path, text)
    read = {"vllm-yaml": from_yaml, "vllm-args": from_words, "lm-eval": from_model_args}
    try:
        command = _container_command(text) if chosen == "vllm-args" else text
        arguments = read[chosen](command, version)
        names = VARIABLE.findall(COMMENT.sub(r"\1", text)) + SOURCED.findall(
            _commands(command)
        )
        environment = {name.replace("-", "_"): "" for name in names}
        return replace(arguments, others={**environment, **arguments.others})
    except ValueError as error:
        hint = "it may be vLLM's YAML, a script, model_args, a manifest or a Dockerfile (`form`)"
        raise InputError(
            f"{path} cannot be read as {chosen}: {error}", hint=hint
        ) from None


def form_of(path: Path, text: str) -> str:
    """By its name, else by what it starts, else by how its first word looks."""
    if path.suffix.lower() in (".yaml", ".yml") and not MANIFEST.search(text):
        return "vllm-yaml"
    text = COMMENT.sub(r"\1", text)
    starts = SERVE.search(text) or MANIFEST.search(text)
    is_harness = HARNESS_COMMAND.search(text) or re.match(r"\s*(\{|[a-z_]+=)", text)
    return "lm-eval" if is_harness and not starts else "vllm-args"


def _commands(text: str) -> str:
    """As a shell reads them: without comments, and then lines that go on joined. A variable is
    replaced if its name stands only where it is set, once and in any case, and later is used."""
    if "\\\r\n" in text or REDEFINED.search(text):
        raise ValueError(
            "a `\\` stands before a Windows line end, or it redefines `vllm`"
        )
    text = COMMENT.sub(r"\1", text).replace("\\\n", " ")
    for setting in re.finditer(SET + PLAIN, text):
        before, itself, after = text.partition(setting[0])
        name, *values = setting.groups("")
        use = (
            rf'"?\${{{name}\[@]}}"?'
            if values[-1]
            else rf"(?<!\\)\$(?:{name}\b|{{{name}}})"
        )
        after, uses = re.subn(use, " ".join("".join(values).split()), after)
        names = re.findall(rf"(?<![\w-]){name}\b", text)
        text = (
            text
            if BRANCH.search(before) or len(names) != 1 + uses
            else before + itself + after
        )
    return text


def from_words(text: str, version: Version) -> CommittedArguments:
    """Flags and values; or of a script the command that starts vLLM."""
    text = _commands(text)
    before, *started = SERVE.split(text)
    is_quoted = any(before.rpartition("\n")[2].count(quote) % 2 for quote in "'\"")
    if len(started) > 1 or (started and is_quoted):
        raise ValueError(
            "it starts vLLM more than once, or inside quotes: that is not followed"
        )
    words = _words(started[0] if started else " ".join(text.splitlines()))
    if (
        not started
        and len(words) > 1
        and not any(word.startswith("-") for word in words[:2])
    ):
        raise ValueError(
            "it neither starts vLLM (`vllm serve`) nor is a list of its arguments"
        )
    return _from_list(words, version)


def _words(command: str) -> list[str]:
    return shlex.split(
        ONE.findall(REDIRECT.sub("", SUBSTITUTION.sub("$()", command)))[0]
    )


def _from_list(
    words: list[str], version: Version, refusals: Iterable[Refusal] = ()
) -> CommittedArguments:
    # The model is the one word that may stand without a flag, unless one names it.
    model = words[0] if words and not words[0].startswith(("-", "$@")) else None
    words = (
        words[1:]
        if model and "--model" not in {w.partition("=")[0] for w in words}
        else words
    )
    flags, faults = flags_of(version), list(refusals)
    values, written = (
        dict[str, Any](),
        dict[str, str](),
    )  # as vLLM reads them; as they stand there
    try:
        given, unknown = parse_words(words, version)
    except ValueError as error:
        faults.append(refusal("arguments", "argument_refused", why=str(error)))
        given, unknown = {}, []
    for name, value in given.items():
        if isinstance(value, bool):
            written[name], values[name] = str(value).lower(), value
            continue
        several = value if isinstance(value, list) else [] if value is None else [value]
        written[name] = " ".join(several)
        # `--served-model-name a $MORE` may be flags.
        faults += [
            refusal(w, "argument_stray", word=w) for w in several[1:] if w[:1] == "$"
        ]
        # Whatever a variable is, it matters only where the value does.
        for word in (
            several if "$" not in str(value) or not flags[name].harmless else ()
        ):
            try:
                values[name] = flags[name].read(word)
            except ValueError as error:
                why = (
                    f"what {word} stands for is not known here"
                    if "$" in word
                    else str(error)
                )
                faults.append(refusal(name, "argument_refused", why=why))
    faults += _take_unknown(unknown, written, version)
    others = {
        name: text for name, text in written.items() if name not in (*NAMES, "model")
    }
    for name in flags.keys() & others.keys():  # of no effect, or what is done anyway
        if flags[name].harmless or others[name].lower() == (
            flags[name].default or None
        ):
            del others[name]
    return CommittedArguments(
        settings=Settings.of(values),
        model=values.get("model", model),
        others=others,
        refusals=tuple(faults),
    )


def _take_unknown(
    words: list[str], written: dict[str, str], version: Version
) -> Iterator[Refusal]:
    """An unknown flag has the words behind it; nobody knows how many it takes."""
    spelled = {
        name: flag.name
        for flag in flags_of(version).values()
        for name in flag.spellings
    }
    name = ""
    for word in words:
        flag, _, value = word.partition("=")
        base, dot, _ = flag.partition(".")
        if dot and base in spelled:
            name, written[spelled[base]] = (
                spelled[base],
                word,
            )  # `-cc.mode=0`: one key of a JSON
        elif word.startswith("-"):
            name = flag.lstrip("-").replace("-", "_")
            written[name] = value
            yield refusal(name, "argument_unknown", **why_unknown(flag, version))
        elif name:
            written[name] = f"{written[name]} {word}".strip()
        else:
            yield refusal(word, "argument_stray", word=word)


def from_yaml(text: str, version: Version) -> CommittedArguments:
    """`key: value`. vLLM makes words of it: `key: true` is a switch, `key: false` is dropped."""
    document, *others = _documents(text) or [None]
    if others or not isinstance(document, dict):
        raise ValueError("it is no list of `key: value` lines for vLLM")
    words, dropped = list[str](), list[Refusal]()
    for key, value in document.items():
        flag = flags_of(version).get(str(key).replace("-", "_"))
        if not flag and isinstance(
            value[0] if value and isinstance(value, list) else value, dict
        ):
            raise ValueError(
                f"`{key}` is no argument of vLLM"
            )  # but another program's settings
        if value is False:
            if flag and (
                flag.name in NAMES or flag.default == "true"
            ):  # and it stays on
                instead = str(key).removeprefix("no-")
                dropped.append(
                    refusal(flag.name, "argument_dropped", key=key, instead=instead)
                )
        elif value != []:
            several = (
                [] if value is True else value if isinstance(value, list) else [value]
            )
            # Only single values are looked at; what an alias repeats could be endless.
            single = [
                "{}" if isinstance(one, list | dict) else str(one) for one in several
            ]
            words += [f"--{key}", *single]
    return _from_list(words, version, dropped)


def _documents(text: str) -> list[Any]:
    import yaml

    try:
        return list(yaml.safe_load_all(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def _container_command(text: str) -> str:
    """Of a Kubernetes manifest, a Compose file or a Dockerfile: what its one vLLM starts with."""
    if not (MANIFEST.search(text) or INSTRUCTION.search(text)):
        return text
    found = (
        _manifest_commands(text) if MANIFEST.search(text) else [_docker_command(text)]
    )
    commands = [one for one in found if SERVE.search(COMMENT.sub(r"\1", one))]
    if len(commands) != 1:
        raise ValueError(
            f"{len(commands)} of its containers start vLLM, and it has to be one"
        )
    return commands[0]


def _manifest_commands(text: str) -> list[str]:
    documents = [
        one for one in _documents(text.expandtabs()) if isinstance(one, dict)
    ]  # JSON's
    nodes = [one.get("services", one) for one in documents]
    for node in nodes:
        if (
            isinstance(node, dict | list) and len(nodes) < 100_000
        ):  # aliases may have no end
            nodes += node.values() if isinstance(node, dict) else node
    found = [
        node
        for node in nodes
        if isinstance(node, dict) and node.keys() & {"image", "build"}
    ]
    is_compose = any("services" in one for one in documents)
    names = ("entrypoint", "command") if is_compose else ("command", "args")
    return [_command_of(one.get("image"), *map(one.get, names)) for one in found]


def _docker_command(text: str) -> str:
    """A stage has what the one has that it begins from; an entry point of its own drops a CMD."""
    lines = re.sub(r"\\[ \t]*\r?\n", " ", re.sub(r"(?m)^[ \t]*(?:#.*)?\r?\n", "", text))
    parts, stages = ["", "", *STAGE.split(lines)], dict[str, Any]()
    defaults = dict(re.findall(r"(?mi)^[ \t]*ARG[ \t]+(\w+)=\"?([^\s\"]+)", parts[2]))
    for base, name, stage in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        base = Template(base).safe_substitute(defaults)
        image, forms = stages.get(base.lower(), (base, {}))
        found = INSTRUCTION.findall(stage)
        own = {
            k.upper(): json.loads(x) if x else ["sh", "-c", line]
            for k, x, line in found
        }
        forms = own if "ENTRYPOINT" in own else forms | own
        stages[(name or "").lower()] = image, forms
    return _command_of(image, forms.get("ENTRYPOINT"), forms.get("CMD"))


def _command_of(image: Any, *parts: Any) -> str:
    """What a shell would be told; without an entry point (an empty one is one) the image's own."""
    lists = (shlex.split(part) if isinstance(part, str) else part for part in parts)
    entry, rest = (
        [*map(str, part)] if isinstance(part, list) else None for part in lists
    )
    own = ["vllm", "serve"] if entry is None and "/vllm-openai" in str(image) else []
    words = [*own, *(entry or []), *(rest or [])]
    is_script = (
        len(words) > 2 and words[0].endswith("sh") and re.fullmatch(r"-\w*c", words[-2])
    )
    return words[-1] if is_script else shlex.join(words)  # bash -c '...'


# As read in 0.4.9 and 0.4.13: keys of lm-eval's own, with what each is unless given (None: of no
# effect here), what it calls some of vLLM's, and what it sets unasked.
HARNESS_KEYS = {
    **dict.fromkeys(("device", "swap_space", "think_end_token", "prefix_token_id")),
    **dict.fromkeys(("add_bos_token", "lora_local_path", "enable_thinking"), ""),
    "chat_template_args": "",
    "batch_size": "auto",
    "max_gen_toks": "256",
    "truncation_side": "left",
}
HARNESS_NAMES = {
    "max_length": "max_model_len",
    "max_batch_size": "max_num_seqs",
    "pretrained": "model",
}
HARNESS: Any = {"entry": Entry.LLM, "defaults": Settings(gpu_memory_utilization=0.9)}


def from_model_args(text: str, version: Version) -> CommittedArguments:
    """`pretrained=M,max_model_len=4096,...`, a JSON object of it, or an lm-eval command."""
    text, options = _harness_command(_commands(text).strip())
    pairs = (json.loads(text) if text.startswith("{") else _pairs(text)) | options
    words, refusals, others = list[str](), list[Refusal](), dict[str, str]()
    for key, given in pairs.items():
        name, value = HARNESS_NAMES.get(key, key), str(given)
        flag = flags_of(version).get(name)
        if name != key and name in pairs:
            refusals.append(refusal(key, "argument_twice", other=name))
        elif name in HARNESS_KEYS:
            if HARNESS_KEYS[name] not in (None, value.lower().partition(":")[0]):
                others[name] = value
        elif flag is None or flag.server:
            refusals.append(refusal(name, "argument_not_of_llm"))
        elif flag.takes.startswith(("size", "length")) and not value.isdecimal():
            refusals.append(
                refusal(name, "argument_no_number", value=value)
            )  # as `4K`, `auto`
        else:
            words += _keyword(
                flag, json.dumps(given) if isinstance(given, dict | list) else value
            )
    read = _from_list(words, version, refusals)
    return replace(read, others={**read.others, **others}, **HARNESS)


def _keyword(flag: ServeFlag, value: str) -> list[str]:
    """A keyword of Python as a word for `vllm serve`."""
    if flag.takes not in ("switch", "on") or value.lower() not in (
        "true",
        "false",
        "1",
        "0",
    ):
        return [f"{flag.spellings[0]}={value}"]
    if value.lower() in ("true", "1"):
        return [flag.spellings[0]]
    return [f"--no-{flag.spellings[0][2:]}"] if flag.takes == "switch" else []


def _harness_command(text: str) -> tuple[str, dict[str, str]]:
    """The model_args, and what a command with them says besides: one request at once by default."""
    if not HARNESS_COMMAND.search(text):
        return text, {}
    parser = WordParser(add_help=False)
    parser.add_argument("--model", "-M")
    parser.add_argument("--model_args", "-a", nargs="+", action="append", default=[])
    parser.add_argument("--batch_size", "-b", default="1 (the default; auto sends all)")
    parser.add_argument("--max_batch_size")
    parser.add_argument("--config", "-C")
    commands = [
        _words(part) for part in HARNESS_COMMAND.split(text)[1:]
    ]  # or a package's name
    started = [c for c in commands if any(HARNESS_OPTIONS.match(word) for word in c)]
    words = started[0] if len(started) == 1 else []
    options = vars(parser.parse_known_args(words)[0])
    model, given, config = (
        options.pop(name) for name in ("model", "model_args", "config")
    )
    if len(given) != 1 or model != "vllm" or config:
        raise ValueError(
            "it has to have `--model vllm` and --model_args once, and no --config"
        )
    for before, word in pairwise(["", *words]):
        if word[:1] == "$" and not HARNESS_TAKES.match(before):
            raise ValueError(
                f"what {word} stands for is not known here: it may be more options"
            )
    return ",".join(given[0]), {name: value for name, value in options.items() if value}


def _pairs(text: str) -> dict[str, str]:
    parts = [part.strip() for part in " ".join(text.split()).split(",")]
    for part in (
        part for part in parts if not part.partition("=")[0].strip() or "=" not in part
    ):
        raise ValueError(f"{part!r} is not key=value")
    return {
        key.strip(): value.strip()
        for key, value in (part.split("=", 1) for part in parts)
    }
