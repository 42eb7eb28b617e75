"""Options that several commands have, and where their artefacts are when nobody says."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chunkscope.errors import InputError
from chunkscope.vllm.choices import Entry, KvCacheType, SendOrder, Task

if TYPE_CHECKING:
    from chunkscope.planning.plan import Plan

REPORTS = Path("reports")
PROFILE = REPORTS / "profile.json"
PLAN = REPORTS / "plan.json"
SIMULATION = REPORTS / "simulation.json"
VERIFY = REPORTS / "verify.json"
DOCTOR = REPORTS / "doctor.json"

PlanFile = Annotated[
    Path, typer.Argument(metavar="[PLAN]", help="What `chunkscope recommend` wrote.")
]
ProfileFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help="What `chunkscope analyze` wrote; may be repeated. [default: beside the plan]",
    ),
]
MaxOutput = Annotated[
    int | None, typer.Option(metavar="N", help="Tokens per answer. [default: from the data]")
]
GpuName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="h200, a100-80gb, rtx-4090, ... [default: this one]"),
]
GpuMemory = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory of the GPU, such as 80GiB.")
]
Parallel = Annotated[int, typer.Option(metavar="N", help="GPUs in tensor parallel.")]
Replicas = Annotated[
    int, typer.Option(metavar="N", help="Replicas in data parallel, each of --tp GPUs.")
]
KvCacheKind = Annotated[
    KvCacheType, typer.Option(help="As vLLM's: fp8 holds twice as many tokens.")
]
ByExpert = Annotated[
    bool, typer.Option("--ep", help="Whole experts on each GPU (expert parallel), not parts.")
]
VllmVersion = Annotated[
    str | None,
    typer.Option(metavar="X.Y", help="[default: the installed one, else the newest known]"),
]
StartedAs = Annotated[Entry, typer.Option(help="How vLLM is started: its defaults differ.")]
Limits = Annotated[
    str | None,
    typer.Option(
        "--slo",
        metavar="LIMITS",
        help="Latencies to keep, such as ttft_p95=1s,itl_p99=50ms (tpot, e2e; p50 to p99, max, "
        "mean).",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="The client sends the next when one of N ends."),
]
Arrivals = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="batch (all at once), or a rate such as 4/s."),
]
SharedPrefix = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="First tokens all prompts share. [default: counted]"),
]
SentIn = Annotated[
    SendOrder | None,
    typer.Option(
        "--order",
        help="How requests are sent. [default: as in the data; lm-eval's logs: longest first]",
    ),
]
AskedTask = Annotated[Task, typer.Option(help="What the eval asks of the model.")]


def _share_cache(folder: Path | None) -> None:
    from chunkscope.artefacts.folders import share_cache

    share_cache(folder)


SharedCache = Annotated[
    Path | None,
    typer.Option(
        "--shared-cache",
        metavar="FOLDER",
        callback=_share_cache,
        help="Cache that others can write too: it is believed. [env: CHUNKSCOPE_SHARED_CACHE]",
    ),
]
MODEL_HELP = "Folder with a config.json, hub id, or a built-in name such as llama-3.1-8b."
Seed = Annotated[int, typer.Option(metavar="N", help="Another one draws other requests.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.")]


def model_option(told: str) -> Any:
    return typer.Option("--model", "-m", metavar="NAME", help=told)


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


def profiles_for(plan: Path, made: "Plan", given: list[Path] | None) -> list[Path]:
    """Those that were named, else those that the plan was made from, else the one beside it."""
    beside = plan.with_name("profile.json")
    return given or made.profile_files(plan.parent) or [beside if beside.exists() else PROFILE]
