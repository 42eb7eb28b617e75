"""`chunkscope prefixes`."""

from pathlib import Path
from typing import Annotated

import typer

from chunkscope import console
from chunkscope.commands.options import PROFILE, refuse_data
from chunkscope.errors import InputError


def prefixes(
    profile: Annotated[
        Path, typer.Argument(metavar="[PROFILE]", help="What `chunkscope analyze` wrote.")
    ] = PROFILE,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What `chunkscope recommend` wrote: its KV cache. [default: beside the profile]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Show how much of the prompts vLLM's prefix cache would find.

    Example: chunkscope prefixes
    """
    from chunkscope.artefacts.codec import dump
    from chunkscope.lengths.profile import Profile
    from chunkscope.planning.plan import Plan
    from chunkscope.report.terminal.prefixes import reuse_json, show_prefixes

    refuse_data((profile,), "profile", "chunkscope prefixes")
    found = Profile.load(profile)
    if not any(dataset.prefixes for dataset in found.datasets):
        raise InputError(
            f"{profile} does not say what its prompts share",
            hint="measure it: `chunkscope analyze data/` without --no-prefixes",
        )
    beside = profile.with_name("plan.json")
    planned = plan or (beside if beside.exists() else None)
    made = Plan.load(planned) if planned else None
    if as_json:
        return console.emit(dump(reuse_json(found, made)))
    return console.show(lambda out: show_prefixes(found, made, out))
