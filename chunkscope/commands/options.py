"""Options: one table a command, which reads as its --help does; and chunkscope.toml.

The command line has the options that people use; `chunkscope.toml` sets any option of a command's
model: `[analyze]` with `delimiter = ";"`. Defaults are the model's; what is not typed is not there.
"""

import argparse
import os
import re
import shlex
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_origin

from chunkscope import console
from chunkscope.errors import InputError, UsageError
from chunkscope.vllm.enums import Entry, KvCacheType, Task

if TYPE_CHECKING:
    from chunkscope.planning.plan import Plan

REPORTS = Path("reports")
PROFILE, PLAN = REPORTS / "profile.json", REPORTS / "plan.json"
CONFIG, PROJECT = Path("chunkscope.toml"), Path("pyproject.toml")

# -- the table -----------------------------------------------------------------------------------

# Options of several commands. A line of a command's table that is nothing but names takes them.
SHARED = f"""
  --profile FILE...      From `chunkscope analyze`; repeatable. [default: the plan's]
  --model -m NAME        Folder with a config.json, hub id, or a built-in name such as llama-3.1-8b.
  --gpu NAME             h200, a100-80gb, ..., or a size such as 80GiB. [default: this machine's]
  --tp N                 GPUs in tensor parallel.
  --dp N                 Replicas, each of --tp GPUs.
  --ep                   Expert parallel: whole experts on each GPU.
  --kv-cache-dtype {"|".join(KvCacheType)}  fp8 holds twice as many tokens.
  --vllm-version X.Y     [default: the installed one, else the newest known]
  --entry {"|".join(Entry)}  How vLLM is started: its defaults differ.
  --task {"|".join(Task)}  What the evaluation asks of the model.
  --max-output N         Tokens per answer. [default: from the data, else 256]
  --arrivals WHEN        batch (all at once), or a rate such as 4/s.
  --concurrency N        The client keeps at most N requests in flight.
  --slo LIMITS           Latency limits, such as ttft_p95=1s,itl_p99=50ms (ttft, itl, tpot, e2e;
                         p50 to p99, max, mean).
  --details              Show everything, not only the answer.
  --json                 Print the result as JSON.
  --quiet -q             No progress.
  --output -o FILE       Where to write it.
"""
FROM_ZERO = ("--shots", "--timeline", "--long-prefill-token-threshold")
ARITY = {(False, False): None, (True, False): "?", (False, True): "+", (True, True): "*"}
FILES = ("FILE", "PLAN", "PROFILE", "FOLDER", "REPORTS", "OLD", "NEW")
# Names, what the value is called, help. An argument's name is in capitals: [PLAN], PATH...
_LINE = re.compile(r"  ((?:-\S+|\[?[A-Z]\S+)(?: -\S+)*)(?: ((?!-)\S+))?(?:  +(.*))?")


class Given(argparse.Namespace):
    """What was typed, by name; None for what was not."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None


def count(text: str, least: int = 1) -> int:
    if not re.fullmatch(r"-?\d{1,15}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    if int(text) < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, not {text}")
    return int(text)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace("arguments are required", "is missing")
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        names = [name for name in self._option_string_actions if name.startswith("--")]
        near = get_close_matches(unknown[1], names, n=1) if unknown else []
        hint = f"did you mean {near[0]}?" if near else f"`{self.prog} --help` lists the options"
        raise UsageError(message, hint=hint)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=min(80, console.columns()))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = ", ".join(sorted(action.option_strings, key=len))
        value = action.metavar or "|".join(action.choices or ())
        return f"{names} {value}".strip()

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


@dataclass(frozen=True)
class Command:
    """A function of what was typed, and the table of its options."""

    table: str
    run: Callable[[Given], None]

    @property
    def name(self) -> str:
        return self.run.__name__.removesuffix("_command")

    @property
    def about(self) -> str:
        return (self.run.__doc__ or "").replace("\n    ", "\n").strip()

    def parser(self) -> Parser:
        positional = re.findall(r"^  (\[?[A-Z]\S+)", self.table, re.M)
        parser = Parser(
            prog=f"chunkscope {self.name}",
            usage=" ".join((f"chunkscope {self.name} [OPTIONS]", *positional)),
            description=self.about,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
            add_help=False,
            argument_default=argparse.SUPPRESS,
        )
        group: Any = parser
        for line in _lines(self.table):
            if isinstance(line, str):
                group = parser.add_argument_group(line)
            else:
                _add(group, *line)
        group.add_argument("-h", "--help", action="help", help="Show this and exit.")
        return parser


def command(table: str) -> Callable[[Callable[[Given], None]], Command]:
    return lambda run: Command(table, run)


Line = tuple[list[str], str, str]  # names, what its value is called, help


def _lines(table: str) -> Iterator[str | Line]:
    """The table's groups and options, those of SHARED in their places."""
    shared = {} if table is SHARED else {o[0][0]: o for o in _lines(SHARED) if o and o[0]}
    made: list[Any] = []
    for line in filter(str.strip, table.splitlines()):
        names = line.split()
        if (match := _LINE.fullmatch(line)) is not None and not set(names) <= shared.keys():
            made.append((match[1].split(), match[2] or "", match[3] or ""))
        elif match is not None:
            made += [shared[name] for name in names]
        elif line.startswith(" "):
            *head, text = made[-1]
            made[-1] = (*head, f"{text} {line.strip()}".strip())
        else:
            made.append(line.rstrip(":"))
    yield from made


def _add(group: Any, names: list[str], value: str, text: str) -> None:
    """An option: `N` is a count, `FILE` a path, `a|b` a choice, `X...` may be repeated."""
    how: dict[str, Any] = {"help": text.replace("%", "%%"), "default": argparse.SUPPRESS}
    is_option = names[0].startswith("-")
    bare = (value or names[0]).removesuffix("...").strip("[]")
    if not is_option:
        is_many, is_optional = names[0].endswith("..."), names[0].startswith("[")
        how |= {"metavar": names[0], "nargs": ARITY[is_optional, is_many], "default": None}
        names = [re.split(r"\W", bare)[0].lower() + "s" * is_many]
    elif not value:
        group.add_argument(*names, action="store_true", **how)
        return
    elif value.endswith("..."):
        how |= {"metavar": value.removesuffix("..."), "action": "append"}
    elif value.startswith("["):
        how |= {"metavar": value, "nargs": "?", "const": ""}
    elif "|" in value:
        how["choices"] = value.split("|")
    else:
        how["metavar"] = value
    kinds: dict[str, Any] = {"SHARE": float, "COUNT": float, "SEED": int} | dict.fromkeys(
        FILES, Path
    )
    kinds["N"] = (lambda text: count(text, 0)) if names[0] in FROM_ZERO else count
    if bare in kinds:
        how["type"] = kinds[bare]
    group.add_argument(*names, **how)


# -- in the shell --------------------------------------------------------------------------------


def completed(parser: argparse.ArgumentParser, words: list[str]) -> Iterator[str]:
    """What the last word may become: an option, or a value of the option before it."""
    part, before = words[-1], words[-2] if len(words) > 1 else ""
    actions = parser._option_string_actions
    action = actions.get(before)
    if action is not None and action.nargs != 0:
        yield from (name for name in known_names(action.dest, action) if name.startswith(part))
    elif part.startswith("-"):
        yield from (name for name in actions if name.startswith(part))
    else:
        for positional in parser._get_positional_actions():
            yield from (n for n in known_names(positional.dest, positional) if n.startswith(part))


def known_names(what: str, action: argparse.Action | None = None) -> Iterable[str]:
    if what == "gpu":
        from chunkscope.hardware.gpus import CARDS

        return [card.name for card in CARDS]
    if what == "model":
        from chunkscope.models.find import MODELS

        return MODELS
    if what == "page":
        return pages()
    return (action.choices if action is not None else None) or ()


def pages() -> dict[str, Path]:
    """The manual's."""
    guide = Path(__file__).parents[1] / "guide"
    return {page.stem: page for page in sorted(guide.glob("*.md"))}


# -- chunkscope.toml -----------------------------------------------------------------------------


def settled(command: str, types: dict[str, Any], given: Given) -> dict[str, Any]:
    """Options as keywords: those of chunkscope.toml, and before them those that were typed."""
    from chunkscope.commands.api import ALIASES

    table = configured(command)
    for name, value in table.items():
        if (hint := types.get(ALIASES.get(name, name))) is not None:
            table[name] = _checked(f"{CONFIG}: [{command}] {name}", hint, value)
        else:
            near = get_close_matches(name, types, n=1)
            raise InputError(
                f"{CONFIG}: [{command}] has no option {name}",
                hint=f"did you mean {near[0]}?" if near else "`chunkscope help config` lists them",
            )
    return table | {name: v for name, v in vars(given).items() if name not in NOT_FOR_PYTHON}


NOT_FOR_PYTHON = ("details", "json", "quiet", "output", "format")


def configured(command: str) -> dict[str, Any]:
    """The table of a command in chunkscope.toml, else in pyproject.toml's [tool.chunkscope]."""
    named = os.environ.get("CHUNKSCOPE_CONFIG")
    for path in (Path(named),) if named else (CONFIG, PROJECT):
        if not path.is_file():
            continue
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError) as error:
            if path == PROJECT:
                continue  # not ours
            raise InputError(f"cannot read {path}: {error}") from None
        if path == PROJECT:
            document = document.get("tool", {}).get("chunkscope", {})
        if isinstance(table := document.get(command), dict):
            return {name.replace("-", "_"): value for name, value in table.items()}
        if command in document:
            raise InputError(f"{path}: {command} is no table", hint=f"write [{command}]")
    return {}


def _checked(where: str, hint: Any, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    if get_origin(hint) is tuple and isinstance(value, str):
        value = [value]  # one word is a list of one
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        raise InputError(f"{where}: {error.errors(include_url=False)[0]['msg'].lower()}") from None


# -- artefacts -----------------------------------------------------------------------------------


def finish(artefact: Any, given: Given, output: Path, after: str = "") -> None:
    """Write an artefact, show it, and say where it is and what usually comes next."""
    artefact.save(given.output or output)
    show(artefact, given)
    console.say(f"\nwrote {given.output or output}" + (f"; next: {after}" if after else ""))


def show(artefact: Any, given: Given) -> None:
    if given.json:
        from chunkscope.artefacts.codec import dump

        console.emit(dump(artefact.to_json()))
    elif given.format == "md":
        from chunkscope.report.markdown import markdown

        console.emit(markdown(artefact).encode())
    else:
        from chunkscope.report import terminal

        details = bool(given.details)
        console.show(lambda out: terminal.show(artefact, out, details=details))


def check_format(given: Given) -> None:
    if given.json and given.format not in (None, "text"):
        raise UsageError("--json and --format exclude each other", hint="use one of them")


def refuse_data(files: Iterable[Path], wanted: str, then: str) -> None:
    """The data itself where an artefact of it is wanted: the first thing that many try."""
    for path in files:
        is_data = path.is_dir()
        if path.is_file():
            with path.open("rb") as file:
                is_data = b'"chunkscope/' not in file.read(1_000)
        if is_data:
            raise InputError(
                f"{path} is data, not a {wanted}",
                hint=f"count it first: `chunkscope analyze {shlex.quote(str(path))}`, then "
                f"`{then}`",
            )


def loaded_plan(given: Given) -> "tuple[Plan, list[Path]]":
    """The plan that was named; and profiles: named, else the plan's, else the one beside it."""
    from chunkscope.planning.plan import Plan

    path = given.plan or PLAN
    refuse_data((path,), "plan", "chunkscope recommend")
    plan = Plan.load(path)
    usual = path.with_name("profile.json")
    beside = [usual if usual.exists() else PROFILE]
    return plan, given.profile or plan.profile_files(path.parent) or beside


def quoted(*words: object) -> str:
    """Words of a command line, each after a blank; empty without any."""
    return "".join(f" {shlex.quote(str(word))}" for word in words)
