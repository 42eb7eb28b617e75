"""Plan -> the arguments of vLLM, the command of a harness, or a manifest."""

import json
import math
import os.path
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

import orjson

from chunkscope.artefacts.note import Note, note, one_of
from chunkscope.artefacts.numbers import SECONDS, per_second
from chunkscope.errors import EngineError, UsageError
from chunkscope.hardware.gpus import GIB
from chunkscope.planning.plan import AdviceKind, Plan
from chunkscope.vllm.enums import Entry, Target
from chunkscope.vllm.flags import command_line, dotted, switched

NO_MODEL = "MODEL"
TASK = "TASK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """The text for stdout, a comment to stand above it, and notes for stderr."""

    text: str
    comment: Note | None = None  # where limits are broken, in a form that has comments
    notes: tuple[Note, ...] = ()


def emit(plan: Plan, target: Target | str, *, anyway: bool = False) -> Emission:
    """The plan in the form of `target`.

    EngineError if no setting keeps the limits, unless `anyway`.
    """
    target = one_of(Target, target, "target")
    notes = []
    comment = None
    if plan.advice.kind is AdviceKind.NO_SETTING:
        if not anyway:
            raise _breaks_limits(plan)
        broken = note("emit_breaks_limits", limits=_limits(plan))
        if target in WITHOUT_COMMENTS:
            notes.append(broken)
        else:
            comment = broken
    notes += _notes(plan, target)
    return Emission(text=EMITTERS[target](plan), comment=comment, notes=tuple(notes))


WITHOUT_COMMENTS = (Target.VLLM_ARGS, Target.JSON)
WITHOUT_MODEL = (*WITHOUT_COMMENTS, Target.VLLM_YAML, Target.ENV)


def _limits(plan: Plan) -> str:
    """The limits, and which of them breaks first."""
    limits = ", ".join(str(limit) for limit in plan.request.slo)
    if plan.run is None or plan.run.slo is None:
        return limits
    first = plan.run.slo.tightest
    value = SECONDS.brief(plan.run.slo.found_of(first))
    return f"{limits} ({first.name} breaks first: {value}, simulated)"


def _breaks_limits(plan: Plan) -> EngineError:
    way_out = "no rate keeps them"
    if plan.advice.rate:
        way_out = f"--arrivals {per_second(plan.advice.rate)} keeps them"
    return EngineError(
        f"no setting that was tried keeps the limits: {_limits(plan)}",
        hint=f"{way_out}; use more GPUs, or pass --anyway to write it nevertheless",
    )


def _notes(plan: Plan, target: Target) -> Iterator[Note]:
    """Who starts the engine, since its defaults depend on that; what is left to do."""
    entry = plan.deployment.entry
    if target.entry is not entry and target is not Target.JSON:
        yield note("emit_spelled_out", entry=entry)
    yield from _blank_notes(plan, target)
    yield from TARGET_NOTES.get(target, _no_notes)(plan)
    started_by = entry if target is Target.JSON else target.entry
    request = plan.request
    asked = request.is_open or request.concurrency or request.samples_at_once
    if started_by is Entry.SERVE and not asked and plan.requests_in_flight:
        yield note("emit_in_flight", requests=plan.requests_in_flight)


def _blank_notes(plan: Plan, target: Target) -> Iterator[Note]:
    """Words that are to be replaced."""
    names = []
    if target in (Target.LM_EVAL, Target.INSPECT):
        names.append(TASK)
    if plan.model is None and target not in WITHOUT_MODEL:
        names.append(NO_MODEL)
    if names:
        yield note("emit_fill_in", names=names)


def _no_notes(_plan: Plan) -> Iterator[Note]:
    yield from ()


def _yaml_notes(_plan: Plan) -> Iterator[Note]:
    yield note("emit_config_blank")


def _lm_eval_notes(plan: Plan) -> Iterator[Note]:
    yield note("emit_lm_eval_memory")
    if plan.settings.max_model_len:
        yield note("emit_lm_eval_cuts", context=plan.settings.max_model_len)


def _inspect_notes(plan: Plan) -> Iterator[Note]:
    if plan.requests_in_flight is None:
        yield note("emit_inspect_connections")


def _kubernetes_notes(plan: Plan) -> Iterator[Note]:
    folder = _folder(plan)
    if folder:
        yield note("emit_node_folder", folder=folder)
    else:
        yield note("emit_token_secret")


def _compose_notes(_plan: Plan) -> Iterator[Note]:
    yield note("emit_token_variable")


TARGET_NOTES: dict[Target, Callable[[Plan], Iterator[Note]]] = {
    Target.VLLM_YAML: _yaml_notes,
    Target.LM_EVAL: _lm_eval_notes,
    Target.INSPECT: _inspect_notes,
    Target.KUBERNETES: _kubernetes_notes,
    Target.DOCKER_COMPOSE: _compose_notes,
}


def _text(value: object) -> str:
    """As YAML and shells write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _model(plan: Plan) -> str:
    """What to load; a word to replace when the plan was made without a model."""
    return plan.model.load_name if plan.model else NO_MODEL


# -- vLLM ------------------------------------------------------------------------------


def _vllm_args(plan: Plan) -> str:
    """One line for `vllm serve MODEL $(chunkscope recommend --emit vllm-args)`.

    No word is quoted, since the shell would leave a quote as it is.
    """
    return " ".join(command_line(plan.settings_for(Entry.SERVE).given()))


def _vllm_yaml(plan: Plan) -> str:
    # vLLM dies of a file that holds no mapping: nothing to set is an empty one.
    values = switched(plan.settings_for(Entry.SERVE).given())  # vLLM drops `key: false`
    lines = [
        f"{name.replace('_', '-')}: {_text(value)}" for name, value in values.items()
    ]
    return "\n".join(["# vllm serve MODEL --config THIS_FILE", *(lines or ["{}"])])


def _python(plan: Plan) -> str:
    kwargs = {"model": _model(plan), **plan.settings_for(Entry.LLM).given()}
    lines = [f"    {name}={value!r}," for name, value in kwargs.items()]
    return "\n".join(["from vllm import LLM", "", "llm = LLM(", *lines, ")"])


def _json(plan: Plan) -> str:
    return orjson.dumps(plan.settings.given(), option=orjson.OPT_INDENT_2).decode()


def _env(plan: Plan) -> str:
    """Shell variables: `. FILE`, then `vllm serve MODEL $CHUNKSCOPE_VLLM_ARGS`.

    No name starts with VLLM_: vLLM warns of such variables if it does not know them.
    """
    values = plan.settings_for(Entry.SERVE).given()
    lines = [
        f"CHUNKSCOPE_{name.upper()}={_text(value)}" for name, value in values.items()
    ]
    return "\n".join([f'CHUNKSCOPE_VLLM_ARGS="{_vllm_args(plan)}"', *lines])


# -- harnesses -------------------------------------------------------------------------


def _pairs(items: Mapping[str, object]) -> str:
    """`a=1,b=2`, as harnesses take it; a comma in a value would end it early."""
    for key, value in items.items():
        if "," in str(value) or "=" in str(value):
            hint = "use a model path without commas and equals signs"
            raise UsageError(
                f"{key} = {value} cannot be written as key=value,key=value", hint=hint
            )
    return ",".join(f"{key}={value}" for key, value in items.items())


def _lm_eval(plan: Plan) -> str:
    """All requests are given to the `LLM` class at once. Tried with lm-eval 0.4.13."""
    items = {
        "pretrained": _model(plan),
        **plan.settings_for(Entry.LLM).given(),
        # The harness has a default of its own, so it is always spelled out.
        "gpu_memory_utilization": plan.effective.gpu_memory_utilization,
    }
    # Without `auto` the harness sends one request at a time.
    words = [
        "lm_eval",
        "--model",
        "vllm",
        "--model_args",
        _pairs(items),
        "--batch_size",
        "auto",
    ]
    return shlex.join([*words, "--tasks", TASK])


def _inspect(plan: Plan) -> str:
    """Inspect starts `vllm serve` itself: each `-M name=value` becomes a flag of it."""
    flags = switched(plan.settings_for(Entry.SERVE).given())
    words = ["inspect", "eval", TASK, "--model", f"vllm/{_model(plan)}"]
    at_once = plan.requests_in_flight
    if at_once is not None:
        # A sample sends one request at a time, so both are the same number.
        words += ["--max-samples", str(at_once), "--max-connections", str(at_once)]
    for name, value in flags.items():
        # A switch without a value is a flag in every version since 0.3.136, with `true`
        # only in those after 0.3.180.
        words += ["-M", f"{name}={'null' if value is True else _text(value)}"]
    return shlex.join(words)


# -- manifests -------------------------------------------------------------------------

# Beside this file. The entry point is spelled out: that of the image is another one in
# older versions. `enableServiceLinks` is off: Kubernetes names each Service in
# variables of every pod, and those that begin with VLLM_ are vLLM's own.
TEMPLATES = Path(__file__).parent / "manifests"


def _compose(plan: Plan) -> str:
    mount = ""
    folder = _folder(plan)
    if folder:
        place = _interpolated(folder)
        bind = f"type: bind, source: {place}, target: {place}, read_only: true"
        mount = f"\n      - {{{bind}}}"
    devices = _filled(f"compose-{_vendor(plan)}", plan)
    return _filled("compose", plan, mount=mount, devices=devices)


def _kubernetes(plan: Plan) -> str:
    mount = volume = ""
    folder = _folder(plan)
    if folder:
        # `$` means something in a container's arguments only.
        place = json.dumps(folder)
        mount = f"\n            - {{name: model, mountPath: {place}, readOnly: true}}"
        path = f"hostPath: {{path: {place}, type: Directory}}"
        volume = f"\n        - name: model\n          {path}"
    weights = plan.model.weight_bytes / GIB if plan.model else 40
    storage = 10 * math.ceil(
        (2 * weights + 10) / 10
    )  # with room for another try, in tens
    return _filled("kubernetes", plan, mount=mount, volume=volume, storage=storage)


def _filled(name: str, plan: Plan, **parts: object) -> str:
    rocm = "-rocm" if _vendor(plan) == "amd" else ""
    template = Template(
        (TEMPLATES / f"{name}.yaml").read_text(encoding="utf-8").rstrip("\n")
    )
    return template.safe_substitute(
        image=f"vllm/vllm-openai{rocm}:v{dotted(plan.deployment.release.version)}",
        entrypoint=json.dumps(["vllm", "serve"]),
        words=_interpolated([_folder(plan) or _model(plan), *_vllm_args(plan).split()]),
        gpus=plan.settings.parallel.gpus,
        vendor=_vendor(plan),
        **parts,
    )


def _vendor(plan: Plan) -> str:
    return (
        "amd" if plan.gpu is not None and plan.gpu.title.startswith("AMD") else "nvidia"
    )


def _interpolated(value: object) -> str:
    """As YAML that is read with `$` for variables, which a path has none of."""
    return json.dumps(value).replace("$", "$$")


def _folder(plan: Plan) -> str | None:
    """The model's folder on this machine, which a container does not see by itself."""
    shape = plan.model
    if shape is None or shape.hub_id != str(Path(shape.source).parent):
        return None
    return os.path.abspath(shape.hub_id)  # noqa: PTH100  (without `..`, and links as they are)


EMITTERS: dict[Target, Callable[[Plan], str]] = {
    Target.VLLM_ARGS: _vllm_args,
    Target.VLLM_YAML: _vllm_yaml,
    Target.PYTHON: _python,
    Target.JSON: _json,
    Target.ENV: _env,
    Target.LM_EVAL: _lm_eval,
    Target.INSPECT: _inspect,
    Target.DOCKER_COMPOSE: _compose,
    Target.KUBERNETES: _kubernetes,
}
