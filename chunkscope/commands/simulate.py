"""`chunkscope simulate`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.commands.options import options
from chunkscope.vllm.enums import KvCacheType

OPTIONS = options("""
Input:
  --trace FILE                      Requests of a trace (Mooncake jsonl, Azure csv), a verify.json.
  --calibration FILE                Step times that `chunkscope verify` measured; repeatable.
Setting (instead of the plan's):
  --max-num-batched-tokens N        Tokens per step.
  --long-prefill-token-threshold N  Tokens of one prompt per step; 0 is no limit.
  --max-num-seqs N                  Requests at once.
  --kv-cache-dtype                  fp8 holds twice as many tokens.
What to find:
  --sweep                           Compare budgets from 256 to 65,536 tokens.
  --find-rate                       The highest request rate at which each setting keeps --slo.
  --timeline N                      Show the first N steps.
Workload:
  --requests N                      [default: all]
""")


def simulate(
    plan: shared.PlanFile = shared.PLAN,
    profile: shared.ProfileFiles = None,
    trace: Annotated[Path | None, OPTIONS["trace"]] = None,
    calibration: Annotated[list[Path] | None, OPTIONS["calibration"]] = None,
    max_num_batched_tokens: Annotated[int | None, OPTIONS["max_num_batched_tokens"]] = None,
    long_prefill_token_threshold: Annotated[
        int | None, OPTIONS["long_prefill_token_threshold"]
    ] = None,
    max_num_seqs: Annotated[int | None, OPTIONS["max_num_seqs"]] = None,
    kv_cache_dtype: Annotated[KvCacheType | None, OPTIONS["kv_cache_dtype"]] = None,
    sweep: Annotated[bool, OPTIONS["sweep"]] = False,
    find_rate: Annotated[bool, OPTIONS["find_rate"]] = False,
    timeline: Annotated[int, OPTIONS["timeline"]] = 0,
    requests: Annotated[int | None, OPTIONS["requests"]] = None,
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
    given = locals()
    from chunkscope.hardware.calibration import Calibration, together
    from chunkscope.lengths.profile import load_profiles
    from chunkscope.planning.plan import Plan
    from chunkscope.planning.predict import SimulateOptions, predict
    from chunkscope.simulation.slo import read_slo
    from chunkscope.vllm.settings import NAMES, Settings

    shared.refuse_data((plan,), "plan", "chunkscope recommend")
    planned = Plan.load(plan)
    files = shared.profiles_for(plan, planned, profile) if trace is None else []
    given["asked"] = Settings.of({n: given[n] for n in NAMES if given.get(n) is not None})
    given |= {"slo": read_slo(slo) or None, "timeline": timeline or None}
    with console.simulating() as tick:
        simulation = predict(
            planned,
            load_profiles(files) if files else None,
            shared.settled(SimulateOptions, "simulate", given),
            calibration=together([Calibration.load(c) for c in calibration])
            if calibration
            else None,
            starting=lambda _: tick,
        )
    simulation = replace(simulation, command=console.command())
    which = shared.quoted(*([] if plan == shared.PLAN else [plan]))
    which += shared.quoted(*(word for file in profile or () for word in ("--profile", file)))
    verify = f"chunkscope verify{which}"
    after = verify if sweep or find_rate else f"chunkscope simulate{which} --sweep, or {verify}"
    shared.finish(simulation, output=output, as_json=as_json, details=details, after=after)
