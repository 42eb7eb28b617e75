"""The arguments as a JSON object, by vLLM's own names."""

import orjson

from chunkscope.emit.emission import Emission
from chunkscope.plan import Plan


def emit(plan: Plan) -> Emission:
    return Emission(
        text=orjson.dumps(plan.args, option=orjson.OPT_INDENT_2).decode(), lost=plan.lost
    )
