"""Options that several commands have, and how options are declared."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from chunkscope.errors import UsageError
from chunkscope.vllm.enums import KvCacheType, SendOrder

REPORTS = Path("reports")
PROFILE = REPORTS / "profile.json"
PLAN = REPORTS / "plan.json"
MOST = 10**9  # of anything that an option counts

# The groups of --help.
INPUT = "Input"
MACHINE = "Machine"
SETTING = "Setting"
WORKLOAD = "Workload"
LIMITS = "Limits"
OUTPUT = "Output"


def option(
    group: str,
    text: str,
    *names: str,
    metavar: str | None = None,
    min: float | None = None,  # noqa: A002  (as typer calls it)
    complete: Callable[[str], list[str]] | None = None,
    callback: Callable[[Any], Any] | None = None,
) -> Any:
    """An option in a group of --help; `names` are as typed, such as --model and -m."""
    return typer.Option(
        *names,
        help=text,
        metavar=metavar,
        min=min,
        max=None if min is None else MOST,
        autocompletion=complete,
        callback=callback,
        show_default=False,
        rich_help_panel=group,
    )


def argument(
    metavar: str, text: str, complete: Callable[[str], list[str]] | None = None
) -> Any:
    return typer.Argument(
        help=text,
        metavar=metavar,
        autocompletion=complete,
        show_default=False,
        rich_help_panel="Arguments",
    )


# -- names that the shell completes ----------------------------------------------------


def known_gpus(part: str) -> list[str]:
    from chunkscope.hardware.gpus import TABLE

    return [name for name in TABLE if name.startswith(part.lower())]


def known_models(part: str) -> list[str]:
    from chunkscope.models.find import MODELS

    return [name for name in MODELS if name.startswith(part.lower())]


# -- values that are checked when they are typed ---------------------------------------


def spared(file: Path | None) -> Path | None:
    """Refuse to overwrite a file that is not a result, such as data or a log."""
    if file is None or not file.is_file() or file.stat().st_size == 0:
        return file
    with file.open("rb") as old:
        is_result = b'"schema": "chunkscope/' in old.read(40)
    if not is_result:
        raise UsageError(
            f"{file} exists and is not a result of chunkscope",
            hint="name another file after -o, or remove that one",
        )
    return file


def answer_lengths(text: str | None) -> str | None:
    """Refuse the name of a file where lengths of answers are expected."""
    if text is not None and (text.endswith((".json", ".html", ".md")) or "/" in text):
        raise UsageError(
            "--output is the length of answers, such as 300 or p50=9k,p95=32k",
            hint=f"to write the result there: -o {text}",
        )
    return text


# -- the options -----------------------------------------------------------------------

Details = Annotated[
    bool, option(OUTPUT, "Show everything, not only the answer.", "--details")
]
Json = Annotated[bool, option(OUTPUT, "Print the result as JSON.", "--json")]
Quiet = Annotated[bool, option(OUTPUT, "Show no progress.", "--quiet", "-q")]
Out = Annotated[
    Path,
    option(
        OUTPUT,
        "Where to write the result. [default: in reports/]",
        "--out",
        "-o",
        metavar="FILE",
        callback=spared,
    ),
]

PlanFile = Annotated[
    Path | None,
    argument("[PLAN]", "From `chunkscope recommend`. [default: reports/plan.json]"),
]
ProfileFiles = Annotated[
    list[Path] | None,
    option(
        INPUT,
        "From `chunkscope analyze`; repeatable. [default: the plan's]",
        "--profile",
        metavar="FILE",
    ),
]

Model = Annotated[
    str | None,
    option(
        MACHINE,
        "Folder with a config.json, hub id, or built-in name such as llama-3.1-8b.",
        "--model",
        "-m",
        metavar="NAME",
        complete=known_models,
    ),
]
Gpu = Annotated[
    str | None,
    option(
        MACHINE,
        "h200, a100-80gb, ..., or a size such as 80GiB. [default: this machine's]",
        "--gpu",
        metavar="NAME",
        complete=known_gpus,
    ),
]
Tp = Annotated[
    int, option(MACHINE, "GPUs in tensor parallel.", "--tp", metavar="N", min=1)
]
Dp = Annotated[
    int, option(MACHINE, "Replicas, each of --tp GPUs.", "--dp", metavar="N", min=1)
]
Ep = Annotated[
    bool, option(MACHINE, "Expert parallel: each GPU holds whole experts.", "--ep")
]
KV_CACHE_TEXT = "Type of the KV cache; fp8 holds twice as many tokens."
KvCacheDtype = Annotated[
    KvCacheType | None, option(MACHINE, KV_CACHE_TEXT, "--kv-cache-dtype")
]
VllmVersion = Annotated[
    str | None,
    option(
        MACHINE,
        "Version of vLLM. [default: the installed one, else the newest known]",
        "--vllm-version",
        metavar="X.Y",
    ),
]

Arrivals = Annotated[
    str | None,
    option(
        WORKLOAD,
        "When requests arrive: batch (all at once), or a rate such as 4/s.",
        "--arrivals",
        metavar="WHEN",
    ),
]
Concurrency = Annotated[
    int | None,
    option(
        WORKLOAD,
        "The client sends at most N requests at once.",
        "--concurrency",
        metavar="N",
        min=1,
    ),
]
MaxOutput = Annotated[
    int | None,
    option(
        WORKLOAD,
        "Every answer has N tokens. [default: from the data, else 256]",
        "--max-output",
        metavar="N",
        min=1,
    ),
]
Output = Annotated[
    str | None,
    option(
        WORKLOAD,
        "Lengths of the answers: 300, p50=9k,p95=32k or mean=12k,p95=32k.",
        "--output",
        metavar="LENGTHS",
        callback=answer_lengths,
    ),
]
OutputFrom = Annotated[
    Path | None,
    option(
        WORKLOAD,
        "Answers as long as those of an earlier run: its log, or its profile.",
        "--output-from",
        metavar="FILE",
    ),
]
Samples = Annotated[
    int | None,
    option(
        WORKLOAD,
        "Each prompt is sent N times (epochs, pass@k). [default: 1]",
        "--samples",
        metavar="N",
        min=1,
    ),
]
SamplesAtOnce = Annotated[
    int | None,
    option(
        WORKLOAD,
        "The client has at most N samples of an agent under way.",
        "--samples-at-once",
        metavar="N",
        min=1,
    ),
]
E2eTimeout = Annotated[
    float | None,
    option(
        WORKLOAD,
        "Seconds after which the client gives a request up.",
        "--e2e-timeout",
        metavar="S",
        min=0,
    ),
]
Together = Annotated[
    bool,
    option(
        WORKLOAD,
        "All datasets are sent together, not one after the other.",
        "--together",
    ),
]
Order = Annotated[
    SendOrder | None,
    option(WORKLOAD, "Order of the requests. [default: as in the data]", "--order"),
]
Requests = Annotated[
    int | None,
    option(
        WORKLOAD,
        "Simulate N requests. [default: all]",
        "--requests",
        metavar="N",
        min=1,
    ),
]
Slo = Annotated[
    str | None,
    option(
        LIMITS,
        "Latency limits, such as ttft_p95=1s,itl_p99=50ms (ttft, itl, tpot, e2e; p50 "
        "to p99, max, mean).",
        "--slo",
        metavar="LIMITS",
    ),
]
