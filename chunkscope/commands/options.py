"""Options that several commands have, how --help groups them, and chunkscope.toml.

A command is a typer function. The command line has the options that people use; `chunkscope.toml`
also takes all others of a command's model: `[analyze]` with `delimiter = ";"`. An option that was
not typed is None, False or an empty list: the defaults are the model's.
"""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from chunkscope import console
from chunkscope.commands.api import option_types
from chunkscope.errors import InputError, UsageError, nearest

if TYPE_CHECKING:
    from chunkscope.artefacts.note import Note

REPORTS = Path("reports")
PROFILE, PLAN = REPORTS / "profile.json", REPORTS / "plan.json"
CONFIG, PROJECT = Path("chunkscope.toml"), Path("pyproject.toml")
TABLES = (
    "analyze",
    "recommend",
    "simulate",
    "verify",
    "memory",
    "demo",
    "gate",
    "datasets",  # options of analyze for single datasets, by pattern
)

# -- names that the shell completes --------------------------------------------------------------


def known_gpus(part: str) -> list[str]:
    from chunkscope.hardware.gpus import TABLE

    return [name for name in TABLE if name.startswith(part.lower())]


def known_models(part: str) -> list[str]:
    from chunkscope.models.find import MODELS

    return [name for name in MODELS if name.startswith(part.lower())]


def pages(part: str = "") -> dict[str, Path]:
    """The manual's pages whose names start with `part`."""
    guide = Path(__file__).parents[1] / "guide"
    return {page.stem: page for page in sorted(guide.glob(f"{part}*.md"))}


# -- groups and shared options -------------------------------------------------------------------


class GroupedCommand(TyperCommand):
    """A command whose --help lists options by group, in the order they are declared."""

    def __init__(self, *words: Any, params: list[Any], **how: Any) -> None:
        for parameter in params:
            parameter.secondary_opts = []  # typer would add --no-details to --details
        super().__init__(*words, params=params, **how)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for word in {"--rate", "--request-rate"} & {
            word.partition("=")[0] for word in args
        }:
            if any("--arrivals" in parameter.opts for parameter in self.params):
                raise UsageError(
                    f"there is no option {word}", hint="write --arrivals 4/s"
                )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                group = getattr(parameter, "rich_help_panel", None) or "Output"
                text = re.sub(r"  \[([\d.]+<=x<=\d+|required)\]$", "", record[1])
                groups.setdefault(group, []).append((record[0], text))
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


def group(name: str) -> Callable[..., Any]:
    """typer.Option for a group of --help; `words` are the metavar and the names with dashes."""

    def option(text: str, *words: str, **how: Any) -> Any:
        metavar = next((word for word in words if not word.startswith("-")), None)
        how |= {"metavar": metavar, "show_default": False, "rich_help_panel": name}
        how.setdefault("max", 10**9 if "min" in how else None)
        names = [word for word in words if word != metavar]
        return typer.Option(how.pop("default", None), *names, help=text, **how)

    return option


def argument(metavar: str, text: str, default: Any = None, **how: Any) -> Any:
    how |= {"metavar": metavar, "show_default": False, "rich_help_panel": "Arguments"}
    return typer.Argument(default, help=text, **how)


def model(option: Callable[..., Any], text: str) -> Any:
    return option(text, "NAME", "--model", "-m", autocompletion=known_models)


INPUT, MACHINE, SETTING = group("Input"), group("Machine"), group("Setting")
WORKLOAD, LIMITS, OUTPUT = group("Workload"), group("Limits"), group("Output")

PLAN_FILE = argument(
    "[PLAN]", "From `chunkscope recommend`. [default: reports/plan.json]"
)
PROFILE_FILES = INPUT(
    "From `chunkscope analyze`; repeatable. [default: the plan's]", "FILE"
)
MODEL = model(
    MACHINE, "Folder with a config.json, hub id, or built-in name such as llama-3.1-8b."
)
GPU = MACHINE(
    "h200, a100-80gb, ..., or a size such as 80GiB. [default: this machine's]",
    "NAME",
    autocompletion=known_gpus,
)
TP = MACHINE("GPUs in tensor parallel.", "N", min=1)
DP = MACHINE("Replicas, each of --tp GPUs.", "N", min=1)
EP = MACHINE("Expert parallel: each GPU holds whole experts.", default=False)
FP8_HELP = "Type of the KV cache; fp8 holds twice as many tokens."
KV_CACHE = MACHINE(FP8_HELP)
VLLM_VERSION = MACHINE("vLLM version. [default: installed, else newest known]", "X.Y")
MAX_OUTPUT = WORKLOAD(
    "Tokens per answer. [default: from the data, else 256]", "N", min=1
)
ARRIVALS = WORKLOAD("batch (all at once), or a rate such as 4/s.", "WHEN")
CONCURRENCY = WORKLOAD("The client sends at most N requests at once.", "N", min=1)
SLO = LIMITS(
    "Latency limits, such as ttft_p95=1s,itl_p99=50ms (ttft, itl, tpot, e2e; p50 to p99, max, "
    "mean).",
    "LIMITS",
)
DETAILS = OUTPUT("Show everything, not only the answer.", default=False)
JSON = OUTPUT("Print the result as JSON.", default=False)
QUIET = OUTPUT("No progress.", "--quiet", "-q", default=False)
# Options of the command line only: they do not change a result.
SHOWN = (
    "details",
    "json",
    "quiet",
    "output",
    "form",
    "emit",
    "anyway",
    "check",
    "resume",
)


def output(default: Path | None, text: str = "") -> Any:
    text = text or f"Where to write it. [default: {default}]"
    return OUTPUT(
        text, "FILE", "--output", "-o", default=default, callback=default and _spared
    )


def _spared(file: Path) -> Path:
    """Refuse to overwrite a file that is not a result, such as data or a log."""
    if file.is_file() and file.stat().st_size:
        with file.open("rb") as old:
            if b'"schema": "chunkscope/' not in old.read(40):
                hint = "name another file, or remove that one"
                raise UsageError(
                    f"--output {file} exists and is not a result", hint=hint
                )
    return file


# -- chunkscope.toml -----------------------------------------------------------------------------


def settled(
    command: Callable[..., None], given: Mapping[str, object], *models: Any
) -> dict[str, Any]:
    """Options as keywords: those that were typed, then those of chunkscope.toml.

    `given` are the command's own options, `models` those with more. A typed 0 counts.
    """
    types: dict[str, list[Any]] = {}  # as it is typed, then as Python takes it
    table = configured(command.__name__)
    for kind in (command, *models) if table else ():
        for name, hint in option_types(kind).items():
            types.setdefault(name, []).append(hint)
    table = {
        name: _checked(command.__name__, name, value, types)
        for name, value in table.items()
    }
    typed = {
        n: v for n, v in given.items() if v is not None and v is not False and v != []
    }
    for name in (
        name for name, value in typed.items() if value == "" or value != value
    ):  # nan
        option = f"--{name.replace('_', '-')} is {typed[name] or 'empty'}"
        raise UsageError(option, hint="leave it out, or is a shell variable not set?")
    return table | {name: value for name, value in typed.items() if name not in SHOWN}


def configured(command: str) -> dict[str, Any]:
    """A command's table in chunkscope.toml, with names as Python writes them."""
    return {
        name.replace("-", "_"): value for name, value in config_table(command).items()
    }


def config_table(table_name: str) -> dict[str, Any]:
    """A table of chunkscope.toml, else of pyproject.toml's [tool.chunkscope]."""
    import tomllib

    from chunkscope.artefacts.files import read_text

    other = os.environ.get("CHUNKSCOPE_CONFIG")
    for path in (Path(other),) if other else filter(Path.exists, (CONFIG, PROJECT)):
        try:
            document = tomllib.loads(
                read_text(path, hint="is CHUNKSCOPE_CONFIG right?")
            )
        except ValueError as error:
            raise InputError(f"{path} is not valid TOML: {error}") from None
        if path.name == PROJECT.name:
            document = document.get("tool", {}).get("chunkscope", {})
        for name in sorted(document.keys() - set(TABLES)):
            raise InputError(
                f"{path}: unknown table {name}", hint=nearest(name, TABLES)
            )
        table = document.get(table_name, {})
        if not isinstance(table, dict):
            raise InputError(
                f"{path}: {table_name} is not a table", hint=f"write [{table_name}]"
            )
        if table:
            return table
    return {}


def _checked(
    command: str, name: str, value: Any, types: Mapping[str, list[Any]]
) -> Any:
    from chunkscope.artefacts.artefact import built, dumped

    if name not in (names := types.keys() - {*SHOWN}):
        raise InputError(
            f"{CONFIG}: [{command}] has no option {name}", hint=nearest(name, names)
        )
    reasons = []
    for kind, one in product(
        types[name], (value, [value])
    ):  # a single word is a list of one
        try:
            dumped(one)  # TypeError: a number over 64 bits
            return built(kind, one)
        except (TypeError, ValueError) as error:
            reasons.append(error)
    raise InputError(f"{CONFIG}: [{command}] {name}: {reasons[0]}")


def finish(artefact: Any, output: Path, *, after: str, **how: Any) -> None:
    """Write an artefact, print it, and tell its path and the next command."""
    artefact.save(output)
    show(artefact, **how)
    if after:
        tell("wrote_next", file=output, after=after)
    else:
        tell("wrote", file=output)


def tell(code: str, **values: Any) -> None:
    """Print a sentence of report/words/talk on stderr."""
    from chunkscope.artefacts.note import note

    tell_note(note(code, **values))


def tell_note(one: "Note") -> None:
    from chunkscope.report.words import sentence

    console.say(sentence(one))


def show(
    artefact: Any, *, details: bool = False, json: bool = False, form: str | None = None
) -> None:
    if json:
        from chunkscope.artefacts.artefact import PRETTY, dumped

        console.emit(dumped(artefact.to_json(), PRETTY))
    elif form == "md":
        from chunkscope.report.markdown import markdown
        from chunkscope.report.show import blocks

        console.emit(markdown(blocks(artefact)).encode())
    else:
        from chunkscope.report import terminal
        from chunkscope.report.show import blocks

        shown = blocks(artefact)
        console.show(lambda out: terminal.show(shown, out, details=details))


def check_format(form: str | None, *, json: bool) -> None:
    if json and form not in (None, "text"):
        raise UsageError(
            "--json and --format cannot be used together", hint="use one of them"
        )


def quoted(*words: object, usual: Path | None = None) -> str:
    """Words of a command line, quoted, each after a blank; `usual` is left out."""
    return "".join(f" {shlex.quote(str(word))}" for word in words if word != usual)
