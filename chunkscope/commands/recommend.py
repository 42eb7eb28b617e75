"""`chunkscope recommend`."""

import gc
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands import options as opt
from chunkscope.commands.options import LIMITS, MACHINE, OUTPUT, PLAN, PROFILE, WORKLOAD
from chunkscope.errors import EngineError, MissingError, UsageError
from chunkscope.vllm.enums import Entry, Mode, Target, Task

if TYPE_CHECKING:
    from chunkscope.planning.plan import Plan

HERE = ("profiles", "emit", "anyway", "check")  # of the command, not of the plan


def recommend(
    profiles: Annotated[
        list[Path] | None,
        opt.argument(
            "[PROFILE]...",
            f"From `chunkscope analyze`; several are sent together. [default: {PROFILE}]",
        ),
    ] = None,
    model: opt.Model = None,
    gpu: opt.Gpu = None,
    tp: opt.Tp = None,
    dp: opt.Dp = None,
    ep: opt.Ep = False,
    kv_cache_dtype: opt.KvCache = None,
    max_model_len: Annotated[
        int | None, MACHINE("[default: the model's, if it fits]", "N", min=1)
    ] = None,
    vllm_version: opt.VllmVersion = None,
    entry: Annotated[Entry | None, MACHINE(f"{opt.ENTRY_HELP} [default: as --emit needs]")] = None,
    task: Annotated[Task | None, WORKLOAD("Of all datasets. [default: as the data has it]")] = None,
    max_output: Annotated[
        list[str] | None,
        WORKLOAD(
            "Of an answer; NAME=TOKENS for one dataset. [default: the data's, else 256]", "TOKENS"
        ),
    ] = None,
    arrivals: opt.Arrivals = None,
    concurrency: opt.Concurrency = None,
    dataset: Annotated[str | None, WORKLOAD("Plan for this dataset alone.", "NAME")] = None,
    slo: opt.Slo = None,
    mode: Annotated[Mode | None, LIMITS("Force a mode of the length rule.")] = None,
    log: Annotated[
        Path | None,
        LIMITS("vLLM's log on this machine: measured memory instead of predicted.", "FILE"),
    ] = None,
    emit: Annotated[
        Target | None, OUTPUT(f"Print only the arguments, as: {', '.join(Target)}.", "FORM")
    ] = None,
    anyway: Annotated[bool, OUTPUT("Emit though no setting keeps the limits.")] = False,
    check: Annotated[bool, OUTPUT("Ask the installed vLLM to check the arguments.")] = False,
    details: opt.Details = False,
    json: opt.Json = False,
    output: opt.Output = PLAN,
) -> None:
    """Which vLLM settings to use for this data, model and GPU.

    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope recommend --model llama-3.1-8b --gpu h200
    """
    options = opt.settled("recommend", _types(), opt.typed(locals()))
    profiles = profiles or [PROFILE]
    options = {name: value for name, value in options.items() if name not in HERE}
    if check and "vllm_version" not in options:
        from chunkscope.vllm.check import version_in, vllm_python

        options["vllm_version"] = version_in(vllm_python())  # of the vLLM that will judge it
    opt.refuse_data(profiles, "profile", "chunkscope recommend")
    if emit is not None and emit is not Target.JSON:
        if entry not in (None, emit.entry):
            raise UsageError(
                f"--emit {emit} is for --entry {emit.entry}, not {entry}: their defaults differ",
                hint="leave --entry out",
            )
        options["entry"] = emit.entry
    if "gpu" not in options:
        from chunkscope.hardware.gpus import find_gpu

        with suppress(MissingError):  # this machine's need not be named
            options["gpu"] = find_gpu("local")
    gc.disable()  # simulations make many objects and no rings: a sixth of the time
    with console.simulating() as tick:
        plan = api.recommend(profiles, tick=tick, **options)
    plan = replace(plan, source=_with_files(plan, profiles))
    if check:
        _check(plan)
    if emit is not None:
        _emit(plan, emit, output, anyway=anyway)
        console.say(f"\nwrote {output}")
    else:
        opt.finish(plan, output, details=details, json=json, after=_next(plan))


def _types() -> dict[str, Any]:
    from chunkscope.planning.recommend import recommend as run
    from chunkscope.planning.request import PlanRequest
    from chunkscope.planning.rule import LengthRule

    parts = (run, PlanRequest.of, PlanRequest, LengthRule)
    return {name: hint for part in parts for name, hint in get_type_hints(part).items()}


def _with_files(plan: "Plan", profiles: list[Path]) -> Any:
    """The plan's source; where several profiles were sent together, which they are."""
    from chunkscope.lengths.profile import Profile
    from chunkscope.planning.plan import ProfileFile

    several = profiles if len(profiles) > 1 else []
    files = tuple(ProfileFile(path=str(p), sha256=Profile.load(p).digest()) for p in several)
    return replace(plan.source, command=console.command(), profiles=files)


def _check(plan: "Plan") -> None:
    from chunkscope.vllm.check import check, vllm_python

    answer = check(plan.deployment, plan.settings, python=vllm_python())
    if not answer.accepted:
        raise EngineError(f"vLLM {answer.vllm_version} refuses the arguments: {answer.message}")
    console.say(f"vLLM {answer.vllm_version} accepts these arguments")


def _emit(plan: "Plan", target: Target, output: Path, *, anyway: bool) -> None:
    """Nothing is written where no setting keeps the limits, unless it shall be `anyway`."""
    from chunkscope.planning.emit import emit
    from chunkscope.report.words import sentence

    emission = emit(plan, target, anyway=anyway)
    plan.save(output)
    console.emit(emission.text.rstrip("\n").encode() + b"\n")
    for note in (*emission.notes, *plan.notes):
        console.say(f"note: {sentence(note)}")


def _next(plan: "Plan") -> str:
    from chunkscope.planning.plan import AdviceKind

    if plan.advice.kind is AdviceKind.NO_SETTING:
        return "chunkscope simulate --find-rate, with the same --slo"
    if plan.deployment.entry is not Entry.SERVE:
        return "chunkscope verify, or --emit python or lm-eval"
    named = plan.model.load_name if plan.model else "MODEL"
    if not plan.settings.given():
        return f"vllm serve{opt.quoted(named)}"
    same = opt.quoted(*(word for word in sys.argv[2:] if word not in ("--check", "--details")))
    return f"vllm serve{opt.quoted(named)} $(chunkscope recommend{same} --emit vllm-args)"
