"""`chunkscope simulate`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.commands.options import option
from chunkscope.vllm.enums import KvCacheType


def simulate(
    plan: shared.PlanFile = shared.PLAN,
    profile: shared.ProfileFiles = None,
    trace: Annotated[
        Path | None,
        option(
            "--trace",
            group="Input",
            metavar="FILE",
            help="Requests of a trace (Mooncake jsonl, Azure csv) or of a verify.json, instead.",
        ),
    ] = None,
    calibration: Annotated[
        list[Path] | None,
        option(
            "--calibration",
            group="Input",
            metavar="FILE",
            help="Step times that `chunkscope verify` measured; repeatable.",
        ),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        option(
            "--max-num-batched-tokens",
            group="Setting (instead of the plan's)",
            metavar="N",
            min=1,
            help="Tokens per step.",
        ),
    ] = None,
    long_prefill_token_threshold: Annotated[
        int | None,
        option(
            "--long-prefill-token-threshold",
            group="Setting (instead of the plan's)",
            metavar="N",
            min=0,
            help="Tokens of one prompt per step; 0 is no limit.",
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        option(
            "--max-num-seqs",
            group="Setting (instead of the plan's)",
            metavar="N",
            min=1,
            help="Requests at once.",
        ),
    ] = None,
    kv_cache_dtype: Annotated[
        KvCacheType | None,
        option("--kv-cache-dtype", group="Setting (instead of the plan's)"),
    ] = None,
    sweep: Annotated[
        bool,
        option("--sweep", group="What to find", help="Compare budgets from 256 to 65,536 tokens."),
    ] = False,
    find_rate: Annotated[
        bool,
        option(
            "--find-rate",
            group="What to find",
            help="The highest request rate at which each setting keeps --slo.",
        ),
    ] = False,
    timeline: Annotated[
        int,
        option(
            "--timeline", group="What to find", metavar="N", min=0, help="Show the first N steps."
        ),
    ] = 0,
    requests: Annotated[
        int | None,
        option("--requests", group="Workload", metavar="N", min=1, help="[default: all]"),
    ] = None,
    arrivals: shared.Arrivals = None,
    concurrency: shared.Concurrency = None,
    max_output: shared.MaxOutput = None,
    slo: shared.Slo = None,
    details: shared.Details = False,
    as_json: shared.Json = False,
    output: shared.Output = shared.SIMULATION,
) -> None:
    """Predict what a setting does, without a GPU.

    vLLM's scheduler is followed step by step.
    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope simulate --sweep
    """
    from chunkscope.hardware.calibration import Calibration, together
    from chunkscope.lengths.profile import load_profiles
    from chunkscope.planning.plan import Plan
    from chunkscope.planning.predict import SimulateOptions, predict
    from chunkscope.simulation.slo import read_slo
    from chunkscope.vllm.settings import Settings

    shared.refuse_data((plan,), "plan", "chunkscope recommend")
    planned = Plan.load(plan)
    files = shared.profiles_for(plan, planned, profile) if trace is None else []
    given = {
        "trace": trace,
        "requests": requests,
        "arrivals": arrivals,
        "max_output": max_output,
        "asked": Settings(
            max_num_batched_tokens=max_num_batched_tokens,
            long_prefill_token_threshold=long_prefill_token_threshold,
            max_num_seqs=max_num_seqs,
            kv_cache_dtype=kv_cache_dtype and kv_cache_dtype.value,
        ),
        "sweep": sweep,
        "timeline": timeline or None,
        "slo": read_slo(slo) or None,
        "concurrency": concurrency,
        "find_rate": find_rate,
    }
    with console.sweep_progress(quiet=False) as starting:
        simulation = predict(
            planned,
            load_profiles(files) if files else None,
            shared.settled(SimulateOptions, "simulate", given),
            calibration=together([Calibration.load(c) for c in calibration])
            if calibration
            else None,
            starting=starting,
        )
    simulation = replace(simulation, command=console.command())
    which = shared.quoted(*([] if plan == shared.PLAN else [plan]))
    which += shared.quoted(*(word for file in profile or () for word in ("--profile", file)))
    verify = f"chunkscope verify{which}"
    after = verify if sweep or find_rate else f"chunkscope simulate{which} --sweep, or {verify}"
    shared.finish(simulation, output=output, as_json=as_json, details=details, after=after)
