"""`chunkscope simulate`."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands import options as opt
from chunkscope.commands.options import INPUT, REPORTS, WORKLOAD, group
from chunkscope.vllm.enums import KvCacheType

INSTEAD, FIND = group("Setting (instead of the plan's)"), group("What to find")


def simulate(
    plan: Path | None = opt.PLAN_FILE,
    profile: list[Path] | None = opt.PROFILE_FILES,
    trace: Path | None = INPUT(
        "Requests of a trace: Mooncake jsonl or a verify.json.", "FILE"
    ),
    calibration: list[Path] | None = INPUT(
        "Step times that `chunkscope verify` measured; repeatable.", "FILE"
    ),
    max_num_batched_tokens: int | None = INSTEAD("Tokens per step.", "N", min=1),
    long_prefill_token_threshold: int | None = INSTEAD(
        "Tokens of one prompt per step; 0 is no limit.", "N", min=0
    ),
    max_num_seqs: int | None = INSTEAD("Requests at once.", "N", min=1),
    kv_cache_dtype: KvCacheType | None = INSTEAD(opt.FP8_HELP),
    sweep: bool = FIND("Compare budgets from 256 to 65,536 tokens.", default=False),
    find_rate: bool = FIND(
        "The highest request rate at which each setting keeps --slo.", default=False
    ),
    timeline: int | None = FIND("Show the first N steps.", "N", min=0),
    requests: int | None = WORKLOAD("How many are sent. [default: all]", "N", min=1),
    arrivals: str | None = opt.ARRIVALS,
    concurrency: int | None = opt.CONCURRENCY,
    max_output: int | None = opt.MAX_OUTPUT,
    slo: str | None = opt.SLO,
    details: bool = opt.DETAILS,
    json: bool = opt.JSON,
    output: Path = opt.output(REPORTS / "simulation.json"),
) -> None:
    """Predict what a setting does, without a GPU.

    Runs the requests through a copy of vLLM's scheduler, step by step.
    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope simulate --sweep
    """
    given = locals()
    from chunkscope.planning.plan import Plan
    from chunkscope.planning.predict import SimulateOptions

    options = opt.settled(simulate, given, SimulateOptions)
    with console.simulating() as tick:
        simulation = replace(
            api.simulate(tick=tick, **options), command=console.command()
        )
    files = [word for file in profile or () for word in ("--profile", file)]
    which = opt.quoted(*filter(None, [plan]), *files)
    after = (
        f"chunkscope verify{which}" if sweep else f"chunkscope simulate{which} --sweep"
    )
    rates = [run.rate.rate_per_s or 0.0 for run in simulation.runs if run.rate]
    if rate := max(rates, default=0.0):
        asked, limits = (
            shlex.join(Plan.load(plan).source.command),
            ["--slo", slo] if slo else [],
        )
        old = rf" --(?:arrivals|concurrency{'|slo' * bool(slo)})[= ]('[^']*'|\S+)"
        after = f"{re.sub(old, '', asked)} --arrivals {rate:.3g}/s{opt.quoted(*limits)}"
    opt.finish(simulation, output, details=details, json=json, after=after)
