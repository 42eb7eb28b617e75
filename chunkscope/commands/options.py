"""Options: one table a command, which reads as its --help does; and chunkscope.toml.

The command line has the options that people use; `chunkscope.toml` sets any option of a command's
model: `[analyze]` with `delimiter = ";"`. Defaults are the model's; what is not typed is not there.
"""

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature
from keyword import iskeyword
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer
from typer.core import TyperCommand

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
FILES = ("FILE", "PLAN", "PROFILE", "FOLDER", "REPORTS", "NEW")
_ENUM: Any = StrEnum
# Names, what the value is called, help. An argument's name is in capitals: [PLAN], PATH...
_LINE = re.compile(r"  ((?:-\S+|\[?[A-Z]\S+)(?: -\S+)*)(?: ((?!-)\S+))?(?:  +(.*))?")


class Given(SimpleNamespace):
    """What was typed, by name; None for what was not."""

    def __getattr__(self, name: str) -> Any:
        return None


class GroupedCommand(TyperCommand):
    """A command whose --help lists options by group, in the order they are declared."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                group = getattr(parameter, "rich_help_panel", None) or "Output"
                text = re.sub(r"  \[(x>=\d+|required)\]$", "", record[1])
                groups.setdefault(group, []).append((record[0], text))
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


Run = Callable[[Given], None]


def command(table: str) -> Callable[[Run], Callable[..., None]]:
    """A function of what was typed as typer wants it: a parameter for each line of the table."""

    def typed(run: Run) -> Callable[..., None]:
        @wraps(run)
        def call(**values: Any) -> None:
            run(Given(**{n: v for n, v in values.items() if was_given(v)}))

        parameters = list(_parameters(table))
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        return call

    return typed


def was_given(value: object) -> bool:
    """0 is; False, None and an empty list are what typer puts where nothing was typed."""
    return value is not None and value is not False and value != []


def _parameters(table: str) -> Iterator[Parameter]:
    group = ""
    for line in _lines(table):
        if isinstance(line, str):
            group = line
        else:
            yield _parameter(group, *line)


Line = tuple[list[str], str, str]  # names, what its value is called, help


def _lines(table: str) -> list[str | Line]:
    """The table's groups and options, those of SHARED in their places."""
    shared = {} if table is SHARED else {line[0][0]: line for line in _lines(SHARED)}
    made: list[Any] = []
    for line in filter(str.strip, table.splitlines()):
        names = line.split()
        match = _LINE.fullmatch(line)
        if match is not None and set(names) <= shared.keys():
            made += [shared[name] for name in names]
        elif match is not None:
            made.append((match[1].split(), match[2] or "", match[3] or ""))
        elif line.startswith(" "):
            *head, text = made[-1]
            made[-1] = (*head, f"{text} {line.strip()}".strip())
        else:
            made.append(line.rstrip(":"))
    return made


def _parameter(group: str, names: list[str], value: str, text: str) -> Parameter:
    """`N` is a count, `FILE` a path, `a|b` a choice, `X...` is a list, nothing a flag."""
    is_option = names[0].startswith("-")
    word = value or names[0].split("|")[0]
    is_list, bare = word.endswith("..."), word.removesuffix("...").strip("[]")
    is_list = is_list or names[0].endswith("...")
    kinds: dict[str, Any] = {"N": int, "SEED": int, "SHARE": float, "COUNT": float}
    kinds |= dict.fromkeys(FILES, Path)
    kind: Any = bool if is_option and not value else kinds.get(bare, str)
    how: dict[str, Any] = {"help": text, "show_default": False, "rich_help_panel": group}
    if "|" in value:
        kind = _ENUM(bare, [(choice, choice) for choice in bare.split("|")])
    elif value or not is_option:
        how["metavar"] = value.removesuffix("...") or names[0]
    if is_option:
        name = names[0].removeprefix("--").replace("-", "_")
        name += "_" * iskeyword(name)
        how["min"] = int(names[0] not in FROM_ZERO) if value == "N" else None
        how["autocompletion"] = _COMPLETED.get(name)
        info: Any = typer.Option(*names, **how)
    else:
        name = bare.lower() + "s" * is_list
        info = typer.Argument(autocompletion=_COMPLETED.get(name), **how)
    default = Parameter.empty if not is_option and not names[0].startswith("[") else None
    hint = bool if kind is bool else list[kind] | None if is_list else kind | None
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        default=False if kind is bool else default,
        annotation=Annotated[hint, info],
    )


def known_gpus(part: str) -> list[str]:
    from chunkscope.hardware.gpus import CARDS

    return [card.name for card in CARDS if card.name.startswith(part.lower())]


def known_models(part: str) -> list[str]:
    from chunkscope.models.find import MODELS

    return [name for name in MODELS if name.startswith(part.lower())]


def pages() -> dict[str, Path]:
    """The manual's."""
    guide = Path(__file__).parents[1] / "guide"
    return {page.stem: page for page in sorted(guide.glob("*.md"))}


def known_pages(part: str) -> list[str]:
    return [name for name in pages() if name.startswith(part)]


_COMPLETED = {"gpu": known_gpus, "model": known_models, "page": known_pages}


_ADDRESS = re.compile(r"auto|local|[a-z]+://.+:[0-9]+|[\w.-]+:[0-9]+")


def spelled_out(words: Sequence[str]) -> list[str]:
    """`--ray` with its address or an empty one: the form of the next word tells."""
    spelled: list[str] = []
    for word in (*words, ""):
        if spelled and spelled[-1] == "--ray":
            is_address = _ADDRESS.fullmatch(word) is not None
            spelled[-1] = f"--ray={word if is_address else ''}"
            if is_address:
                continue
        spelled.append(word)
    return spelled[:-1] if spelled[-1] == "" else spelled


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
