"""`chunkscope simulate`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands import options as opt
from chunkscope.commands.options import FP8_HELP, INPUT, REPORTS, WORKLOAD, group
from chunkscope.vllm.enums import KvCacheType

INSTEAD, FIND = group("Setting (instead of the plan's)"), group("What to find")


def simulate(
    plan: opt.PlanFile = None,
    profile: opt.ProfileFiles = None,
    trace: Annotated[
        Path | None,
        INPUT("Requests of a trace (Mooncake jsonl, Azure csv), a verify.json.", "FILE"),
    ] = None,
    calibration: Annotated[
        list[Path] | None,
        INPUT("Step times that `chunkscope verify` measured; repeatable.", "FILE"),
    ] = None,
    max_num_batched_tokens: Annotated[int | None, INSTEAD("Tokens per step.", "N", min=1)] = None,
    long_prefill_token_threshold: Annotated[
        int | None, INSTEAD("Tokens of one prompt per step; 0 is no limit.", "N", min=0)
    ] = None,
    max_num_seqs: Annotated[int | None, INSTEAD("Requests at once.", "N", min=1)] = None,
    kv_cache_dtype: Annotated[KvCacheType | None, INSTEAD(FP8_HELP)] = None,
    sweep: Annotated[bool, FIND("Compare budgets from 256 to 65,536 tokens.")] = False,
    find_rate: Annotated[
        bool, FIND("The highest request rate at which each setting keeps --slo.")
    ] = False,
    timeline: Annotated[int | None, FIND("Show the first N steps.", "N", min=0)] = None,
    requests: Annotated[int | None, WORKLOAD("[default: all]", "N", min=1)] = None,
    arrivals: opt.Arrivals = None,
    concurrency: opt.Concurrency = None,
    max_output: opt.MaxOutput = None,
    slo: opt.Slo = None,
    details: opt.Details = False,
    json: opt.Json = False,
    output: opt.Output = REPORTS / "simulation.json",
) -> None:
    """Predict what a setting does, without a GPU.

    vLLM's scheduler is followed step by step.
    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope simulate --sweep
    """
    given = opt.typed(locals())
    from chunkscope.planning.predict import SimulateOptions

    options = opt.settled("simulate", api.option_names(SimulateOptions), given)
    options["plan"], profiles = opt.loaded_plan(plan, profile)
    options["profile"] = profiles if trace is None else None
    with console.simulating() as tick:
        simulation = api.simulate(tick=tick, **options)
    simulation = replace(simulation, command=console.command())
    which = opt.quoted(*([plan] if plan else []))
    which += opt.quoted(*(word for file in profile or () for word in ("--profile", file)))
    after = f"chunkscope verify{which}"
    if not (sweep or find_rate):
        after = f"chunkscope simulate{which} --sweep, or {after}"
    opt.finish(simulation, output, details=details, json=json, after=after)
