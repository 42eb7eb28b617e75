"""`chunkscope recommend`."""

import gc
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from chunkscope import console
from chunkscope.artefacts.words import one_of
from chunkscope.commands import api
from chunkscope.commands.options import (
    PLAN,
    PROFILE,
    Given,
    command,
    finish,
    quoted,
    refuse_data,
    settled,
)
from chunkscope.errors import EngineError, MissingError, UsageError
from chunkscope.vllm.enums import Entry, Mode, Target, Task

if TYPE_CHECKING:
    from chunkscope.hardware.gpus import Gpu
    from chunkscope.planning.plan import Plan

HERE = ("profiles", "emit", "anyway", "check")  # of the command, not of the plan


@command(f"""
Arguments:
  [PROFILE]...       From `chunkscope analyze`; several are sent together. [default: {PROFILE}]
Machine:
  --model --gpu --tp --dp --ep --kv-cache-dtype
  --max-model-len N  [default: the model's, if it fits]
  --vllm-version
  --entry {"|".join(Entry)}  How vLLM is started: its defaults differ. [default: as --emit needs]
Workload:
  --task {"|".join(Task)}  Of all datasets. [default: as the data has it]
  --max-output TOKENS...  Of an answer; NAME=TOKENS for one dataset. [default: the data's, else 256]
  --arrivals --concurrency
  --dataset NAME     Plan for this dataset alone.
Limits:
  --slo
  --mode {"|".join(Mode)}  Force a mode of the length rule.
  --log FILE         vLLM's log on this machine: measured memory instead of predicted.
Output:
  --emit FORM        Print only the arguments, as: {", ".join(Target)}.
  --anyway           Emit though no setting keeps the limits.
  --check            Ask the installed vLLM to check the arguments.
  --details --json --output
""")
def recommend(given: Given) -> None:
    """Which vLLM settings to use for this data, model and GPU.

    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope recommend --model llama-3.1-8b --gpu h200
    """
    profiles, output = given.profiles or [PROFILE], given.output or PLAN
    emit = one_of(Target, given.emit, "--emit")
    options = settled("recommend", _types(), given)
    options = {name: value for name, value in options.items() if name not in HERE}
    if given.check and "vllm_version" not in options:
        from chunkscope.vllm.check import version_in, vllm_python

        options["vllm_version"] = version_in(vllm_python())  # of the vLLM that will judge it
    refuse_data(profiles, "profile", "chunkscope recommend")
    if emit is not None and emit is not Target.JSON:
        if given.entry not in (None, emit.entry):
            raise UsageError(
                f"--emit {emit} is for --entry {emit.entry}, not {given.entry}: their defaults "
                "differ",
                hint="leave --entry out",
            )
        options["entry"] = emit.entry
    options.setdefault("gpu", _gpu_here())
    gc.disable()  # simulations make many objects and no rings: a sixth of the time
    with console.simulating() as tick:
        plan = api.recommend(profiles, tick=tick, **options)
    plan = replace(plan, source=_with_files(plan, profiles))
    if given.check:
        _check(plan)
    if emit is not None:
        _emit(plan, emit, output, anyway=bool(given.anyway))
        console.say(f"\nwrote {output}")
    else:
        finish(plan, given, PLAN, after=_next(plan))


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


def _gpu_here() -> "Gpu | None":
    """The GPU of this machine, if there is one: nobody has to name it."""
    from chunkscope.hardware.gpus import find_gpu

    try:
        return find_gpu("local")
    except MissingError:
        return None


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
        return f"vllm serve{quoted(named)}"
    same = quoted(*(word for word in sys.argv[2:] if word not in ("--check", "--details")))
    return f"vllm serve{quoted(named)} $(chunkscope recommend{same} --emit vllm-args)"
