"""`chunkscope prefixes`."""

from pathlib import Path
from typing import Annotated

import typer

from chunkscope.commands import options as shared
from chunkscope.commands.options import PROFILE, option


def prefixes(
    profile: Annotated[
        Path,
        typer.Argument(metavar="[PROFILE]", help="From `chunkscope analyze`.", show_default=False),
    ] = PROFILE,
    plan: Annotated[
        Path | None,
        option(
            "--plan",
            group="Input",
            metavar="FILE",
            help="From `chunkscope recommend`: its KV cache. [default: beside the profile]",
        ),
    ] = None,
    details: shared.Details = False,
    as_json: shared.Json = False,
) -> None:
    """How much of the prompts vLLM's prefix cache can serve.

    Example: chunkscope prefixes
    """
    from chunkscope.planning.plan import Plan
    from chunkscope.report.prefixes import plan_for
    from chunkscope.report.prefixes import prefixes as run

    shared.refuse_data((profile,), "profile", "chunkscope prefixes")
    planned = Plan.load(plan) if plan else plan_for(profile)
    shared.show(run(profile, planned), as_json=as_json, details=details)
