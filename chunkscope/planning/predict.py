"""A plan, its requests and a step-time model -> the simulation: the function behind `simulate`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

from chunkscope._version import __version__
from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.hardware.calibration import Calibration
from chunkscope.hardware.cost_model import CostTarget, cost_model
from chunkscope.hardware.model_kind import kind_of
from chunkscope.hardware.step_time import model_work
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import LENGTH_POLICY, Plan, assumed_output
from chunkscope.planning.recommend import chosen_datasets, profile_digest
from chunkscope.planning.replay import logged_arrivals
from chunkscope.planning.requests import MOST_REQUESTS
from chunkscope.planning.tokenizer_match import tokenizer_doubt
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.policies import FIXED_THRESHOLD
from chunkscope.simulation.requests import check_requests
from chunkscope.simulation.result import SimulatedRun, Simulation, WorkloadInfo
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.sweep import (
    FEWEST_REQUESTS,
    UNIT_RATE,
    around,
    find_rate,
    knee,
    pareto,
    points,
    run_all,
)
from chunkscope.simulation.traces import Trace, read_trace
from chunkscope.simulation.workload import (
    BATCH,
    Drawing,
    Request,
    arrival_times,
    draw_workload,
    with_shared_prefix,
)
from chunkscope.vllm.choices import ChunkPolicy, SendOrder, Task
from chunkscope.vllm.deployment import OWN, Deployment
from chunkscope.vllm.flags import Release, release
from chunkscope.vllm.rules import rules_of
from chunkscope.vllm.settings import EngineArgs, Settings

_AS_LOGGED = "as in the log"
PLAN, ASKED, DEFAULT = "plan", "asked", "default"
# What vLLM's own setting has in common with the one beside it.
SHARED = (
    "max_model_len",
    "enable_prefix_caching",
    "gpu_memory_utilization",
    "tensor_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "kv_cache_dtype",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """What the command line can say; `asked` goes before the plan's settings."""

    trace: Path | None = None
    log: Path | None = None  # vLLM's: requests come as it says
    requests: int | None = None
    arrivals: str | None = None
    seed: int = 0
    max_output: int | None = None
    shared_prefix: int | None = None  # None: as the data was counted
    order: SendOrder | None = None  # likewise
    asked: Settings = OWN
    kv_cache_tokens: int | None = None
    vllm_version: str | None = None
    policy: ChunkPolicy = ChunkPolicy.VLLM
    sweep: bool = False
    timeline: int = 0
    slo: Slo = ()
    concurrency: int | None = None
    find_rate: bool = False

    @property
    def name(self) -> str:
        """Of the setting that is simulated: the plan's, or the user's own."""
        own = self.asked != OWN or self.policy is not ChunkPolicy.VLLM
        return ASKED if own else PLAN


def predict(
    plan: Plan,
    profile: Profile | None,
    options: SimulateOptions,
    *,
    calibration: Calibration | None = None,
    starting: Callable[[int], Callable[[], None]] = lambda _: lambda: None,
) -> Simulation:
    """Run the plan's setting beside vLLM's own and the length policy's; or a sweep around it.

    `starting` is told how many settings there are, and gives what to call after each.
    """
    there = plan.deployment
    if options.vllm_version:
        there = replace(there, release=release(options.vllm_version))
    settings, lowered = _settings(plan, options, there)
    settings.parallel.check(plan.model)
    cost = cost_model(_target(plan, there.release, settings), calibration)
    if plan.model is not None:
        cost = replace(cost, kind=kind_of(plan.model))
    bench = _Bench(there=there, kv_cache_tokens=options.kv_cache_tokens)
    asked = bench.args(settings)
    if options.find_rate:
        options = _finding_rates(options, asked)
    requests, stretches, info, notes = _requests(plan, profile, options, asked)
    concurrency = options.concurrency or info.concurrency
    scenario = Scenario(
        requests=requests,
        rules=rules_of(there.release),
        step=cost.step,
        stretches=stretches,
        prompt_logprobs=info.task == Task.LOGLIKELIHOOD,
        policy=options.policy,
        concurrency=concurrency,
        slo=options.slo,
    )
    simulation = Simulation(
        cost_model=cost,
        vllm=there.release.text,
        workload=replace(info, concurrency=concurrency),
        runs=(),
        warnings=(
            *cost.warnings,
            *there.unmeasured(settings),
            *there.uncovered(settings),
            *notes,
            *lowered,
        ),
        version=__version__,
    )
    common = Settings.of({name: getattr(settings, name) for name in SHARED})
    if options.sweep:
        named = {options.name: asked, **({DEFAULT: bench.args(common)} if plan.gpu else {})}
        return _swept(simulation, scenario, named, bench, options, starting)
    others = {DEFAULT: common, **({LENGTH_POLICY: plan.rule.over(common)} if plan.rule else {})}
    beside = {name: bench.args(other) for name, other in others.items() if plan.gpu}
    if options.find_rate:
        beside |= {_named(one): bench.args(one) for one in around(asked)}
        rated = {options.name: asked, **beside}
        return _rated(simulation, scenario, rated, starting)
    first = replace(run_setting(scenario, asked, watch=options.timeline), setting=options.name)
    simulation = replace(simulation, runs=(first,))
    scenario = replace(scenario, policy=ChunkPolicy.VLLM)
    for name, args in beside.items():
        simulation = _beside(simulation, scenario, name, args)
    return simulation


def _beside(simulation: Simulation, c: Scenario, name: str, args: EngineArgs) -> Simulation:
    """One more setting; a row of its own unless there is one with the same arguments."""
    runs = simulation.runs
    for place, run in enumerate(runs):
        if run.args == args and run.policy is c.policy:
            named = replace(run, same_as=(*run.same_as, name))
            return replace(simulation, runs=(*runs[:place], named, *runs[place + 1 :]))
    try:
        return replace(simulation, runs=(*runs, replace(run_setting(c, args), setting=name)))
    except InputError as error:
        left_out = f"{name} is left out: {error.message}"
        return replace(simulation, warnings=(*simulation.warnings, left_out))


def _named(settings: Settings) -> str:
    threshold = settings.long_prefill_token_threshold
    capped = f", threshold {threshold:,}" if threshold else ""
    return f"{settings.max_num_batched_tokens:,} tokens a step{capped}"


def _rated(
    simulation: Simulation,
    c: Scenario,
    settings: dict[str, EngineArgs],
    starting: Callable[[int], Callable[[], None]],
) -> Simulation:
    """The highest rate that each sustains; one row for those with the same arguments."""
    taken, left_out = _taken(c, settings)
    names: dict[EngineArgs, tuple[str, ...]] = {}
    for name, args in taken.items():
        names[args] = (*names.get(args, ()), name)
    runs = run_all(c, tuple(names), work=find_rate, advance=starting(len(names)))
    return replace(
        simulation,
        runs=tuple(
            replace(run, setting=names[run.args][0], same_as=names[run.args][1:]) for run in runs
        ),
        workload=replace(simulation.workload, arrivals="at the highest rate of each setting"),
        warnings=(*simulation.warnings, *left_out),
    )


def _taken(c: Scenario, settings: dict[str, EngineArgs]) -> tuple[dict[str, EngineArgs], list[str]]:
    """Those that can serve every request, and a sentence on each of the others."""
    taken, left_out = {}, []
    for name, args in settings.items():
        try:
            check_requests(c.requests, args, c.rules)
        except InputError as error:
            left_out.append(f"{name} is left out: {error.message}")
        else:
            taken[name] = args
    return taken, left_out


def _finding_rates(options: SimulateOptions, args: EngineArgs) -> SimulateOptions:
    """Enough requests that some wait for a place, coming one by one."""
    fixed = {
        "--arrivals": options.arrivals,
        "--concurrency": options.concurrency,
        "--sweep": options.sweep,
        "--timeline": options.timeline,
        "--policy": options.policy is not ChunkPolicy.VLLM,
    }
    for name, given in fixed.items():
        if given:
            raise UsageError(f"--find-rate tries rates of its own: leave {name} out")
    if (options.requests or FEWEST_REQUESTS) < FEWEST_REQUESTS:
        raise UsageError(f"--find-rate needs at least {FEWEST_REQUESTS:,} requests to see a queue")
    count = options.requests or max(FEWEST_REQUESTS, 2 * args.max_num_seqs)
    return replace(options, requests=count, arrivals=UNIT_RATE)


def _swept(
    simulation: Simulation,
    c: Scenario,
    named: dict[str, EngineArgs],
    bench: "_Bench",
    options: SimulateOptions,
    starting: Callable[[int], Callable[[], None]],
) -> Simulation:
    """Budgets and thresholds around what was asked for, and that itself beside vLLM's own."""
    asked = named[options.name]
    around_it = {_named(one): bench.args(one) for one in points(asked)}
    taken, left_out = _taken(c, around_it | named)
    if not taken:
        check_requests(c.requests, asked, c.rules)  # the reason, as an error
    chosen = tuple(dict.fromkeys(taken.values()))
    runs = run_all(c, chosen, advance=starting(len(chosen)))
    if options.timeline:
        watched = run_setting(c, asked, watch=options.timeline)
        runs = (*(run for run in runs if run.args != asked), watched)
    names = {args: [n for n, a in named.items() if a == args] for args in named.values()}
    runs = tuple(_titled(run, names.get(run.args, [])) for run in runs)
    front = pareto(runs)
    return replace(
        simulation,
        runs=runs,
        pareto=front,
        knee=knee(runs, front),
        warnings=(*simulation.warnings, *left_out),
    )


def _titled(run: SimulatedRun, names: list[str]) -> SimulatedRun:
    return replace(run, setting=names[0], same_as=tuple(names[1:])) if names else run


# -- the engine --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """Where settings are tried: larger steps leave less KV cache, unless its size was given."""

    there: Deployment
    kv_cache_tokens: int | None

    def args(self, settings: Settings) -> EngineArgs:
        full = self.there.effective(settings)
        if full.max_num_batched_tokens is None or full.max_num_seqs is None:
            raise MissingError(
                "the plan names no GPU, so vLLM's own budget and number of requests are not known",
                hint="plan for one: `chunkscope recommend --model llama-3.1-8b --gpu h200`",
            )
        return self.there.engine_args(full, kv_cache_tokens=self._tokens(full))

    def _tokens(self, settings: Settings) -> int:
        if self.kv_cache_tokens is not None:
            if self.kv_cache_tokens < 1:
                raise UsageError(
                    f"--kv-cache-tokens must be at least 1, not {self.kv_cache_tokens}"
                )
            return self.kv_cache_tokens
        memory = self.there.memory(settings)
        if memory is None:
            raise MissingError(
                "the plan does not say how large the KV cache is",
                hint="plan for a model and a GPU, or pass --kv-cache-tokens",
            )
        return max(1, memory.kv_cache_tokens)


def _target(plan: Plan, running: Release, settings: Settings) -> CostTarget | None:
    """None where the plan knows no model or no GPU."""
    if plan.model is None or plan.gpu is None:
        return None
    parallel = settings.parallel
    return CostTarget(
        work=model_work(plan.model, parallel.tensor, settings.kv_element_bytes),
        gpu=plan.gpu,
        tp=parallel.tensor,
        vllm=running.text,
        parallel=parallel,
        exchange_s=parallel.exchange_s(plan.model, plan.gpu),
    )


def _settings(
    plan: Plan, options: SimulateOptions, there: Deployment
) -> tuple[Settings, tuple[str, ...]]:
    """The plan's settings with what was asked for instead, and what had to follow from that."""
    asked, notes = options.asked, []
    settings = asked.over(plan.settings)
    budget = asked.max_num_batched_tokens
    if budget is not None:
        before = there.effective(plan.settings)
        if settings.enable_chunked_prefill is False and budget < (before.max_model_len or 0):
            # Smaller than the longest request: then off is off.
            settings = replace(settings, enable_chunked_prefill=None)
        if asked.max_num_seqs is None and (before.max_num_seqs or 0) > budget:
            settings = replace(settings, max_num_seqs=budget)
            notes.append(f"max_num_seqs is lowered to {budget:,}, the budget, as vLLM does")
    if options.policy is ChunkPolicy.FIXED and not settings.long_prefill_token_threshold:
        settings = replace(settings, long_prefill_token_threshold=FIXED_THRESHOLD)
    return settings, tuple(notes)


# -- the requests ------------------------------------------------------------------------------

_Sent = tuple[tuple[Request, ...], tuple[Stretch, ...], WorkloadInfo, tuple[str, ...]]


def _requests(
    plan: Plan, profile: Profile | None, options: SimulateOptions, args: EngineArgs
) -> _Sent:
    if options.requests is not None and options.requests < 1:
        raise UsageError(f"--requests must be at least 1, not {options.requests}")
    if options.trace is not None and options.log is not None:
        raise UsageError("--trace and --log both say when requests come: leave one out")
    if options.trace is not None:
        _refuse_order(options)
        return _of_trace(read_trace(options.trace), options.trace, plan, options, args)
    if options.log is not None:
        return _of_log(options.log, plan, profile, options, args)
    return _of_profile(plan, profile, options, args)


def _refuse_order(options: SimulateOptions) -> None:
    if options.order is not None:
        raise UsageError(
            f"--order {options.order.value} is for the requests of a profile: a trace has its own",
            hint="leave out --order or --trace",
        )


def _of_log(
    path: Path, plan: Plan, profile: Profile | None, options: SimulateOptions, args: EngineArgs
) -> _Sent:
    """With the log's lengths where it has them, else with the profile's."""
    times, trace, said = logged_arrivals(path)
    if trace is not None:
        requests, stretches, info, notes = _of_trace(trace, path, plan, options, args)
        return requests, stretches, info, (*said, *notes)
    count = min(options.requests or len(times), len(times))
    options = replace(options, requests=count)
    requests, stretches, info, notes = _of_profile(plan, profile, options, args)
    if options.arrivals is None:
        timed = zip(requests, times, strict=False)
        requests = tuple(replace(request, arrival_s=time) for request, time in timed)
        info = replace(info, arrivals=_AS_LOGGED)
    return requests, stretches, info, (*said, "their lengths are the profile's", *notes)


def _of_trace(
    trace: Trace, path: Path, plan: Plan, options: SimulateOptions, args: EngineArgs
) -> _Sent:
    _refuse_order(options)
    found = trace.requests[: options.requests]
    limit = args.max_model_len
    fitting = [r for r in found if limit is None or r.prompt_tokens + r.output_tokens <= limit]
    if not fitting:
        raise InputError(
            f"no request of {path} fits max_model_len ({limit:,})",
            hint="plan for the lengths of the trace: `chunkscope analyze` it first",
        )
    notes = list(trace.notes)
    if len(fitting) < len(found):
        notes.append(
            f"{len(found) - len(fitting):,} of {len(found):,} requests of the trace are longer "
            f"than max_model_len ({limit:,}) and left out"
        )
    if options.find_rate:  # a short trace once more, and again
        fitting = list(islice(cycle(fitting), options.requests))
    if options.arrivals is not None:
        fitting = _arriving(fitting, options.arrivals, options.seed)
    requests = tuple(fitting)
    asked, stretches = options.shared_prefix, trace.stretches
    if asked is not None:
        requests, stretches = with_shared_prefix(fitting, asked)
    info = WorkloadInfo(
        source=str(path),
        requests=len(fitting),
        seed=options.seed if options.arrivals is not None else None,
        arrivals=options.arrivals or (_AS_LOGGED if options.log else "as in the trace"),
        task=(trace.task or plan.inputs.task).value,
        shared_prefix=trace.shared_prefix if asked is None else asked,
        left_out=len(found) - len(fitting),
        concurrency=None if options.find_rate else trace.concurrency,
    )
    return requests, stretches, info, tuple(notes)


def _arriving(requests: list[Request], arrivals: str, seed: int) -> list[Request]:
    import random

    times = arrival_times(arrivals, len(requests), random.Random(seed))  # noqa: S311
    return [replace(r, arrival_s=time) for r, time in zip(requests, times, strict=True)]


def _of_profile(
    plan: Plan, profile: Profile | None, options: SimulateOptions, args: EngineArgs
) -> _Sent:
    if profile is None:
        raise InputError(
            "there is no profile to draw requests from", hint="count the data: `chunkscope analyze`"
        )
    datasets = chosen_datasets(profile, plan.inputs.dataset)
    prompts = sum(dataset.rows for dataset in datasets)
    count = options.requests or (MOST_REQUESTS if prompts > MOST_REQUESTS else None)
    shared = plan.inputs.shared_prefix if options.shared_prefix is None else options.shared_prefix
    workload = draw_workload(
        datasets,
        Drawing(
            count=count,
            room=args.max_model_len or 1 << 30,
            output=options.max_output,
            output_if_unknown=plan.inputs.output.tokens,
            seed=options.seed,
            arrivals=options.arrivals or BATCH,
            task=plan.inputs.task,
            shared_prefix=shared,
            order=options.order or plan.inputs.order,
        ),
    )
    info = WorkloadInfo(
        source="the profile",
        profile_digest=profile_digest(profile),
        requests=len(workload.requests),
        seed=workload.seed,
        arrivals=workload.arrivals,
        task=workload.task.value,
        shared_prefix=workload.shared_prefix,
        left_out=workload.left_out,
        order=workload.order,
    )
    notes = _profile_notes(plan, profile, workload.left_out)
    if plan.inputs.output.assumed and options.max_output is None:
        notes.append(assumed_output(plan.inputs.output.tokens))
    return workload.requests, workload.stretches, info, tuple(notes)


def _profile_notes(plan: Plan, profile: Profile, left_out: int) -> list[str]:
    notes = []
    if profile_digest(profile) != plan.inputs.profile_digest:
        notes.append("the profile is not the one that the plan was made from")
        if plan.model and (doubt := tokenizer_doubt(profile.tokenizer, plan.model)):
            notes.append(doubt)
    if left_out:
        notes.append(f"{left_out:,} prompts are longer than max_model_len allows and left out")
    return notes
