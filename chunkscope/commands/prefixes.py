"""`chunkscope prefixes`."""

from pathlib import Path
from typing import Annotated

from chunkscope.commands.options import PROFILE, Json, argument
from chunkscope.commands.printing import show


def prefixes(
    profile: Annotated[
        Path,
        argument(
            "[PROFILE]", "From `chunkscope analyze`. [default: reports/profile.json]"
        ),
    ] = PROFILE,
    json: Json = False,
) -> None:
    """Show how much of the prompts vLLM's prefix cache can serve.

    Example: chunkscope prefixes
    """
    from chunkscope.report.prefixes import prefixes as summary_of

    show(summary_of(profile), json=json)
