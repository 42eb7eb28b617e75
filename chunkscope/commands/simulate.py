"""`chunkscope simulate`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.vllm.choices import ChunkPolicy, KvCacheType

if TYPE_CHECKING:
    from chunkscope.simulation.result import Simulation


def simulate(
    plan: shared.PlanFile = shared.PLAN,
    profile: shared.ProfileFiles = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Requests of a trace (Mooncake jsonl, Azure csv) or of a verify.json, instead.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Requests come as vLLM's log says, where it says so."),
    ] = None,
    calibration: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Step times that `chunkscope verify` measured; several workloads know more.",
        ),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Instead of the plan's.")
    ] = None,
    long_prefill_token_threshold: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Instead of the plan's; 0 is none.")
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Instead of the plan's.")
    ] = None,
    long_prefill_token_threshold_adaptive: Annotated[
        bool | None, typer.Option(help="No less than a fair share of the budget (vLLM 0.31).")
    ] = None,
    max_num_active_seqs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Fewer at once than places (vLLM 0.31).")
    ] = None,
    data_parallel_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Replicas, instead of the plan's.")
    ] = None,
    kv_cache_dtype: Annotated[
        KvCacheType | None, typer.Option(help="Instead of the plan's.")
    ] = None,
    kv_cache_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Instead of the memory model's.")
    ] = None,
    vllm_version: Annotated[
        str | None, typer.Option(metavar="X.Y", help="Whose rules. [default: the plan's]")
    ] = None,
    policy: Annotated[
        ChunkPolicy, typer.Option(help="How prompts are cut; some are experiments.")
    ] = ChunkPolicy.VLLM,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Budgets from 256 to 65,536, and thresholds.")
    ] = False,
    timeline: Annotated[int, typer.Option(metavar="N", min=0, help="Show the first N steps.")] = 0,
    requests: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many. [default: all]")
    ] = None,
    arrivals: shared.Arrivals = None,
    concurrency: shared.Concurrency = None,
    slo: shared.Limits = None,
    find_rate: Annotated[
        bool,
        typer.Option("--find-rate", help="The highest rate at which each setting keeps --slo."),
    ] = False,
    max_output: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Tokens per answer. [default: the data's]"),
    ] = None,
    shared_prefix: shared.SharedPrefix = None,
    order: shared.SentIn = None,
    seed: shared.Seed = 0,
    as_json: shared.Json = False,
    quiet: shared.Quiet = False,
    output: shared.Output = shared.SIMULATION,
) -> None:
    """Predict what a setting does, without a GPU.

    vLLM's scheduler is followed step by step.

    Example: chunkscope simulate --sweep
    """
    from chunkscope.hardware.calibration import Calibration, together
    from chunkscope.lengths.profile import load_profiles
    from chunkscope.planning.plan import Plan
    from chunkscope.planning.predict import SimulateOptions, predict
    from chunkscope.simulation.slo import read_slo
    from chunkscope.vllm.settings import Settings

    shared.refuse_data((plan,), "plan", "chunkscope recommend")
    made = Plan.load(plan)
    files = shared.profiles_for(plan, made, profile) if trace is None else []
    if log is not None and not profile:  # it may have lengths of its own
        files = [file for file in files if file.exists()]
    with console.sweep_progress(quiet=quiet) as starting:
        simulation = predict(
            made,
            load_profiles(files) if files else None,
            SimulateOptions(
                trace=trace,
                log=log,
                requests=requests,
                arrivals=arrivals,
                seed=seed,
                max_output=max_output,
                shared_prefix=shared_prefix,
                order=order,
                asked=Settings(
                    max_num_batched_tokens=max_num_batched_tokens,
                    long_prefill_token_threshold=long_prefill_token_threshold,
                    max_num_seqs=max_num_seqs,
                    long_prefill_token_threshold_adaptive=long_prefill_token_threshold_adaptive,
                    max_num_active_seqs=max_num_active_seqs,
                    data_parallel_size=data_parallel_size,
                    kv_cache_dtype=kv_cache_dtype and kv_cache_dtype.value,
                ),
                kv_cache_tokens=kv_cache_tokens,
                vllm_version=vllm_version,
                policy=policy,
                sweep=sweep,
                timeline=timeline,
                slo=read_slo(slo),
                concurrency=concurrency,
                find_rate=find_rate,
            ),
            calibration=together([Calibration.load(c) for c in calibration])
            if calibration
            else None,
            starting=starting,
        )
    simulation = replace(simulation, command=console.command())
    simulation.save(output)
    _print(simulation, as_json=as_json)
    console.say(f"\nwrote {output}; next: {_next(plan, profile, sweep=sweep or find_rate)}")


def _print(simulation: "Simulation", *, as_json: bool) -> None:
    if as_json:
        from chunkscope.artefacts.codec import dump

        console.emit(dump(simulation.to_json()))
    else:
        from chunkscope.report.terminal.simulation import show_simulation

        console.show(lambda out: show_simulation(simulation, out))
    for line in simulation.warnings:
        console.say(f"note: {line}")


def _next(plan: Path, profiles: list[Path] | None, *, sweep: bool) -> str:
    words = [] if plan == shared.PLAN else [str(plan)]
    words += [word for file in profiles or () for word in ("--profile", str(file))]
    of_it = f" {shlex.join(words)}" if words else ""
    verify = f"chunkscope verify{of_it}"
    return verify if sweep else f"chunkscope simulate{of_it} --sweep, or {verify}"
