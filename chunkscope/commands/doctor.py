"""`chunkscope doctor`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkscope import console
from chunkscope.commands.options import (
    PLAN,
    PROFILE,
    REPORTS,
    Given,
    check_format,
    command,
    finish,
)
from chunkscope.errors import InputError, UsageError

if TYPE_CHECKING:
    from chunkscope.diagnosis.diagnosis import Diagnosis
    from chunkscope.diagnosis.doctor import Context

DOCTOR = REPORTS / "doctor.json"


@command("""
Arguments:
  LOG|URL...       vLLM logs (- for stdin), or running servers.
Input:
  --plan FILE      A plan to compare with. [default: reports/plan.json]
  --profile FILE   The data that was sent. [default: reports/profile.json]
  --for TIME       How long to watch a server. [default: 10s]
  --follow         Follow a growing log until Ctrl-C.
Machine:
  --model -m NAME  [default: as the log says]
  --gpu
Output:
  --details
  --format text|md|github  github: annotations.
  --json --output
""")
def doctor(given: Given) -> None:
    """What limits a vLLM, from its log or a running server.

    Example: chunkscope doctor vllm.log
    """
    from chunkscope.diagnosis.doctor import Context
    from chunkscope.diagnosis.doctor import doctor as run
    from chunkscope.lengths.profile import Profile
    from chunkscope.planning.plan import Plan

    check_format(given)
    plan = given.plan or (PLAN if PLAN.exists() else None)
    profile = given.profile or (PROFILE if PROFILE.exists() else None)
    context: dict[str, Any] = {
        "plan": Plan.load(plan) if plan else None,
        "profile": Profile.load(profile) if profile else None,
        "gpu": given.gpu,
        "model": given.model,
    }
    if given.follow:
        diagnosis = _followed(given.logs, Context(**context), given.output or DOCTOR)
    else:
        seconds = _seconds(given.for_ or "10s")
        diagnosis = run(*given.logs, **context, seconds=seconds)
    if given.format == "github":
        from chunkscope.report.ci import doctor_annotations

        diagnosis.save(given.output or DOCTOR)
        console.emit(doctor_annotations(diagnosis).encode())
    else:
        finish(diagnosis, given, DOCTOR)


def _seconds(text: str) -> float:
    from chunkscope.artefacts.units import SECONDS

    try:
        seconds = SECONDS.read(text)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from None
    if seconds <= 0:
        raise UsageError("--for must be longer than 0 s")
    return float(seconds)


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
    with Live(console=console.err(), auto_refresh=False, transient=True) as live:
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
