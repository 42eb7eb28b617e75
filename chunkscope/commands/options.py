"""Options that several commands share, their groups in --help, and chunkscope.toml.

A command's options are the fields of one options model. The command line has those that people
use; `chunkscope.toml` sets any of them: `[analyze]` with `delimiter = ";"`.
"""

import os
import re
import shlex
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin

import typer
from typer.core import TyperCommand

from chunkscope import console
from chunkscope.commands.api import ALIASES, filled, option_names
from chunkscope.errors import InputError, UsageError
from chunkscope.vllm.enums import Entry, KvCacheType, Task

if TYPE_CHECKING:
    from chunkscope.planning.plan import Plan

REPORTS = Path("reports")
PROFILE, PLAN = REPORTS / "profile.json", REPORTS / "plan.json"
SIMULATION, VERIFY = REPORTS / "simulation.json", REPORTS / "verify.json"
DOCTOR = REPORTS / "doctor.json"
CONFIG, PROJECT = Path("chunkscope.toml"), Path("pyproject.toml")
T = TypeVar("T")


# -- groups in --help ----------------------------------------------------------------------------


class GroupedCommand(TyperCommand):
    """A command whose --help lists options by group, in the order they are declared."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
                group = getattr(parameter, "rich_help_panel", None) or usual
                group = "Output" if parameter.name == "help" and groups else group
                text = re.sub(r"  \[x>=\d+\]$", "", record[1])
                groups.setdefault(group, []).append((record[0], text))
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


def complete_gpu(part: str) -> list[str]:
    from chunkscope.hardware.gpus import CARDS

    return [card.name for card in CARDS if card.name.startswith(part.lower())]


def complete_model(part: str) -> list[str]:
    from chunkscope.models.find import MODELS

    return [name for name in MODELS if name.startswith(part.lower())]


_COMPLETED = {"--gpu": complete_gpu, "--model": complete_model}
_FROM_ZERO = ("--shots", "--timeline", "--long-prefill-token-threshold")
_LINE = re.compile(r"  (-\S+(?: -\S+)*)(?: ((?!-)\S+))?(?:  +(.*))?")


def options(table: str) -> dict[str, Any]:
    """Options by parameter, from a table that reads as --help does: groups, options, their help.

    >>> field = options("Input:\\n  --field -f PATH  Where the prompt is.")["field"]
    >>> field.metavar, field.rich_help_panel
    ('PATH', 'Input')
    """
    made: dict[str, Any] = {}
    group, name = "", ""
    for line in filter(str.strip, table.splitlines()):
        if (match := _LINE.fullmatch(line)) is not None:
            names = match[1].split()
            name = names[0].removeprefix("--").replace("-", "_")
            least = (0 if names[0] in _FROM_ZERO else 1) if match[2] == "N" else None
            made[name] = typer.Option(
                *names,
                metavar=match[2],
                help=match[3] or "",
                rich_help_panel=group,
                show_default=False,
                autocompletion=_COMPLETED.get(names[0]),
                min=least,
            )
        elif line.startswith(" "):
            made[name].help = f"{made[name].help} {line.strip()}".strip()
        else:
            group = line.rstrip(":")
    return made


def argument(metavar: str, text: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=text, show_default=False, **more)


# -- shared --------------------------------------------------------------------------------------

SHARED = options("""
Input:
  --profile FILE         From `chunkscope analyze`; repeatable. [default: the plan's]
Machine:
  --model -m NAME        Folder with a config.json, hub id, or a built-in name such as llama-3.1-8b.
  --gpu NAME             h200, a100-80gb, ..., or a size such as 80GiB. [default: this machine's]
  --tp N                 GPUs in tensor parallel.
  --dp N                 Replicas, each of --tp GPUs.
  --ep                   Expert parallel: whole experts on each GPU.
  --kv-cache-dtype       fp8 holds twice as many tokens.
  --vllm-version X.Y     [default: the installed one, else the newest known]
  --entry                How vLLM is started: its defaults differ.
Workload:
  --task                 What the evaluation asks of the model.
  --max-output N         Tokens per answer. [default: from the data, else 256]
  --arrivals WHEN        batch (all at once), or a rate such as 4/s.
  --concurrency N        The client keeps at most N requests in flight.
Limits:
  --slo LIMITS           Latency limits, such as ttft_p95=1s,itl_p99=50ms (ttft, itl, tpot, e2e;
                         p50 to p99, max, mean).
Output:
  --details              Show everything, not only the answer.
  --json                 Print the result as JSON.
  --quiet -q             No progress.
  --output -o FILE       Where to write it.
""")
PlanFile = Annotated[Path, argument("[PLAN]", "From `chunkscope recommend`.")]
ProfileFiles = Annotated[list[Path] | None, SHARED["profile"]]
ModelName = Annotated[str | None, SHARED["model"]]
GpuName = Annotated[str | None, SHARED["gpu"]]
TensorParallel = Annotated[int, SHARED["tp"]]
DataParallel = Annotated[int, SHARED["dp"]]
ExpertParallel = Annotated[bool, SHARED["ep"]]
KvCacheDtype = Annotated[KvCacheType, SHARED["kv_cache_dtype"]]
VllmVersion = Annotated[str | None, SHARED["vllm_version"]]
EntryPoint = Annotated[Entry, SHARED["entry"]]
TaskKind = Annotated[Task, SHARED["task"]]
MaxOutput = Annotated[int | None, SHARED["max_output"]]
Arrivals = Annotated[str | None, SHARED["arrivals"]]
Concurrency = Annotated[int | None, SHARED["concurrency"]]
Slo = Annotated[str | None, SHARED["slo"]]
Details = Annotated[bool, SHARED["details"]]
Json = Annotated[bool, SHARED["json"]]
Quiet = Annotated[bool, SHARED["quiet"]]
Output = Annotated[Path, SHARED["output"]]


def gpu_and_memory(gpu: str | None) -> dict[str, str | None]:
    """`--gpu h100` names a card, `--gpu 80GiB` only its memory."""
    is_size = gpu is not None and gpu[:1].isdecimal()
    return {"gpu": None if is_size else gpu, "gpu_memory": gpu if is_size else None}


# -- chunkscope.toml -----------------------------------------------------------------------------


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


def settled(kind: type[T], command: str, given: dict[str, Any]) -> T:
    """The options model: what the command line gave, else chunkscope.toml, else its defaults.

    `given` may hold more than the model's options: all parameters of a command.
    """
    names = option_names(kind)
    table = {ALIASES.get(name, name): value for name, value in configured(command).items()}
    for name, value in table.items():
        if name in names:
            table[name] = _checked(f"{CONFIG}: [{command}] {name}", names[name], value)
    known = {ALIASES.get(name, name): value for name, value in given.items() if was_given(value)}
    known = {name: value for name, value in known.items() if name in names}
    try:
        return filled(kind, table | known, command)
    except UsageError as error:
        if not table.keys() - names.keys():
            raise
        raise InputError(f"{CONFIG}: {error.message}", hint=error.hint) from None


def was_given(value: object) -> bool:
    return value is not None and value is not False and value != []


def _checked(where: str, hint: Any, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    if get_origin(hint) is tuple and isinstance(value, str):
        value = [value]  # one word is a list of one
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        raise InputError(f"{where}: {error.errors(include_url=False)[0]['msg'].lower()}") from None


# -- artefacts -----------------------------------------------------------------------------------


def finish(
    artefact: Any,
    *,
    output: Path | None = None,
    as_json: bool = False,
    form: str = "text",
    details: bool = False,
    after: str = "",
) -> None:
    """Write an artefact, show it, and say where it is and what usually comes next."""
    if output is not None:
        artefact.save(output)
    show(artefact, as_json=as_json, form=form, details=details)
    if output is not None:
        console.say(f"\nwrote {output}" + (f"; next: {after}" if after else ""))


def show(
    artefact: Any, *, as_json: bool = False, form: str = "text", details: bool = False
) -> None:
    if as_json and form != "text":
        raise UsageError("--json and --format exclude each other", hint="use one of them")
    if as_json:
        from chunkscope.artefacts.codec import dump

        console.emit(dump(artefact.to_json()))
    elif form == "md":
        from chunkscope.report.markdown import markdown

        console.emit(markdown(artefact).encode())
    else:
        from chunkscope.report import terminal

        console.show(lambda out: terminal.show(artefact, out, details=details))


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


def profiles_for(path: Path, plan: "Plan", given: list[Path] | None) -> list[Path]:
    """Those that were named, else those that the plan was made from, else the one beside it."""
    usual = path.with_name("profile.json")
    return given or plan.profile_files(path.parent) or [usual if usual.exists() else PROFILE]


def quoted(*words: object) -> str:
    """Words of a command line, each after a blank; empty without any."""
    return "".join(f" {shlex.quote(str(word))}" for word in words)
