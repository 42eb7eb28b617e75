"""Plan -> the arguments of vLLM, of an evaluation harness, or a manifest: one module each."""

from collections.abc import Callable

from chunkscope.engine.choices import Target
from chunkscope.planning.emit import (
    docker_compose,
    env,
    inspect_ai,
    json_args,
    kubernetes,
    lighteval,
    lm_eval,
    python,
    vllm_args,
    vllm_yaml,
)
from chunkscope.planning.emit.emission import Emission
from chunkscope.planning.plan import Plan

__all__ = ["Emission", "Target", "emit"]


EMITTERS: dict[Target, Callable[[Plan], Emission]] = {
    Target.VLLM_ARGS: vllm_args.emit,
    Target.VLLM_YAML: vllm_yaml.emit,
    Target.PYTHON: python.emit,
    Target.JSON: json_args.emit,
    Target.ENV: env.emit,
    Target.LM_EVAL: lm_eval.emit,
    Target.LIGHTEVAL: lighteval.emit,
    Target.INSPECT: inspect_ai.emit,
    Target.DOCKER_COMPOSE: docker_compose.emit,
    Target.KUBERNETES: kubernetes.emit,
}


def emit(plan: Plan, target: Target) -> Emission:
    """What goes to stdout, and what to say on stderr beside it."""
    return EMITTERS[target](plan)
