"""`chunkscope verify`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands import options as opt
from chunkscope.commands.options import OUTPUT, REPORTS, WORKLOAD, group
from chunkscope.errors import EngineError

if TYPE_CHECKING:
    from chunkscope.verification.result import Run

ENGINE, COMPARED = group("Engine"), group("What to compare")
HINTS = {
    "out_of_memory": "choose a smaller setting: `chunkscope recommend` with the right --gpu",
    "timeout": "set a longer timeout_s in chunkscope.toml ([verify]), or send fewer --requests",
    "refused": "mend what it names (`chunkscope recommend --check`; of a server: --concurrency)",
    "died": "see its log: a server's own, or verify-*.log beside the result",
}


def verify(
    plan: Path | None = opt.PLAN_FILE,
    profile: list[Path] | None = opt.PROFILE_FILES,
    model: str | None = opt.model(
        ENGINE, "Folder, hub id or built-in name. [default: the plan's]"
    ),
    endpoint: str | None = ENGINE("Measure a running server.", "URL"),
    load_format: str | None = ENGINE(
        "dummy: random weights; a config.json is enough.", "NAME"
    ),
    engine_arg: list[str] | None = ENGINE(
        "Argument of every engine, such as dtype=float32; repeatable.", "NAME=VALUE"
    ),
    against: str | None = COMPARED(
        "Some of default, off, length-rule; none: only the plan. [default: all]", "LIST"
    ),
    also: list[str] | None = COMPARED(
        "One more setting, such as max-num-batched-tokens=4096; repeatable.", "ARG=N"
    ),
    check_outputs: bool = COMPARED(
        "Compare the answers of all settings, too.", default=False
    ),
    requests: int | None = WORKLOAD("Sent per repeat. [default: 200]", "N", min=1),
    repeats: int | None = WORKLOAD("How often all are sent. [default: 3]", "N", min=1),
    arrivals: str | None = opt.ARRIVALS,
    concurrency: int | None = opt.CONCURRENCY,
    max_output: int | None = opt.MAX_OUTPUT,
    data: list[str] | None = WORKLOAD(
        "Send this data's prompts. [default: random tokens of the same lengths]", "PATH"
    ),
    slo: str | None = opt.SLO,
    resume: bool = OUTPUT("Continue; keep the measured rows.", default=False),
    details: bool = opt.DETAILS,
    json: bool = opt.JSON,
    output: Path = opt.output(REPORTS / "verify.json"),
    quiet: bool = opt.QUIET,
) -> None:
    """Measure the plan on a real vLLM: memory, latency, throughput.

    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope verify --model llama-3.1-8b --load-format dummy
    """
    given = locals()
    from chunkscope.planning.plan import Plan
    from chunkscope.report.verification import failure, measured_elsewhere
    from chunkscope.verification.options import Report, VerifyOptions

    options = opt.settled(verify, given, VerifyOptions)
    options["profile"] = api.profile_of(plan, profile or None)
    options["resume"] = output if resume and output.exists() else None
    try:
        with console.progress(quiet=quiet, tell=opt.tell_note) as listener:
            report = Report(output=output, listener=listener, on_failure=_tell_failure)
            verification = api.verify(
                command=console.command(), report=report, **options
            )
    except KeyboardInterrupt:
        if endpoint is None and output.exists():
            again = shlex.join(word for word in sys.argv[1:] if word != "--resume")
            opt.tell("rows_are_kept", file=output, again=again)
        raise
    opt.show(verification, details=details, json=json)
    for note in measured_elsewhere(Plan.load(plan), verification):
        console.say(f"note: {note}")
    folder = opt.quoted(output.parent, usual=REPORTS)
    opt.tell("wrote_next", file=output, after=f"chunkscope report{folder}")
    first = verification.runs[0]
    if not first.ok:  # other rows may fail, the plan may not
        raise EngineError(failure(first), hint=HINTS[first.status.value])


def _tell_failure(run: "Run", log: str) -> None:
    from chunkscope.report.verification import failure

    console.say(failure(run))
    for line in [line for line in log.splitlines() if line.strip()][-12:]:
        console.say(f"  | {line[:200].rstrip()}")  # a line may be a whole configuration
    if run.log:
        opt.tell("log_end", log=run.log)
