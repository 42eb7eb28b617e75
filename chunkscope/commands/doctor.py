"""`chunkscope doctor`."""

from pathlib import Path
from typing import Annotated, Literal

from chunkscope.commands.options import (
    INPUT,
    MACHINE,
    OUTPUT,
    PLAN,
    PROFILE,
    REPORTS,
    Details,
    Gpu,
    Json,
    Out,
    argument,
    known_models,
    option,
)
from chunkscope.commands.printing import (
    check_format,
    command_line,
    say_written,
    show,
    unless_usual,
)


def doctor(
    logs: Annotated[
        list[str],
        argument("LOG|URL...", "A vLLM's logs (- for stdin), or running servers."),
    ],
    plan: Annotated[
        Path | None,
        option(
            INPUT,
            "Plan to compare with. [default: reports/plan.json]",
            "--plan",
            metavar="FILE",
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        option(
            INPUT,
            "The data that was sent. [default: reports/profile.json]",
            "--profile",
            metavar="FILE",
        ),
    ] = None,
    seconds: Annotated[
        float,
        option(
            INPUT,
            "How long to watch a server. [default: 10]",
            "--seconds",
            metavar="S",
            min=0.1,
        ),
    ] = 10.0,
    model: Annotated[
        str | None,
        option(
            MACHINE,
            "The model that ran. [default: as in the log]",
            "--model",
            "-m",
            metavar="NAME",
            complete=known_models,
        ),
    ] = None,
    gpu: Gpu = None,
    details: Details = False,
    form: Annotated[
        Literal["text", "md"] | None,
        option(OUTPUT, "How the result is shown.", "--format"),
    ] = None,
    json: Json = False,
    out: Out = REPORTS / "doctor.json",
) -> None:
    """Say what limits vLLM, from its log or a running server.

    Example: chunkscope doctor vllm.log
    """
    from chunkscope.diagnosis.doctor import doctor as diagnose

    check_format(form, json=json)
    if plan is None and PLAN.exists():
        plan = PLAN
    if profile is None and PROFILE.exists():
        profile = PROFILE
    diagnosis = diagnose(
        *logs, plan=plan, profile=profile, gpu=gpu, model=model, seconds=seconds
    )
    diagnosis.save(out)
    show(diagnosis, details=details, json=json, form=form)
    folder = unless_usual(out.parent, REPORTS)
    say_written(out, then=command_line("report", *folder))
