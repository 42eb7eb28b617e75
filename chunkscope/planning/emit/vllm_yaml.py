"""A configuration file for `vllm serve`."""

from chunkscope.engine.choices import Entry
from chunkscope.engine.flags import CONFIG_FILE, yaml_lines
from chunkscope.planning.emit.emission import Emission
from chunkscope.planning.plan import Plan


def emit(plan: Plan) -> Emission:
    # vLLM dies of a file that holds no mapping: nothing to set is an empty one.
    lines = yaml_lines(plan.args_for(Entry.SERVE), plan.release.version) or ["{}"]
    text = "\n".join([f"# vllm serve MODEL {CONFIG_FILE} THIS_FILE", *lines])
    notes = (
        f"write `{CONFIG_FILE} FILE` with a blank: vLLM silently ignores `{CONFIG_FILE}=FILE`",
    )
    return Emission(text=text, lost=plan.lost, notes=notes)
