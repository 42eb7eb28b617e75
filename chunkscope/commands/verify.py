"""`chunkscope verify`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands.options import (
    OUTPUT,
    REPORTS,
    WORKLOAD,
    Arrivals,
    Concurrency,
    Details,
    E2eTimeout,
    Json,
    MaxOutput,
    Out,
    Output,
    PlanFile,
    ProfileFiles,
    Quiet,
    Samples,
    SamplesAtOnce,
    Slo,
    Together,
    known_models,
    option,
)
from chunkscope.commands.printing import (
    command_line,
    say_note,
    say_written,
    show,
    unless_usual,
)
from chunkscope.errors import EngineError

if TYPE_CHECKING:
    from chunkscope.planning.plan import Plan
    from chunkscope.verification.result import Run, Verification

ENGINE = "Engine"
COMPARED = "What to compare"
MOST_LOG_LINES = 12
MOST_LINE_LENGTH = 200  # a line of a log may be a whole configuration
HINTS = {
    "out_of_memory": "choose a smaller setting: `chunkscope recommend` with the right "
    "--gpu",
    "timeout": "set a longer --timeout, or send fewer --requests",
    "refused": "change what it names; `chunkscope recommend --check` asks vLLM, and a "
    "server may need --concurrency",
    "died": "see its log: a server's own, or verify-*.log beside the result",
}


def verify(
    plan: PlanFile = None,
    profile: ProfileFiles = None,
    model: Annotated[
        str | None,
        option(
            ENGINE,
            "Folder, hub id or built-in name. [default: the plan's]",
            "--model",
            "-m",
            metavar="NAME",
            complete=known_models,
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        option(ENGINE, "Measure a running server.", "--endpoint", metavar="URL"),
    ] = None,
    load_format: Annotated[
        str,
        option(
            ENGINE,
            "dummy: random weights; a config.json is enough.",
            "--load-format",
            metavar="NAME",
        ),
    ] = "auto",
    trust_remote_code: Annotated[
        bool, option(ENGINE, "Run the model's own code.", "--trust-remote-code")
    ] = False,
    engine_arg: Annotated[
        list[str] | None,
        option(
            ENGINE,
            "Argument of every engine, such as dtype=float32; repeatable.",
            "--engine-arg",
            metavar="NAME=VALUE",
        ),
    ] = None,
    timeout: Annotated[
        float,
        option(
            ENGINE,
            "Give up after so many seconds without a log line or an answer. "
            "[default: 1800]",
            "--timeout",
            metavar="S",
            min=1,
        ),
    ] = 1_800,
    against: Annotated[
        str | None,
        option(
            COMPARED,
            "Settings to compare with: default, off, length-rule; or none. [default: "
            "all three]",
            "--against",
            metavar="LIST",
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        option(
            COMPARED,
            "One more setting to measure, such as max-num-batched-tokens=4096; "
            "repeatable.",
            "--also",
            metavar="ARG=N",
        ),
    ] = None,
    check_outputs: Annotated[
        bool,
        option(
            COMPARED, "Compare the answers of all settings, too.", "--check-outputs"
        ),
    ] = False,
    requests: Annotated[
        int,
        option(
            WORKLOAD,
            "Requests of each repeat. [default: 200]",
            "--requests",
            metavar="N",
            min=1,
        ),
    ] = 200,
    repeats: Annotated[
        int,
        option(
            WORKLOAD,
            "How often all are sent. [default: 3]",
            "--repeats",
            metavar="N",
            min=1,
        ),
    ] = 3,
    time_limit: Annotated[
        float | None,
        option(
            WORKLOAD,
            "Cut each repeat off after so many seconds.",
            "--time-limit",
            metavar="S",
            min=1,
        ),
    ] = None,
    arrivals: Arrivals = None,
    concurrency: Concurrency = None,
    max_output: MaxOutput = None,
    output: Output = None,
    samples: Samples = None,
    samples_at_once: SamplesAtOnce = None,
    together: Together = False,
    e2e_timeout: E2eTimeout = None,
    data: Annotated[
        list[str] | None,
        option(
            WORKLOAD,
            "Send this data's prompts. [default: random tokens of the same lengths]",
            "--data",
            metavar="PATH",
        ),
    ] = None,
    slo: Slo = None,
    resume: Annotated[
        bool, option(OUTPUT, "Continue, and keep the measured rows.", "--resume")
    ] = False,
    details: Details = False,
    json: Json = False,
    out: Out = REPORTS / "verify.json",
    quiet: Quiet = False,
) -> None:
    """Measure the plan on a real vLLM: memory, latency, throughput.

    Example: chunkscope verify --model llama-3.1-8b --load-format dummy
    """
    from chunkscope.planning.plan import Plan
    from chunkscope.verification.options import Report

    try:
        with console.progress(quiet=quiet, tell=say_note) as listener:
            verification = api.verify(
                plan,
                profile or None,
                model=model,
                endpoint=endpoint,
                load_format=load_format,
                trust_remote_code=trust_remote_code,
                engine_arg=engine_arg or (),
                timeout=timeout,
                time_limit=time_limit,
                against=against,
                also=also or (),
                check_outputs=check_outputs,
                requests=requests,
                repeats=repeats,
                arrivals=arrivals,
                concurrency=concurrency,
                max_output=max_output,
                output=output,
                samples=samples,
                samples_at_once=samples_at_once,
                together=together,
                e2e_timeout=e2e_timeout,
                data=data or (),
                slo=slo,
                resume=out if resume and out.exists() else None,
                report=Report(output=out, listener=listener, on_failure=say_failure),
                command=console.command(),
            )
    except KeyboardInterrupt:
        if endpoint is None and out.exists():
            say_how_to_resume(out)
        raise
    show(verification, details=details, json=json)
    say_result(Plan.load(plan), verification, out)


def say_result(plan: "Plan", verification: "Verification", out: Path) -> None:
    """Say what was measured elsewhere; EngineError if the plan itself failed."""
    from chunkscope.report.verification import failure, measured_elsewhere

    for note in measured_elsewhere(plan, verification):
        console.say(f"note: {note}")
    folder = unless_usual(out.parent, REPORTS)
    say_written(out, then=command_line("report", *folder))
    run = verification.runs[0]
    if not run.ok:  # other settings may fail, the plan may not
        raise EngineError(failure(run), hint=HINTS[run.status.value])


def say_failure(run: "Run", log: str) -> None:
    """Say that a setting failed, with the end of the engine's log."""
    from chunkscope.report.verification import failure

    console.say(failure(run))
    lines = [line for line in log.splitlines() if line.strip()]
    for line in lines[-MOST_LOG_LINES:]:
        console.say(f"  | {line[:MOST_LINE_LENGTH].rstrip()}")
    if run.log:
        console.say(f"  (the end of {run.log})")


def say_how_to_resume(out: Path) -> None:
    words = [word for word in sys.argv[1:] if word != "--resume"]
    console.say(
        f"\n{out} has the measured rows; to go on: "
        f"chunkscope {shlex.join(words)} --resume"
    )
