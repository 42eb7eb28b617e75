"""One shell-safe line for `vllm serve MODEL $(chunkscope recommend --emit vllm-args)`."""

import re

from chunkscope.planning.emit.emission import Emission
from chunkscope.planning.plan import Plan

# The shell splits what $(...) prints at blanks and nowhere else: no quote would be taken off.
SAFE = re.compile(r"[A-Za-z0-9._=-]+")


def emit(plan: Plan) -> Emission:
    words = plan.cli_args()
    if not all(SAFE.fullmatch(word) for word in words):
        raise ValueError(f"not safe in a shell: {words}")
    return Emission(text=" ".join(words), lost=plan.lost)
