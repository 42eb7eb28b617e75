"""`chunkscope simulate`."""

from dataclasses import replace

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands.options import (
    REPORTS,
    Given,
    command,
    finish,
    loaded_plan,
    quoted,
    settled,
)


@command("""
Arguments:
  [PLAN]                            From `chunkscope recommend`.
Input:
  --profile
  --trace FILE                      Requests of a trace (Mooncake jsonl, Azure csv), a verify.json.
  --calibration FILE...             Step times that `chunkscope verify` measured; repeatable.
Setting (instead of the plan's):
  --max-num-batched-tokens N        Tokens per step.
  --long-prefill-token-threshold N  Tokens of one prompt per step; 0 is no limit.
  --max-num-seqs N                  Requests at once.
  --kv-cache-dtype
What to find:
  --sweep                           Compare budgets from 256 to 65,536 tokens.
  --find-rate                       The highest request rate at which each setting keeps --slo.
  --timeline N                      Show the first N steps.
Workload:
  --requests N                      [default: all]
  --arrivals --concurrency --max-output
Limits:
  --slo
Output:
  --details --json --output
""")
def simulate(given: Given) -> None:
    """Predict what a setting does, without a GPU.

    vLLM's scheduler is followed step by step.
    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope simulate --sweep
    """
    from chunkscope.planning.predict import SimulateOptions

    options = settled("simulate", api.option_names(SimulateOptions), given)
    options["plan"], profiles = loaded_plan(given)
    options["profile"] = profiles if given.trace is None else None
    with console.simulating() as tick:
        simulation = api.simulate(tick=tick, **options)
    simulation = replace(simulation, command=console.command())
    which = quoted(*([given.plan] if given.plan else []))
    which += quoted(*(word for file in given.profile or () for word in ("--profile", file)))
    after = f"chunkscope verify{which}"
    if not (given.sweep or given.find_rate):
        after = f"chunkscope simulate{which} --sweep, or {after}"
    finish(simulation, given, REPORTS / "simulation.json", after=after)
