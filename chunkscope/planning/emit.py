"""Plan -> the arguments of vLLM, the command of an evaluation harness, or a manifest."""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace

import orjson

from chunkscope.errors import UsageError
from chunkscope.planning.emission import (
    NO_MODEL,
    TASK,
    Emission,
    for_clients,
    model_of,
)
from chunkscope.planning.manifests import docker_compose, kubernetes
from chunkscope.planning.plan import Plan
from chunkscope.vllm.choices import Entry, Target, Task
from chunkscope.vllm.deployment import OWN
from chunkscope.vllm.flags import CONFIG_FILE, underscored, yaml_lines


def emit(plan: Plan, target: Target) -> Emission:
    """What goes to stdout, and what to say on stderr beside it."""
    found = EMITTERS[target](plan)
    tried = (TRIED_VLLM.format(plan.release.text),) if target in VLLM_FORMS else ()
    return replace(found, notes=(_planned_for(plan, target), *found.notes, *tried))


# In CI these go through the parser of a real vLLM; which flags others know is kept by version.
VLLM_FORMS = (Target.VLLM_ARGS, Target.VLLM_YAML, Target.PYTHON, Target.JSON, Target.ENV)
TRIED_VLLM = "written for vLLM {}; the form was tried with vLLM 0.28.0"
STARTED = {Entry.SERVE: "vllm serve", Entry.LLM: "vLLM's LLM class", Entry.OTHER: "vLLM's engine"}


def _planned_for(plan: Plan, target: Target) -> str:
    """Who starts the engine: what it takes by itself depends on that."""
    entry = plan.inputs.entry
    said = f"planned for {STARTED[entry]} (--entry {entry})"
    if target is Target.JSON:
        return f"{said}: others have other defaults"
    if entry is not target.entry:
        return f"{said}; what {STARTED[target.entry]} would take otherwise is spelled out"
    own = plan.deployment.effective(OWN)
    if own.max_num_batched_tokens is None or own.max_num_seqs is None:
        return said
    budget, seqs = f"{own.max_num_batched_tokens:,} tokens", f"{own.max_num_seqs:,} requests"
    return f"{said}, which takes {budget} a step and {seqs} at once unless it is told otherwise"


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
    return Emission(text=" ".join(words), lost=plan.lost, notes=for_clients(plan))


def _vllm_yaml(plan: Plan) -> Emission:
    """A configuration file for `vllm serve`."""
    # vLLM dies of a file that holds no mapping: nothing to set is an empty one.
    lines = yaml_lines(plan.settings_for(Entry.SERVE), plan.release.version) or ["{}"]
    text = "\n".join([f"# vllm serve MODEL {CONFIG_FILE} THIS_FILE", *lines])
    notes = (
        f"write `{CONFIG_FILE} FILE` with a blank: vLLM silently ignores `{CONFIG_FILE}=FILE`",
        *for_clients(plan),
    )
    return Emission(text=text, lost=plan.lost, notes=notes)


def _python(plan: Plan) -> Emission:
    """A call of vLLM's `LLM` class."""
    kwargs = {"model": model_of(plan), **plan.llm_kwargs()}
    lines = [f"    {name}={value!r}," for name, value in kwargs.items()]
    text = "\n".join(["from vllm import LLM", "", "llm = LLM(", *lines, ")"])
    notes = ("LLM.generate takes all requests at once", *for_clients(plan))
    return Emission(text=text, lost=plan.lost, notes=notes)


def _json(plan: Plan) -> Emission:
    """The arguments as a JSON object, by vLLM's own names."""
    text = orjson.dumps(plan.settings.given(), option=orjson.OPT_INDENT_2).decode()
    return Emission(text=text, lost=plan.lost, notes=for_clients(plan))


def _env(plan: Plan) -> Emission:
    """Shell variables: `. FILE`, then `vllm serve MODEL $CHUNKSCOPE_VLLM_ARGS`.

    The names do not start with VLLM_: vLLM warns of such variables that it does not know.
    """
    line = _vllm_args(plan)
    values = plan.settings_for(Entry.SERVE).given()
    lines = [f"CHUNKSCOPE_{name.upper()}={_text(value)}" for name, value in values.items()]
    text = "\n".join([f'CHUNKSCOPE_VLLM_ARGS="{line.text}"', *lines])
    return Emission(text=text, lost=line.lost, notes=line.notes)


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


def _harness(
    plan: Plan, words: list[str], tried: str, *notes: str, lost: tuple[str, ...] = ()
) -> Emission:
    """A command to paste: what is left to fill in is said first, what it was tried with last."""
    fill = f"put your task for {TASK}" + ("" if plan.model else f", your model for {NO_MODEL}")
    return Emission(
        text=shlex.join(words),
        lost=(*plan.lost, *lost),
        notes=(fill, *notes, f"tried with {tried}"),
    )


def _lm_eval(plan: Plan) -> Emission:
    """All requests are given to the `LLM` class at once: no number of connections to choose."""
    # The harness has an idea of its own about the utilization, so it is always spelled out.
    utilization = plan.argument("gpu_memory_utilization").value
    items = {
        "pretrained": model_of(plan),
        **plan.llm_kwargs(),
        "gpu_memory_utilization": utilization,
    }
    # Without `auto` the harness sends one request at a time.
    words = ["lm_eval", "--model", "vllm", "--model_args", _pairs(items), "--batch_size", "auto"]
    notes = []
    if context := plan.settings.max_model_len:
        notes.append(
            f"lm-eval cuts prompts to {context:,} tokens less the task's max_gen_toks (256 unless "
            "it says otherwise), and fails where that leaves none"
        )
    notes += for_clients(plan)
    return _harness(plan, [*words, "--tasks", TASK], "lm-eval 0.4.13", *notes)


# The keys of lighteval's vLLM backend (read in 0.13.0, which refuses others).
LIGHTEVAL = {
    "max_model_len": "max_model_length",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "tensor_parallel_size": "tensor_parallel_size",
}


def _lighteval(plan: Plan) -> Emission:
    # lighteval passes defaults of its own (2048 tokens, 128 requests, 0.9), never vLLM's, and
    # cuts prompts at 8192 tokens unless it is told the context.
    known = plan.deployment.effective(plan.settings).given()
    items = {theirs: known[ours] for ours, theirs in LIGHTEVAL.items() if ours in known}
    threshold = plan.settings.long_prefill_token_threshold
    if threshold and plan.inputs.task is Task.LOGLIKELIHOOD:
        # Without the threshold only the budget keeps a prompt's logits in memory.
        items["max_num_batched_tokens"] = threshold
        items["max_num_seqs"] = min(int(items.get("max_num_seqs") or 128), threshold)
    lost = [
        "lighteval 0.13 accepts vLLM 0.10.0 to 0.10.1 only, and stops with any other: "
        f"this plan is for {plan.release.text}"
    ]
    if plan.settings.enable_chunked_prefill is False:
        lost.append("lighteval cannot switch chunked prefill off: it stays on")
    for name in ("long_prefill_token_threshold", "kv_cache_dtype"):
        if getattr(plan.settings, name):
            lost.append(f"lighteval cannot set {name}")
    notes = ["lighteval runs vLLM without CUDA graphs (enforce_eager)"]
    if "max_num_batched_tokens" not in items:
        notes.append("without a budget here lighteval takes 2048 tokens and 128 requests")
    words = ["lighteval", "vllm", _pairs({"model_name": model_of(plan), **items}), TASK]
    notes += for_clients(plan)
    return _harness(plan, words, "lighteval 0.13.0", *notes, lost=tuple(lost))


def _inspect(plan: Plan) -> Emission:
    """Inspect starts `vllm serve` itself: each `-M name=value` becomes a flag of it."""
    flags = underscored(plan.settings_for(Entry.SERVE), plan.release.version)
    words = ["inspect", "eval", TASK, "--model", f"vllm/{model_of(plan)}"]
    if at_once := plan.requests_in_flight:
        words += ["--max-connections", str(at_once)]
    switches = [name for name, value in flags.items() if value is True]
    for name, value in flags.items():
        # Of a switch without a value every version since 0.3.136 makes a flag; of `true` only
        # those after 0.3.180.
        words += ["-M", f"{name}={'null' if name in switches else _text(value)}"]
    tried = "Inspect 0.3.136 to 0.3.285" if switches else "Inspect 0.3.100 to 0.3.285"
    none = () if at_once else ("add --max-connections: Inspect sends 10 requests at a time",)
    return _harness(plan, words, tried, *none)


EMITTERS: dict[Target, Callable[[Plan], Emission]] = {
    Target.VLLM_ARGS: _vllm_args,
    Target.VLLM_YAML: _vllm_yaml,
    Target.PYTHON: _python,
    Target.JSON: _json,
    Target.ENV: _env,
    Target.LM_EVAL: _lm_eval,
    Target.LIGHTEVAL: _lighteval,
    Target.INSPECT: _inspect,
    Target.DOCKER_COMPOSE: docker_compose,
    Target.KUBERNETES: kubernetes,
}


def _written(plan: Plan, target: Target) -> str:
    return emit(plan, target).text


Plan.written_by = _written
