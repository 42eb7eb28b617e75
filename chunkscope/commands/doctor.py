"""`chunkscope doctor`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chunkscope import console
from chunkscope.commands import options
from chunkscope.errors import InputError, UsageError

if TYPE_CHECKING:
    from chunkscope.diagnosis.diagnosis import Diagnosis
    from chunkscope.diagnosis.doctor import Beside


class DoctorFormat(StrEnum):
    TERMINAL = "terminal"
    MARKDOWN = "md"
    GITHUB = "github"


def doctor(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG|URL...", help="Logs of vLLM (- for stdin), or servers that run."
        ),
    ],
    plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A plan to compare with. [default: reports/plan.json]"),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What prompts share. [default: reports/profile.json]"),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="The GPU, to predict what should fit.")
    ] = None,
    model: Annotated[
        str | None, options.model_option("The model. [default: as the log says]")
    ] = None,
    seconds: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long a server is watched.")
    ] = "10s",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as the log grows, until Ctrl-C.")
    ] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="List lines of vLLM that are not understood.")
    ] = False,
    output: options.Output = options.DOCTOR,
    as_json: options.Json = False,
    form: Annotated[DoctorFormat, typer.Option("--format", help="How it is shown.")] = (
        DoctorFormat.TERMINAL
    ),
) -> None:
    """Say what limits a vLLM, from its log or a running server.

    And what to change, with the lines that say so.

    Example: chunkscope doctor vllm.log
    """
    from chunkscope.diagnosis.doctor import Beside, examined
    from chunkscope.lengths.profile import Profile
    from chunkscope.planning.plan import Plan

    plans, profiles = _there(plan, options.PLAN), _there(profile, options.PROFILE)
    beside = Beside(
        plan=Plan.load(plans) if plans else None,
        profile=Profile.load(profiles) if profiles else None,
        gpu=gpu,
        model=model,
    )
    if follow:
        found = _followed(sources, beside, output)
    else:
        found = examined(sources, beside, _seconds(seconds))
        found.save(output)
    _tell(found, as_json=as_json, form=form, unknown=unknown)
    for note in found.notes:
        console.say(f"note: {note}")
    console.say(f"wrote {output}")


def _there(given: Path | None, usual: Path) -> Path | None:
    return given or (usual if usual.exists() else None)


def _seconds(text: str) -> float:
    from chunkscope.artefacts.units import SECONDS

    try:
        found = SECONDS.read(text)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from None
    if found <= 0:
        raise UsageError("--for must be longer than nothing")
    return float(found)


def _tell(found: "Diagnosis", *, as_json: bool, form: DoctorFormat, unknown: bool) -> None:
    if as_json:
        from chunkscope.artefacts.codec import dump

        return console.emit(dump(found.to_json()))
    if form is DoctorFormat.TERMINAL:
        from chunkscope.report.terminal.diagnosis import show_diagnosis

        return console.show(lambda out: show_diagnosis(found, out, unknown=unknown))
    from chunkscope.report.diagnosis_formats import annotations, as_markdown

    text = as_markdown(found) if form is DoctorFormat.MARKDOWN else annotations(found)
    return console.emit(text.encode())


def _followed(sources: list[str], beside: "Beside", output: Path) -> "Diagnosis":
    """The log so far, shown and written anew as it grows, until Ctrl-C."""
    from rich.live import Live

    from chunkscope.diagnosis.doctor import put_together, reports_of
    from chunkscope.planning.log_files import growing
    from chunkscope.report.terminal.diagnosis import live_view
    from chunkscope.vllm.log.reader import LogReader

    if len(sources) != 1 or not Path(sources[0]).is_file():
        raise UsageError("--follow takes the path of one log")
    reader, found, shown = LogReader(), None, 0
    with Live(console=console.err(), auto_refresh=False, transient=True) as live:
        try:
            for lines in growing(Path(sources[0])):
                reader.feed(lines)
                if lines or not reader.understood or reader.lines == shown:
                    continue
                log, shown = reader.reading(), reader.lines
                found = put_together(reports_of(log, sources[0], beside), [log], [])
                found.save(output)
                live.update(live_view(found), refresh=True)
        except KeyboardInterrupt:
            pass
    if found is None:
        raise InputError(f"{sources[0]} is no log of vLLM so far")
    return found
