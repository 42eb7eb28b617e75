"""`chunkscope recommend`."""

import gc
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.commands.options import PLAN, PROFILE, argument, options
from chunkscope.errors import EngineError, MissingError, UsageError
from chunkscope.vllm.enums import Entry, KvCacheType, Mode, Target, Task

if TYPE_CHECKING:
    from chunkscope.hardware.gpus import Gpu
    from chunkscope.planning.plan import Plan, ProfileFile

OPTIONS = options(f"""
Machine:
  --max-model-len N  [default: the model's, if it fits]
  --entry            How vLLM is started: its defaults differ. [default: as --emit needs]
Workload:
  --dataset NAME     Plan for this dataset alone.
Limits:
  --mode             Force a mode of the length rule.
  --log FILE         vLLM's log on this machine: measured memory instead of predicted.
Output:
  --emit FORM        Print only the arguments, as: {", ".join(Target)}.
  --anyway           Emit though no setting keeps the limits.
  --check            Ask the installed vLLM to check the arguments.
""")

OURS = ("profiles", "gpu", "emit", "anyway", "check", "details", "as_json", "output")
CUTS = ("off_below", "conservative_threshold", "aggressive_factor")  # in chunkscope.toml


def recommend(
    profiles: Annotated[
        list[Path] | None,
        argument(
            "[PROFILE]...",
            f"From `chunkscope analyze`; several are sent together. [default: {PROFILE}]",
        ),
    ] = None,
    model: shared.ModelName = None,
    gpu: shared.GpuName = None,
    tp: shared.TensorParallel = 1,
    dp: shared.DataParallel = 1,
    ep: shared.ExpertParallel = False,
    kv_cache_dtype: shared.KvCacheDtype = KvCacheType.AUTO,
    max_model_len: Annotated[int | None, OPTIONS["max_model_len"]] = None,
    vllm_version: shared.VllmVersion = None,
    entry: Annotated[Entry | None, OPTIONS["entry"]] = None,
    task: shared.TaskKind = Task.GENERATE,
    max_output: shared.MaxOutput = None,
    arrivals: shared.Arrivals = None,
    concurrency: shared.Concurrency = None,
    dataset: Annotated[str | None, OPTIONS["dataset"]] = None,
    slo: shared.Slo = None,
    mode: Annotated[Mode | None, OPTIONS["mode"]] = None,
    log: Annotated[Path | None, OPTIONS["log"]] = None,
    emit: Annotated[Target | None, OPTIONS["emit"]] = None,
    anyway: Annotated[bool, OPTIONS["anyway"]] = False,
    check: Annotated[bool, OPTIONS["check"]] = False,
    details: shared.Details = False,
    as_json: shared.Json = False,
    output: shared.Output = PLAN,
) -> None:
    """Which vLLM settings to use for this data, model and GPU.

    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope recommend --model llama-3.1-8b --gpu h200
    """
    given = {name: v for name, v in locals().items() if shared.was_given(v) and name not in OURS}
    from chunkscope.lengths.profile import load_profiles
    from chunkscope.planning.recommend import recommend as run
    from chunkscope.planning.rule import LengthRule

    if check and vllm_version is None:
        from chunkscope.vllm.check import version_in, vllm_python

        given["vllm_version"] = version_in(vllm_python())  # of the vLLM that will judge it
    shared.refuse_data(profiles or (), "profile", "chunkscope recommend")
    if emit is not None and emit is not Target.JSON:
        if entry not in (None, emit.entry):
            raise UsageError(
                f"--emit {emit} is for --entry {emit.entry}, not {entry}: their defaults differ",
                hint="leave --entry out",
            )
        given["entry"] = emit.entry
    given |= shared.gpu_and_memory(gpu) if gpu else {"gpu": _gpu_here()}
    table = shared.configured("recommend")
    rule = {name: table.pop(name) for name in CUTS if name in table}
    gc.disable()  # simulations make many objects and no rings: a sixth of the time
    with console.simulating() as tick:
        counted = load_profiles(profiles or [PROFILE])
        plan = run(counted, rule=LengthRule(**rule), tick=tick, **{**table, **given})
    several = _files(profiles) if profiles and len(profiles) > 1 else ()
    source = replace(plan.source, command=console.command(), profiles=several)
    plan = replace(plan, source=source)
    if check:
        _check(plan)
    if emit is not None:
        _emit(plan, emit, output, anyway=anyway)
        console.say(f"\nwrote {output}")
    else:
        shared.finish(plan, output=output, as_json=as_json, details=details, after=_next(plan))


def _files(profiles: list[Path]) -> "tuple[ProfileFile, ...]":
    from chunkscope.lengths.profile import Profile
    from chunkscope.planning.plan import ProfileFile

    return tuple(
        ProfileFile(path=str(path), sha256=Profile.load(path).digest()) for path in profiles
    )


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
        return f"vllm serve{shared.quoted(named)}"
    same = shared.quoted(*(word for word in sys.argv[2:] if word not in ("--check", "--details")))
    return f"vllm serve{shared.quoted(named)} $(chunkscope recommend{same} --emit vllm-args)"
