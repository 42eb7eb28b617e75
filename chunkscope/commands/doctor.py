"""`chunkscope doctor`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from chunkscope import console
from chunkscope.commands import options as opt
from chunkscope.commands.options import INPUT, MACHINE, OUTPUT, PLAN, PROFILE, REPORTS, argument
from chunkscope.errors import InputError, UsageError

if TYPE_CHECKING:
    from chunkscope.diagnosis.diagnosis import Diagnosis
    from chunkscope.diagnosis.doctor import Context


def doctor(
    logs: list[str] = argument(
        "LOG|URL...", "vLLM logs (- for stdin), or running servers.", default=...
    ),
    plan: Path | None = INPUT("A plan to compare with. [default: reports/plan.json]", "FILE"),
    profile: Path | None = INPUT("The data that was sent. [default: reports/profile.json]", "FILE"),
    seconds: float = INPUT("How long to watch a server. [default: 10]", "S", min=0.1, default=10.0),
    follow: bool = INPUT("Follow a growing log until Ctrl-C.", default=False),
    model: str | None = opt.model(MACHINE, "[default: as the log says]"),
    gpu: str | None = opt.GPU,
    details: bool = opt.DETAILS,
    form: Literal["text", "md"] | None = OUTPUT("How the result is shown.", "--format"),
    json: bool = opt.JSON,
    output: Path = opt.output(REPORTS / "doctor.json"),
) -> None:
    """What limits a vLLM, from its log or a running server.

    Example: chunkscope doctor vllm.log
    """
    from chunkscope.diagnosis.doctor import Context
    from chunkscope.diagnosis.doctor import doctor as run
    from chunkscope.lengths.profile import Profile
    from chunkscope.planning.plan import Plan

    opt.check_format(form, json=json)
    plan = plan or (PLAN if PLAN.exists() else None)
    profile = profile or (PROFILE if PROFILE.exists() else None)
    context: dict[str, Any] = {
        "plan": Plan.load(plan) if plan else None,
        "profile": Profile.load(profile) if profile else None,
        "gpu": gpu,
        "model": model,
    }
    if follow:
        diagnosis = _followed(logs, Context(**context), output)
    else:
        diagnosis = run(*logs, **context, seconds=seconds)
    diagnosis.save(output)
    opt.show(diagnosis, details=details, json=json, form=form)
    console.say(f"\nwrote {output}")


def _followed(sources: list[str], context: "Context", output: Path) -> "Diagnosis":
    """The log so far, shown and written anew as it grows, until Ctrl-C."""
    from rich.live import Live

    from chunkscope.diagnosis.doctor import put_together, reports_of
    from chunkscope.planning.engine_log import growing
    from chunkscope.report.diagnosis import live_view
    from chunkscope.vllm.log.reader import LogReader

    if len(sources) != 1 or not Path(sources[0]).is_file():
        raise UsageError("--follow takes the path of one log")
    reader, diagnosis, shown = LogReader(), None, 0
    screen = console.rich_console(sys.stderr)
    with Live(console=screen, auto_refresh=False, transient=True) as live:
        try:
            for lines in growing(Path(sources[0])):
                reader.feed(lines)
                if lines or not reader.understood or reader.lines == shown:
                    continue
                log, shown = reader.reading(), reader.lines
                diagnosis = put_together(reports_of(log, sources[0], context), [log], [])
                diagnosis.save(output)
                live.update(live_view(diagnosis), refresh=True)
        except KeyboardInterrupt:
            pass
    if diagnosis is None:
        raise InputError(f"{sources[0]} is no log of vLLM so far")
    return diagnosis
