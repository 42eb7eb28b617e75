"""Plan -> the arguments of vLLM, of an evaluation harness, or a manifest."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from chunkscope.engine.choices import Entry, Target, Task
from chunkscope.engine.flags import (
    CONFIG_FILE,
    container_words,
    dotted,
    underscored,
    yaml_lines,
)
from chunkscope.errors import UsageError
from chunkscope.planning.plan import Plan

PLACEHOLDER = "MODEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """`lost`: what the plan holds and this form cannot say. `notes`: how to use the text."""

    text: str
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def emit(plan: Plan, target: Target) -> Emission:
    """What goes to stdout, and what to say on stderr beside it."""
    return EMITTERS[target](plan)


def _model(plan: Plan) -> str | None:
    """What to load; None when the plan was made without a model."""
    return plan.model.load_name if plan.model else None


def _text(value: object) -> str:
    """As YAML and shells write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- vLLM --------------------------------------------------------------------------------------

# The shell splits what $(...) prints at blanks and nowhere else: no quote would be taken off.
SAFE = re.compile(r"[A-Za-z0-9._=-]+")


def _vllm_args(plan: Plan) -> Emission:
    """One shell-safe line for `vllm serve MODEL $(chunkscope recommend --emit vllm-args)`."""
    words = plan.cli_args()
    if not all(SAFE.fullmatch(word) for word in words):
        raise ValueError(f"not safe in a shell: {words}")
    return Emission(text=" ".join(words), lost=plan.lost)


def _vllm_yaml(plan: Plan) -> Emission:
    """A configuration file for `vllm serve`."""
    # vLLM dies of a file that holds no mapping: nothing to set is an empty one.
    lines = yaml_lines(plan.settings_for(Entry.SERVE), plan.release.version) or ["{}"]
    text = "\n".join([f"# vllm serve MODEL {CONFIG_FILE} THIS_FILE", *lines])
    notes = (
        f"write `{CONFIG_FILE} FILE` with a blank: vLLM silently ignores `{CONFIG_FILE}=FILE`",
    )
    return Emission(text=text, lost=plan.lost, notes=notes)


def _python(plan: Plan) -> Emission:
    """A call of vLLM's `LLM` class."""
    kwargs = {"model": _model(plan) or PLACEHOLDER, **plan.llm_kwargs()}
    lines = [f"    {name}={value!r}," for name, value in kwargs.items()]
    text = "\n".join(["from vllm import LLM", "", "llm = LLM(", *lines, ")"])
    return Emission(text=text, lost=plan.lost)


def _json(plan: Plan) -> Emission:
    """The arguments as a JSON object, by vLLM's own names."""
    note = f"for an engine started as --entry {plan.inputs.entry}: vLLM's defaults depend on it"
    text = orjson.dumps(plan.settings.given(), option=orjson.OPT_INDENT_2).decode()
    return Emission(text=text, lost=plan.lost, notes=(note,))


def _env(plan: Plan) -> Emission:
    """Shell variables: `. FILE`, then `vllm serve MODEL $CHUNKSCOPE_VLLM_ARGS`.

    The names do not start with VLLM_: vLLM warns of such variables that it does not know.
    """
    line = _vllm_args(plan)
    values = plan.settings_for(Entry.SERVE).given()
    lines = [f"CHUNKSCOPE_{name.upper()}={_text(value)}" for name, value in values.items()]
    return Emission(text="\n".join([f'CHUNKSCOPE_VLLM_ARGS="{line.text}"', *lines]), lost=line.lost)


# -- harnesses ---------------------------------------------------------------------------------


def _pairs(items: Mapping[str, object]) -> str:
    """`a=1,b=2`, as harnesses take it; a comma in a value would end it early."""
    for key, value in items.items():
        if "," in str(value) or "=" in str(value):
            raise UsageError(
                f"{key} = {value} cannot be written as key=value,key=value",
                hint="use a model path without commas and equal signs",
            )
    return ",".join(f"{key}={value}" for key, value in items.items())


def _lm_eval(plan: Plan) -> Emission:
    """The `--model_args` of lm-evaluation-harness (`lm_eval --model vllm`; read in 0.4.13)."""
    # The harness has an idea of its own about the utilization, so it is always spelled out.
    utilization = plan.argument("gpu_memory_utilization").value
    model = _model(plan)
    items = {
        **({"pretrained": model} if model else {}),
        **plan.llm_kwargs(),
        "gpu_memory_utilization": utilization,
    }
    notes: tuple[str, ...] = (
        "pass `--batch_size auto`: otherwise the harness sends one request at a time",
    )
    if not model:
        notes = ("put `pretrained=MODEL,` in front", *notes)
    return Emission(text=_pairs(items), lost=plan.lost, notes=notes)


# The keys of lighteval's vLLM backend (read in 0.13.0, which refuses others).
LIGHTEVAL = {
    "max_model_len": "max_model_length",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "tensor_parallel_size": "tensor_parallel_size",
}


def _lighteval(plan: Plan) -> Emission:
    # lighteval passes defaults of its own (2048 tokens, 128 requests, 0.9), never vLLM's.
    known = {a.name: a.value for a in plan.arguments if a.value is not None}
    items = {theirs: known[ours] for ours, theirs in LIGHTEVAL.items() if ours in known}
    threshold = plan.settings.long_prefill_token_threshold
    if threshold and plan.inputs.task is Task.LOGLIKELIHOOD:
        # Without the threshold only the budget keeps a prompt's logits in memory.
        items["max_num_batched_tokens"] = threshold
        items["max_num_seqs"] = min(int(items.get("max_num_seqs") or 128), threshold)
    lost = list(plan.lost)
    if plan.settings.enable_chunked_prefill is False:
        lost.append("lighteval cannot switch chunked prefill off: it stays on")
    if threshold:
        lost.append("lighteval cannot set long_prefill_token_threshold")
    notes = ["lighteval runs vLLM without CUDA graphs (enforce_eager)"]
    if "max_num_batched_tokens" not in items:
        notes.insert(0, "without a budget here lighteval takes 2048 tokens and 128 requests")
    model = _model(plan)
    named = {"model_name": model, **items} if model else items
    if not model:
        notes.insert(0, "put `model_name=MODEL,` in front")
    return Emission(text=_pairs(named), lost=tuple(lost), notes=tuple(notes))


def _inspect(plan: Plan) -> Emission:
    """`-M key=value` pairs for Inspect's vLLM provider (read in 0.3.285): they become flags."""
    flags = underscored(plan.settings_for(Entry.SERVE), plan.release.version)
    words = [f"-M {name}={_text(value)}" for name, value in flags.items()]
    notes: tuple[str, ...] = ()
    if any(value is True for value in flags.values()):
        notes = ("a switch such as no_... =true needs an Inspect that drops the value of booleans",)
    return Emission(text=" ".join(words), lost=plan.lost, notes=notes)


# -- manifests ---------------------------------------------------------------------------------

COMPOSE = """services:
  vllm:
    image: vllm/vllm-openai:v{version}
    command: {command}
    ports: ["8000:8000"]
    ipc: host
    environment: {{HF_HOME: /models}}
    volumes: ["~/.cache/huggingface:/models"]
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: {gpus}
              capabilities: [gpu]"""

KUBERNETES = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: vllm
spec:
  replicas: 1
  selector:
    matchLabels: {{app: vllm}}
  template:
    metadata:
      labels: {{app: vllm}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v{version}
          args: {command}
          ports: [{{containerPort: 8000}}]
          resources:
            limits: {{nvidia.com/gpu: {gpus}}}
          volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
      volumes:
        - name: shm
          emptyDir: {{medium: Memory}}"""


def _manifest(template: str) -> Callable[[Plan], Emission]:
    """vLLM's own image, with the arguments as its command."""

    def fill(plan: Plan) -> Emission:
        words = container_words(_model(plan) or PLACEHOLDER, plan.cli_args())
        text = template.format(
            version=dotted(plan.release.version), command=json.dumps(words), gpus=plan.inputs.tp
        )
        return Emission(text=text, lost=plan.lost)

    return fill


EMITTERS: dict[Target, Callable[[Plan], Emission]] = {
    Target.VLLM_ARGS: _vllm_args,
    Target.VLLM_YAML: _vllm_yaml,
    Target.PYTHON: _python,
    Target.JSON: _json,
    Target.ENV: _env,
    Target.LM_EVAL: _lm_eval,
    Target.LIGHTEVAL: _lighteval,
    Target.INSPECT: _inspect,
    Target.DOCKER_COMPOSE: _manifest(COMPOSE),
    Target.KUBERNETES: _manifest(KUBERNETES),
}
