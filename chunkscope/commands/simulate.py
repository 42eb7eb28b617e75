"""`chunkscope simulate`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands.options import (
    INPUT,
    KV_CACHE_TEXT,
    MACHINE,
    PROFILE,
    REPORTS,
    SETTING,
    Arrivals,
    Concurrency,
    Details,
    E2eTimeout,
    Json,
    MaxOutput,
    Out,
    Output,
    PlanFile,
    ProfileFiles,
    Requests,
    Samples,
    SamplesAtOnce,
    Slo,
    Together,
    option,
)
from chunkscope.commands.printing import command_line, say_written, show
from chunkscope.vllm.enums import ChunkPolicy, KvCacheType

if TYPE_CHECKING:
    from chunkscope.planning.plan import Plan
    from chunkscope.simulation.result import Simulation

INSTEAD = f"{SETTING} (instead of the plan's)"
FIND = "What to find"


def simulate(
    plan: PlanFile = None,
    profile: ProfileFiles = None,
    trace: Annotated[
        Path | None,
        option(
            INPUT,
            "Requests of a trace: Mooncake's jsonl, or a verify.json.",
            "--trace",
            metavar="FILE",
        ),
    ] = None,
    calibration: Annotated[
        list[Path] | None,
        option(
            INPUT,
            "Step times that `chunkscope verify` measured; repeatable.",
            "--calibration",
            metavar="FILE",
        ),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        option(
            INSTEAD, "Tokens per step.", "--max-num-batched-tokens", metavar="N", min=1
        ),
    ] = None,
    long_prefill_token_threshold: Annotated[
        int | None,
        option(
            INSTEAD,
            "Tokens of one prompt per step; 0 is no limit.",
            "--long-prefill-token-threshold",
            metavar="N",
            min=0,
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        option(INSTEAD, "Requests at once.", "--max-num-seqs", metavar="N", min=1),
    ] = None,
    kv_cache_dtype: Annotated[
        KvCacheType | None, option(INSTEAD, KV_CACHE_TEXT, "--kv-cache-dtype")
    ] = None,
    policy: Annotated[
        ChunkPolicy,
        option(
            INSTEAD,
            "How prompts are cut; vLLM itself cannot do by-length and adaptive.",
            "--policy",
        ),
    ] = ChunkPolicy.VLLM,
    vllm_version: Annotated[
        str | None,
        option(
            MACHINE,
            "Version of vLLM. [default: the plan's]",
            "--vllm-version",
            metavar="X.Y",
        ),
    ] = None,
    sweep: Annotated[
        bool, option(FIND, "Compare budgets from 256 to 65,536 tokens.", "--sweep")
    ] = False,
    find_rate: Annotated[
        bool,
        option(
            FIND,
            "The highest request rate at which each setting keeps --slo.",
            "--find-rate",
        ),
    ] = False,
    timeline: Annotated[
        int, option(FIND, "Show the first N steps.", "--timeline", metavar="N", min=0)
    ] = 0,
    requests: Requests = None,
    arrivals: Arrivals = None,
    concurrency: Concurrency = None,
    max_output: MaxOutput = None,
    output: Output = None,
    samples: Samples = None,
    samples_at_once: SamplesAtOnce = None,
    together: Together = False,
    e2e_timeout: E2eTimeout = None,
    slo: Slo = None,
    details: Details = False,
    json: Json = False,
    out: Out = REPORTS / "simulation.json",
) -> None:
    """Predict what a setting does, without a GPU.

    Runs the requests through a copy of vLLM's scheduler, step by step.

    Example: chunkscope simulate --sweep
    """
    from chunkscope.planning.plan import Plan

    with console.simulating() as tick:
        simulation = api.simulate(
            plan,
            profile or None,
            trace=trace,
            calibration=calibration or (),
            max_num_batched_tokens=max_num_batched_tokens,
            long_prefill_token_threshold=long_prefill_token_threshold,
            max_num_seqs=max_num_seqs,
            kv_cache_dtype=kv_cache_dtype,
            vllm_version=vllm_version,
            policy=policy,
            sweep=sweep,
            find_rate=find_rate,
            timeline=timeline,
            requests=requests,
            arrivals=arrivals,
            concurrency=concurrency,
            max_output=max_output,
            output=output,
            samples=samples,
            samples_at_once=samples_at_once,
            together=together,
            e2e_timeout=e2e_timeout,
            slo=slo,
            tick=tick,
        )
    simulation = replace(simulation, command=console.command())
    simulation.save(out)
    show(simulation, details=details, json=json)
    words = []
    if plan is not None:
        words.append(str(plan))
    for file in profile or ():
        words += ["--profile", str(file)]
    say_written(out, then=next_command(Plan.load(plan), simulation, words, slo))


def next_command(
    plan: "Plan", simulation: "Simulation", files: Sequence[str], slo: str | None
) -> str:
    """After a sweep measure, else sweep; after --find-rate plan for the rate."""
    rates = []
    for run in simulation.runs:
        if run.rate is not None and run.rate.rate_per_s is not None:
            rates.append(run.rate.rate_per_s)
    if rates:
        return plan_at_rate(plan, max(rates), slo)
    if simulation.is_sweep:
        return command_line("verify", *files)
    return command_line("simulate", *files, "--sweep")


def plan_at_rate(plan: "Plan", rate: float, slo: str | None) -> str:
    """The command that plans for this rate, on the plan's machine."""
    words: list[object] = ["recommend", *plan.source.profiles]
    if plan.source.profiles == (str(PROFILE),):
        words = ["recommend"]
    if plan.model is not None:
        words += ["--model", plan.model.load_name]
    if plan.gpu is not None:
        words += ["--gpu", plan.gpu.name]
    parallel = plan.settings.parallel
    if parallel.tensor > 1:
        words += ["--tp", parallel.tensor]
    if parallel.data > 1:
        words += ["--dp", parallel.data]
    if slo is None:
        limits = [f"{limit.name}={limit.seconds:g}s" for limit in plan.request.slo]
        slo = ",".join(limits)
    return command_line(*words, "--slo", slo, "--arrivals", f"{rate:.3g}/s")
