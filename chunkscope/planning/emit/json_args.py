"""The arguments as a JSON object, by vLLM's own names."""

import orjson

from chunkscope.planning.emit.emission import Emission
from chunkscope.planning.plan import Plan


def emit(plan: Plan) -> Emission:
    note = f"for an engine started as --entry {plan.inputs.entry}: vLLM's defaults depend on it"
    text = orjson.dumps(plan.args, option=orjson.OPT_INDENT_2).decode()
    return Emission(text=text, lost=plan.lost, notes=(note,))
