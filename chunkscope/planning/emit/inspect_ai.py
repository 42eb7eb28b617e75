"""`-M key=value` pairs for Inspect's vLLM provider (read in 0.3.285): they become server flags."""

from chunkscope.engine.choices import Entry
from chunkscope.engine.flags import underscored
from chunkscope.planning.emit.emission import Emission
from chunkscope.planning.plan import Plan


def emit(plan: Plan) -> Emission:
    flags = underscored(plan.args_for(Entry.SERVE), plan.release.version)
    words = [f"-M {name}={_yaml(value)}" for name, value in flags.items()]
    notes: tuple[str, ...] = ()
    if any(value is True for value in flags.values()):
        notes = ("a switch such as no_... =true needs an Inspect that drops the value of booleans",)
    return Emission(text=" ".join(words), lost=plan.lost, notes=notes)


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
