"""Options that several commands have, how --help groups them, and chunkscope.toml.

A command is a typer function. The command line has the options that people use; `chunkscope.toml`
sets any option of a command's model: `[analyze]` with `delimiter = ";"`. Defaults are the model's:
what was not typed is None, False or an empty list.
"""

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
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

# -- names that the shell completes --------------------------------------------------------------


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


# -- groups and shared options -------------------------------------------------------------------


class GroupedCommand(TyperCommand):
    """A command whose --help lists options by group, in the order they are declared."""

    def __init__(self, *words: Any, params: list[Any], **how: Any) -> None:
        for parameter in params:
            parameter.secondary_opts = []  # typer would add --no-details to --details
        super().__init__(*words, params=params, **how)

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


def group(name: str) -> Callable[..., Any]:
    """typer.Option for a group of --help: text, what the value is called, names with dashes."""

    def option(text: str, *words: str, **how: Any) -> Any:
        metavar = next((word for word in words if not word.startswith("-")), None)
        how |= {"metavar": metavar, "show_default": False, "rich_help_panel": name}
        return typer.Option(*(word for word in words if word != metavar), help=text, **how)

    return option


def model(option: Callable[..., Any], text: str) -> Any:
    return option(text, "NAME", "--model", "-m", autocompletion=known_models)


def argument(metavar: str, text: str, **how: Any) -> Any:
    how |= {"metavar": metavar, "show_default": False, "rich_help_panel": "Arguments"}
    return typer.Argument(help=text, **how)


INPUT, MACHINE, SETTING = group("Input"), group("Machine"), group("Setting")
WORKLOAD, LIMITS, OUTPUT = group("Workload"), group("Limits"), group("Output")

PlanFile = Annotated[Path | None, argument("[PLAN]", "From `chunkscope recommend`.")]
ProfileFiles = Annotated[
    list[Path] | None, INPUT("From `chunkscope analyze`; repeatable. [default: the plan's]", "FILE")
]
Model = Annotated[
    str | None,
    model(MACHINE, "Folder with a config.json, hub id, or a built-in name such as llama-3.1-8b."),
]
Gpu = Annotated[
    str | None,
    MACHINE(
        "h200, a100-80gb, ..., or a size such as 80GiB. [default: this machine's]",
        "NAME",
        autocompletion=known_gpus,
    ),
]
Tp = Annotated[int | None, MACHINE("GPUs in tensor parallel.", "N", min=1)]
Dp = Annotated[int | None, MACHINE("Replicas, each of --tp GPUs.", "N", min=1)]
Ep = Annotated[bool, MACHINE("Expert parallel: whole experts on each GPU.")]
FP8_HELP = "fp8 holds twice as many tokens."
KvCache = Annotated[KvCacheType | None, MACHINE(FP8_HELP)]
VllmVersion = Annotated[
    str | None, MACHINE("[default: the installed one, else the newest known]", "X.Y")
]
ENTRY_HELP = "How vLLM is started: its defaults differ."
EntryPoint = Annotated[Entry | None, MACHINE(ENTRY_HELP)]
TaskKind = Annotated[Task | None, WORKLOAD("What the evaluation asks of the model.")]
MaxOutput = Annotated[
    int | None, WORKLOAD("Tokens per answer. [default: from the data, else 256]", "N", min=1)
]
Arrivals = Annotated[str | None, WORKLOAD("batch (all at once), or a rate such as 4/s.", "WHEN")]
Concurrency = Annotated[
    int | None, WORKLOAD("The client keeps at most N requests in flight.", "N", min=1)
]
Slo = Annotated[
    str | None,
    LIMITS(
        "Latency limits, such as ttft_p95=1s,itl_p99=50ms (ttft, itl, tpot, e2e; p50 to "
        "p99, max, mean).",
        "LIMITS",
    ),
]
Details = Annotated[bool, OUTPUT("Show everything, not only the answer.")]
Json = Annotated[bool, OUTPUT("Print the result as JSON.")]
Quiet = Annotated[bool, OUTPUT("No progress.", "--quiet", "-q")]
Output = Annotated[Path, OUTPUT("Where to write it.", "FILE", "--output", "-o")]
NOT_FOR_PYTHON = ("details", "json", "quiet", "output", "form")


def typed(parameters: Mapping[str, object]) -> dict[str, Any]:
    """What was typed, by name, without what only says how the result is shown. 0 is typed, too."""
    return {
        name: value
        for name, value in parameters.items()
        if value is not None and value is not False and value != [] and name not in NOT_FOR_PYTHON
    }


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


def settled(command: str, types: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
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
    return table | given


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


def finish(artefact: Any, output: Path, *, details: bool, json: bool, after: str) -> None:
    """Write an artefact, show it, and say where it is and what usually comes next."""
    artefact.save(output)
    show(artefact, details=details, json=json)
    console.say(f"\nwrote {output}; next: {after}")


def show(
    artefact: Any, *, details: bool = False, json: bool = False, form: str | None = None
) -> None:
    if json:
        from chunkscope.artefacts.codec import dump

        console.emit(dump(artefact.to_json()))
    elif form == "md":
        from chunkscope.report.markdown import markdown

        console.emit(markdown(artefact).encode())
    else:
        from chunkscope.report import terminal

        console.show(lambda out: terminal.show(artefact, out, details=details))


def check_format(form: str | None, *, json: bool) -> None:
    if json and form not in (None, "text"):
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


def loaded_plan(plan: Path | None, profiles: list[Path] | None) -> "tuple[Plan, list[Path]]":
    """The plan that was named; and profiles: named, else the plan's, else the one beside it."""
    from chunkscope.planning.plan import Plan

    path = plan or PLAN
    refuse_data((path,), "plan", "chunkscope recommend")
    loaded = Plan.load(path)
    usual = path.with_name("profile.json")
    beside = [usual if usual.exists() else PROFILE]
    return loaded, profiles or loaded.profile_files(path.parent) or beside


def quoted(*words: object) -> str:
    """Words of a command line, each after a blank; empty without any."""
    return "".join(f" {shlex.quote(str(word))}" for word in words)
