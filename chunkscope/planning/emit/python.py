"""A call of vLLM's `LLM` class."""

from chunkscope.planning.emit.emission import PLACEHOLDER, Emission, model_of
from chunkscope.planning.plan import Plan


def emit(plan: Plan) -> Emission:
    kwargs = {"model": model_of(plan) or PLACEHOLDER, **plan.llm_kwargs()}
    lines = [f"    {name}={value!r}," for name, value in kwargs.items()]
    return Emission(
        text="\n".join(["from vllm import LLM", "", "llm = LLM(", *lines, ")"]), lost=plan.lost
    )
