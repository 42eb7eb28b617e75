"""`chunkscope recommend`."""

import gc
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chunkscope import console
from chunkscope.commands import options
from chunkscope.commands.options import PLAN, PROFILE, MaxOutput, Output, SharedCache
from chunkscope.errors import EngineError, MissingError
from chunkscope.vllm.choices import Basis, Entry, KvCacheType, Mode, Objective, Target, Task

if TYPE_CHECKING:
    from chunkscope.hardware.gpus import Gpu
    from chunkscope.planning.plan import Plan, ProfileFile


def recommend(
    profiles: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PROFILE]...",
            help="What `chunkscope analyze` wrote; several are sent together. "
            f"[default: {PROFILE}]",
        ),
    ] = None,
    model: Annotated[
        str | None,
        options.model_option(options.MODEL_HELP),
    ] = None,
    gpu: options.GpuName = None,
    gpu_memory: options.GpuMemory = None,
    tp: options.Parallel = 1,
    dp: options.Replicas = 1,
    ep: options.ByExpert = False,
    kv_cache_dtype: options.KvCacheKind = KvCacheType.AUTO,
    vllm_version: options.VllmVersion = None,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="vLLM's log of it: measured, not predicted."),
    ] = None,
    policy: Annotated[
        Basis, typer.Option(help="Set what is predicted to pay, or what the length rule says.")
    ] = Basis.EVIDENCE,
    mode: Annotated[
        Mode | None, typer.Option(help="Set this mode of the length rule, whatever it brings.")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="[default: the model's, if it fits]")
    ] = None,
    shared_prefix: options.SharedPrefix = None,
    order: options.SentIn = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plan for this dataset alone.")
    ] = None,
    objective: Annotated[Objective, typer.Option(help="What to aim for.")] = Objective.THROUGHPUT,
    max_itl_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="Longest step, with --objective latency.")
    ] = None,
    slo: options.Limits = None,
    arrivals: options.Arrivals = None,
    concurrency: options.Concurrency = None,
    task: options.AskedTask = Task.GENERATE,
    max_output: MaxOutput = None,
    price_per_hour: Annotated[
        float | None, typer.Option(metavar="MONEY", help="Of one GPU: what the run will cost.")
    ] = None,
    entry: Annotated[
        Entry | None,
        typer.Option(help="How vLLM is started: its defaults differ. [default: as --emit needs]"),
    ] = None,
    off_below: Annotated[
        int, typer.Option(metavar="N", help="Off if the longest prompt is shorter.")
    ] = 1000,
    conservative_threshold: Annotated[
        int, typer.Option(metavar="N", help="Conservative if p95 is below.")
    ] = 2048,
    aggressive_factor: Annotated[
        float, typer.Option(metavar="F", help="Aggressive threshold, as a share of p95.")
    ] = 0.8,
    emit: Annotated[
        Target | None,
        typer.Option(
            metavar="FORM",
            help=f"Print only the arguments, in this form: {', '.join(Target)}.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Ask the installed vLLM whether it accepts the arguments."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    output: Output = PLAN,
    _shared_cache: SharedCache = None,
) -> None:
    """Choose a chunking mode and the exact vLLM arguments.

    Example: chunkscope recommend --model llama-3.1-8b --gpu h200
    """
    from chunkscope.lengths.profile import load_profiles
    from chunkscope.planning.policy import Cuts
    from chunkscope.planning.recommend import recommend as run

    if check and vllm_version is None:
        from chunkscope.vllm.check import version_in, vllm_python

        vllm_version = version_in(vllm_python())  # a plan for the vLLM that will judge it
    options.refuse_data(profiles or (), "profile", "chunkscope recommend")
    gc.disable()  # simulations make many objects and no rings: a sixth of the time
    plan = run(
        load_profiles(profiles or [PROFILE]),
        model=model,
        gpu=gpu or (_gpu_here() if gpu_memory is None else None),
        gpu_memory=gpu_memory,
        tp=tp,
        dp=dp,
        ep=ep,
        kv_cache_dtype=kv_cache_dtype,
        vllm_version=vllm_version,
        policy=policy,
        mode=mode,
        max_model_len=max_model_len,
        shared_prefix=shared_prefix,
        order=order,
        cuts=Cuts(
            off_below=off_below,
            conservative_threshold=conservative_threshold,
            aggressive_factor=aggressive_factor,
        ),
        dataset=dataset,
        objective=objective,
        max_itl_ms=max_itl_ms,
        task=task,
        max_output=max_output,
        entry=entry or (emit.entry if emit else Entry.SERVE),
        price_per_hour=price_per_hour,
        slo=slo,
        arrivals=arrivals,
        concurrency=concurrency,
        log=log,
    )
    several = _files(profiles) if profiles and len(profiles) > 1 else ()
    inputs = replace(plan.inputs, command=console.command(), profiles=several)
    plan = replace(plan, inputs=inputs)
    if check:
        _check(plan)
    plan.save(output)
    _print(plan, emit, as_json=as_json)
    console.say(f"\nwrote {output}" + ("" if emit else f"; next: {_next(plan)}"))


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


def _print(plan: "Plan", target: Target | None, *, as_json: bool) -> None:
    if target is not None:
        from chunkscope.planning.emit import emit

        emission = emit(plan, target)
        console.emit(emission.text.rstrip("\n").encode() + b"\n")
        for line in (*emission.lost, *emission.notes, *_shortened(plan), *plan.warnings):
            console.say(f"note: {line}")
        return
    if as_json:
        from chunkscope.artefacts.codec import dump

        console.emit(dump(plan.to_json()))
    else:
        from chunkscope.report.terminal.plan import show_plan

        console.show(lambda out: show_plan(plan, out))
    for line in (*plan.lost, *plan.warnings):
        console.say(f"note: {line}")


def _shortened(plan: "Plan") -> tuple[str, ...]:
    """What a context that is set or too short does to answers, where nothing else says it."""
    from chunkscope.report.sentences import refused

    said = refused(plan) if plan.refused.prompts or plan.settings.max_model_len else None
    return (said.rstrip("."),) if said else ()


def _next(plan: "Plan") -> str:
    named = plan.model.load_name if plan.model else "MODEL"
    same = shlex.join(word for word in sys.argv[2:] if word != "--check")
    return (
        f"vllm serve {shlex.quote(named)} $(chunkscope recommend {same} --emit vllm-args)".replace(
            "  ", " "
        )
    )
