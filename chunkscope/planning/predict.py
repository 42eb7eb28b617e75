"""A plan, its requests and a step-time model -> the simulation: the function behind `simulate`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from chunkscope._version import __version__
from chunkscope.costs.calibration import Calibration
from chunkscope.costs.cost_model import CostTarget, cost_model
from chunkscope.costs.gpus import GIB
from chunkscope.costs.step_time import ModelWork
from chunkscope.engine.choices import ChunkPolicy, Task
from chunkscope.engine.flags import Release, release
from chunkscope.engine.rules import rules_of
from chunkscope.engine.settings import EngineArgs
from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.recommend import chosen_datasets, profile_digest
from chunkscope.simulation.loop import Circumstances, run_setting
from chunkscope.simulation.policies import FIXED_THRESHOLD
from chunkscope.simulation.result import Simulation, WorkloadInfo
from chunkscope.simulation.sweep import knee, pareto, run_all, settings
from chunkscope.simulation.trace import read_trace
from chunkscope.simulation.workload import BATCH, Drawing, Request, arrival_times, draw_workload

# A profile may hold millions of prompts; so many show what a setting does.
MOST_REQUESTS = 20_000
PLAN, ASKED, DEFAULT = "plan", "asked", "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """What the command line can say; None is the plan's, or vLLM's own."""

    trace: Path | None = None
    requests: int | None = None
    arrivals: str | None = None
    seed: int = 0
    max_output: int | None = None
    shared_prefix: int = 0
    max_num_batched_tokens: int | None = None
    long_prefill_token_threshold: int | None = None
    max_num_seqs: int | None = None
    kv_cache_tokens: int | None = None
    vllm_version: str | None = None
    policy: ChunkPolicy = ChunkPolicy.VLLM
    sweep: bool = False
    timeline: int = 0

    @property
    def is_own_setting(self) -> bool:
        """Is it something other than the plan's?"""
        given = (self.max_num_batched_tokens, self.long_prefill_token_threshold, self.max_num_seqs)
        return any(value is not None for value in given) or self.policy is not ChunkPolicy.VLLM


def predict(
    plan: Plan,
    profile: Profile | None,
    options: SimulateOptions,
    *,
    calibration: Calibration | None = None,
    starting: Callable[[int], Callable[[], None]] = lambda _: lambda: None,
) -> Simulation:
    """Run the plan's setting, and vLLM's own beside it; or a sweep around it.

    `starting` is told how many settings there are, and gives what to call after each.
    """
    running = release(options.vllm_version or plan.release.text)
    cost = cost_model(_target(plan, running), calibration)
    asked = _args(plan, options, running)
    requests, info, notes = _requests(plan, profile, options, asked)
    circumstances = Circumstances(
        requests=requests,
        rules=rules_of(running),
        step=cost.step,
        shared_prefix=info.shared_prefix,
        prompt_logprobs=info.task == Task.LOGLIKELIHOOD,
        policy=options.policy,
    )
    warnings = (*cost.warnings, *notes, *_lowered(options, asked))
    simulation = Simulation(
        cost_model=cost,
        vllm=running.text,
        workload=info,
        runs=(),
        warnings=warnings,
        version=__version__,
    )
    if options.sweep:
        return _swept(simulation, circumstances, asked, plan, options, starting)
    return _beside_default(simulation, circumstances, asked, plan, options)


def _beside_default(
    simulation: Simulation,
    c: Circumstances,
    asked: EngineArgs,
    plan: Plan,
    options: SimulateOptions,
) -> Simulation:
    name = ASKED if options.is_own_setting else PLAN
    runs = [replace(run_setting(c, asked, watch=options.timeline), setting=name)]
    default = _default(plan, asked, options)
    if default is not None and (default != asked or c.policy is not ChunkPolicy.VLLM):
        plain = replace(c, policy=ChunkPolicy.VLLM)
        runs.append(replace(run_setting(plain, default), setting=DEFAULT))
    return replace(simulation, runs=tuple(runs))


def _swept(
    simulation: Simulation,
    c: Circumstances,
    asked: EngineArgs,
    plan: Plan,
    options: SimulateOptions,
    starting: Callable[[int], Callable[[], None]],
) -> Simulation:
    chosen = tuple(settings(asked, _kv_cache_tokens(plan, options)))
    runs = run_all(c, chosen, advance=starting(len(chosen)))
    if options.timeline:
        watched = run_setting(c, asked, watch=options.timeline)
        others = (run for run in runs if run.args != watched.args)
        runs = (*others, replace(watched, setting=PLAN))
    front = pareto(runs)
    return replace(simulation, runs=runs, pareto=front, knee=knee(runs, front))


# -- the engine --------------------------------------------------------------------------------


def _target(plan: Plan, running: Release) -> CostTarget | None:
    """None where the plan knows no model or no GPU."""
    model, gpu = plan.model, plan.gpu
    if model is None or gpu is None:
        return None
    if model.read_bytes is None or model.active_parameters is None or model.pair_flops is None:
        raise InputError(
            "the plan was made by an older chunkscope, which did not note what a step reads",
            hint=f"make it again: `{Plan.made_by}`",
        )
    return CostTarget(
        model=model.name,
        work=ModelWork(
            read_bytes=model.read_bytes,
            active_parameters=model.active_parameters,
            pair_flops=model.pair_flops,
            kv_bytes_per_token=model.kv_bytes_per_token,
        ),
        gpu=gpu,
        tp=plan.inputs.tp,
        vllm=running.text,
    )


def _args(plan: Plan, options: SimulateOptions, running: Release) -> EngineArgs:
    """The plan's arguments, with what was asked for instead."""
    budget = options.max_num_batched_tokens or _planned(plan, "max_num_batched_tokens")
    seqs = options.max_num_seqs or _planned(plan, "max_num_seqs")
    if budget is None or seqs is None:
        raise MissingError(
            "the plan names no GPU, so vLLM's own budget and number of requests are not known",
            hint="plan for one: `chunkscope recommend --model llama-3.1-8b --gpu h200`",
        )
    threshold = options.long_prefill_token_threshold
    if threshold is None:
        threshold = _planned(plan, "long_prefill_token_threshold") or 0
    if options.policy is ChunkPolicy.FIXED:
        threshold = threshold or FIXED_THRESHOLD
    if options.max_num_seqs is None:
        seqs = min(seqs, budget)
    context = _planned(plan, "max_model_len")
    chunking = bool(plan.argument("enable_chunked_prefill").value)
    return EngineArgs(
        max_num_batched_tokens=budget,
        max_num_seqs=seqs,
        long_prefill_token_threshold=threshold,
        kv_cache_tokens=_kv_cache_tokens(plan, options)(budget, seqs),
        max_model_len=context,
        # A smaller budget than the plan's may be asked for: then off is off.
        enable_chunked_prefill=chunking or budget < (context or 0),
        enable_prefix_caching=bool(plan.argument("enable_prefix_caching").value),
        async_scheduling=rules_of(running).async_by_default,
    )


def _planned(plan: Plan, name: str) -> int | None:
    argument = plan.argument(name)
    value = argument.value if argument.value is not None else argument.default
    return int(value) if value is not None else None


def _lowered(options: SimulateOptions, asked: EngineArgs) -> tuple[str, ...]:
    budget = options.max_num_batched_tokens
    if budget is None or options.max_num_seqs is not None or asked.max_num_seqs < budget:
        return ()
    return (f"max_num_seqs is lowered to {budget:,}, the budget, as vLLM does",)


def _default(plan: Plan, asked: EngineArgs, options: SimulateOptions) -> EngineArgs | None:
    """What vLLM would take by itself; None where that is not known."""
    if plan.gpu is None:
        return None
    own = plan.release.batch_defaults(plan.gpu, plan.inputs.entry)
    seqs = own.max_num_seqs
    budget = min(own.max_num_batched_tokens, seqs * (asked.max_model_len or 1 << 30))
    return replace(
        asked,
        max_num_batched_tokens=budget,
        max_num_seqs=min(seqs, budget),
        long_prefill_token_threshold=0,
        enable_chunked_prefill=True,
        kv_cache_tokens=_kv_cache_tokens(plan, options)(budget, min(seqs, budget)),
    )


def _kv_cache_tokens(plan: Plan, options: SimulateOptions) -> Callable[[int, int], int]:
    """How many tokens the KV cache holds at another budget: activations take from it."""
    if options.kv_cache_tokens is not None:
        if options.kv_cache_tokens < 1:
            raise UsageError(f"--kv-cache-tokens must be at least 1, not {options.kv_cache_tokens}")
        given = options.kv_cache_tokens
        return lambda budget, seqs: given  # noqa: ARG005
    memory, model = plan.memory, plan.model
    if memory is None or model is None:
        raise MissingError(
            "the plan does not say how large the KV cache is",
            hint="plan for a model and a GPU, or pass --kv-cache-tokens",
        )
    step = (memory.line("activation").gib + memory.line("sampler").gib) * GIB
    planned_seqs = min(_planned(plan, "max_num_seqs") or 1, memory_budget(plan))
    # Beside the activations stands the sampler, where that needs more (memory.py).
    sampler = step / planned_seqs if memory.line("sampler").gib > 0 else 0.0
    per_token = model.kv_bytes_per_token

    def tokens(budget: int, seqs: int) -> int:
        need = max(budget * model.activation_bytes_per_token, sampler * min(seqs, budget))
        if budget == memory_budget(plan) and seqs == planned_seqs:
            return memory.kv_cache_tokens
        left = memory.kv_cache_bytes + step - need
        return max(1, int(left // per_token))

    return tokens


def memory_budget(plan: Plan) -> int:
    return _planned(plan, "max_num_batched_tokens") or 1


# -- the requests ------------------------------------------------------------------------------


def _requests(
    plan: Plan, profile: Profile | None, options: SimulateOptions, args: EngineArgs
) -> tuple[tuple[Request, ...], WorkloadInfo, tuple[str, ...]]:
    if options.requests is not None and options.requests < 1:
        raise UsageError(f"--requests must be at least 1, not {options.requests}")
    if options.trace is not None:
        return _of_trace(options.trace, plan, options, args)
    if profile is None:
        raise InputError("there is no profile to draw requests from")
    return _of_profile(plan, profile, options, args)


def _of_trace(
    path: Path, plan: Plan, options: SimulateOptions, args: EngineArgs
) -> tuple[tuple[Request, ...], WorkloadInfo, tuple[str, ...]]:
    trace = read_trace(path)
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
    if options.arrivals is not None:
        fitting = _arriving(fitting, options.arrivals, options.seed)
    info = WorkloadInfo(
        source=str(path),
        requests=len(fitting),
        seed=options.seed if options.arrivals is not None else None,
        arrivals=options.arrivals or "as in the trace",
        task=(trace.task or plan.inputs.task).value,
        shared_prefix=options.shared_prefix or trace.shared_prefix,
        left_out=len(found) - len(fitting),
    )
    return tuple(fitting), info, tuple(notes)


def _arriving(requests: list[Request], arrivals: str, seed: int) -> list[Request]:
    import random

    times = arrival_times(arrivals, len(requests), random.Random(seed))  # noqa: S311
    return [replace(r, arrival_s=time) for r, time in zip(requests, times, strict=True)]


def _of_profile(
    plan: Plan, profile: Profile, options: SimulateOptions, args: EngineArgs
) -> tuple[tuple[Request, ...], WorkloadInfo, tuple[str, ...]]:
    datasets = chosen_datasets(profile, plan.inputs.dataset)
    prompts = sum(dataset.rows for dataset in datasets)
    count = options.requests or (MOST_REQUESTS if prompts > MOST_REQUESTS else None)
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
            shared_prefix=options.shared_prefix,
        ),
    )
    info = WorkloadInfo(
        source="the profile",
        requests=len(workload.requests),
        seed=workload.seed,
        arrivals=workload.arrivals,
        task=workload.task.value,
        shared_prefix=options.shared_prefix,
        left_out=workload.left_out,
    )
    return workload.requests, info, tuple(_profile_notes(plan, profile, workload.left_out))


def _profile_notes(plan: Plan, profile: Profile, left_out: int) -> list[str]:
    notes = []
    if profile_digest(profile) != plan.inputs.profile_digest:
        notes.append("the profile is not the one that the plan was made from")
    if left_out:
        notes.append(f"{left_out:,} prompts are longer than max_model_len allows and left out")
    return notes
