"""Shell variables: `. FILE`, then `vllm serve MODEL $CHUNKSCOPE_VLLM_ARGS`.

The names do not start with VLLM_: vLLM warns of such variables that it does not know.
"""

from chunkscope.engine.choices import Entry
from chunkscope.planning.emit import vllm_args
from chunkscope.planning.emit.emission import Emission
from chunkscope.planning.plan import Plan


def emit(plan: Plan) -> Emission:
    line = vllm_args.emit(plan)
    values = plan.args_for(Entry.SERVE)
    lines = [f"CHUNKSCOPE_{name.upper()}={_shell(value)}" for name, value in values.items()]
    return Emission(text="\n".join([f'CHUNKSCOPE_VLLM_ARGS="{line.text}"', *lines]), lost=line.lost)


def _shell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
