"""`chunkscope doctor`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.commands.options import argument, options
from chunkscope.errors import InputError, UsageError

if TYPE_CHECKING:
    from chunkscope.diagnosis.diagnosis import Diagnosis
    from chunkscope.diagnosis.doctor import Context


class DoctorFormat(StrEnum):
    TEXT = "text"
    MD = "md"
    GITHUB = "github"


OPTIONS = options("""
Input:
  --plan FILE      A plan to compare with. [default: reports/plan.json]
  --profile FILE   The data that was sent. [default: reports/profile.json]
  --for TIME       How long to watch a server. [default: 10s]
  --follow         Follow a growing log until Ctrl-C.
Machine:
  --model -m NAME  [default: as the log says]
Output:
  --format         github: annotations.
""")


def doctor(
    sources: Annotated[
        list[str], argument("LOG|URL...", "vLLM logs (- for stdin), or running servers.")
    ],
    plan: Annotated[Path | None, OPTIONS["plan"]] = None,
    profile: Annotated[Path | None, OPTIONS["profile"]] = None,
    seconds: Annotated[str, OPTIONS["for"]] = "10s",
    follow: Annotated[bool, OPTIONS["follow"]] = False,
    model: Annotated[str | None, OPTIONS["model"]] = None,
    gpu: shared.GpuName = None,
    details: shared.Details = False,
    output_format: Annotated[DoctorFormat, OPTIONS["format"]] = DoctorFormat.TEXT,
    as_json: shared.Json = False,
    output: shared.Output = shared.DOCTOR,
) -> None:
    """What limits a vLLM, from its log or a running server.

    Example: chunkscope doctor vllm.log
    """
    from chunkscope.diagnosis.doctor import Context, examined
    from chunkscope.lengths.profile import Profile
    from chunkscope.planning.plan import Plan

    plans, profiles = _existing(plan, shared.PLAN), _existing(profile, shared.PROFILE)
    context = Context(
        plan=Plan.load(plans) if plans else None,
        profile=Profile.load(profiles) if profiles else None,
        gpu=gpu,
        model=model,
    )
    if follow:
        diagnosis = _followed(sources, context, output)
    else:
        diagnosis = examined(sources, context, _seconds(seconds))
    if output_format is DoctorFormat.GITHUB:
        from chunkscope.report.ci import doctor_annotations

        diagnosis.save(output)
        console.emit(doctor_annotations(diagnosis).encode())
        return
    shared.finish(
        diagnosis, output=output, as_json=as_json, form=output_format.value, details=details
    )


def _existing(given: Path | None, usual: Path) -> Path | None:
    return given or (usual if usual.exists() else None)


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
    from chunkscope.planning.log_files import growing
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
