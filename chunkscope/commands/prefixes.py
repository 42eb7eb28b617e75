"""`chunkscope prefixes`."""

from pathlib import Path
from typing import Annotated

from chunkscope.commands import options as shared
from chunkscope.commands.options import PROFILE, argument, options

OPTIONS = options("""
Input:
  --plan FILE  From `chunkscope recommend`: its KV cache. [default: beside the profile]
""")


def prefixes(
    profile: Annotated[Path, argument("[PROFILE]", "From `chunkscope analyze`.")] = PROFILE,
    plan: Annotated[Path | None, OPTIONS["plan"]] = None,
    details: shared.Details = False,
    as_json: shared.Json = False,
) -> None:
    """How much of the prompts vLLM's prefix cache can serve.

    Example: chunkscope prefixes
    """
    from chunkscope.planning.plan import Plan
    from chunkscope.report import reuse

    shared.refuse_data((profile,), "profile", "chunkscope prefixes")
    planned = Plan.load(plan) if plan else reuse.plan_for(profile)
    shared.show(reuse.prefixes(profile, planned), as_json=as_json, details=details)
