"""A plan, its requests and a step-time model -> the simulation: the function behind `simulate`."""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from chunkscope._version import __version__
from chunkscope.artefacts.artefact import Numbers
from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.calibration import Calibration
from chunkscope.hardware.cost_model import (
    CostModel,
    calibrated_cost,
    check_calibration,
    roofline_cost,
)
from chunkscope.lengths.profile import Profile
from chunkscope.planning.choose import fastest
from chunkscope.planning.plan import BEST, DEFAULT, Plan
from chunkscope.planning.problem import Problem
from chunkscope.planning.recommend import tokenizer_note
from chunkscope.planning.request import PlanRequest, chosen_datasets
from chunkscope.planning.simulator import OPEN_REQUESTS, Simulator, draw
from chunkscope.simulation.rate import UNIT_RATE
from chunkscope.simulation.result import GAPS, SimulatedRun, Simulation, WorkloadInfo
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.sweep import points
from chunkscope.simulation.traces import read_trace
from chunkscope.simulation.workload import AS_IN_TRACE, BATCH, Workload, arrival_times
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import ChunkPolicy, SendOrder
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import OWN, Settings

PLAN, ASKED = "plan", "asked"
RATED = "highest"  # the rate that each setting sustains
FIXED_THRESHOLD = 2_048  # of the policy, where none is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """What the command line can say. `asked` overrides the plan's settings; what is None or empty
    is as in the plan's request."""

    trace: Path | None = None
    requests: int | None = None
    arrivals: str | None = None
    seed: int | None = None
    max_output: int | None = None
    shared_prefix: int | None = None
    order: SendOrder | None = None
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
    tick: Callable[[], None] = lambda: None,
) -> Simulation:
    """Run the plan's setting beside vLLM's default; or a sweep around it."""
    deployment, request = plan.deployment, plan.request.asked_as(options)
    if options.vllm_version:
        deployment = replace(deployment, release=release(options.vllm_version))
    settings = _settings(plan, options, deployment)
    settings.parallel.check(plan.model)
    full = deployment.effective(settings)
    cost = _cost_model(deployment, full, calibration)
    if options.find_rate:
        _check_find_rate(options)
        request = replace(request, arrivals=UNIT_RATE, concurrency=None)
    if options.trace is not None:
        workload, notes = _of_trace(options.trace, options, request, full.max_model_len)
    else:
        workload, notes = _of_profile(plan, profile, request, full.max_model_len)
    simulator = Simulator(
        request=request,
        deployment=deployment,
        workload=workload,
        step=cost.step if calibration else None,
        kv_cache_tokens=options.kv_cache_tokens,
        tick=tick,
    )
    named = [("", point) for point in points(full)] if options.sweep else []
    named.append((options.name, settings))
    if plan.gpu is not None:  # vLLM's default, on the same GPUs
        same = ("data_parallel_size", "kv_cache_dtype")[
            : 1 + bool(calibration)
        ]  # is of one type
        asked = Settings.of({name: getattr(options.asked, name) for name in same})
        named.append(
            (DEFAULT, asked.over(plan.advice.needed).over(plan.request.settings))
        )
    if options.find_rate and profile is not None:  # as recommend does
        problem = Problem.of(profile, request, deployment)
        best, _ = fastest(replace(problem, needed=plan.advice.needed, tick=tick))
        named.append((BEST, best))
    runs, left_out = _runs(named, simulator, options)
    stated = [*deployment.notes(settings)]
    if calibration:
        stated = [one for one in stated if one.code != "unlike_measured"]
    elif any(run.output_tokens > run.requests for run in runs):
        stated.append(note("rough_gaps", **GAPS[workload.arrivals != BATCH]))
    return Simulation(
        cost_model=cost,
        vllm=deployment.release.text,
        workload=WorkloadInfo(
            source=str(options.trace or "the profile"),
            profile_digest=profile.digest()
            if profile and options.trace is None
            else None,
            requests=len(workload.requests),
            seed=workload.seed if workload.arrivals != AS_IN_TRACE else None,
            arrivals=RATED if options.find_rate else workload.arrivals,
            order=workload.order,
            concurrency=workload.concurrency,
        ),
        runs=tuple(runs),
        notes=(*cost.notes, *stated, *notes, *left_out),
        version=__version__,
    )


def _runs(
    named: list[tuple[str, Settings]],
    simulator: Simulator,
    options: SimulateOptions,
) -> tuple[list[SimulatedRun], list[Note]]:
    """One run for all names of the same settings, and notes on settings that cannot run. Points of
    a sweep have no name. What is asked for has the policy and the timeline, and must run."""
    names: dict[tuple[Settings, ChunkPolicy], list[str]] = {}
    for name, settings in named:
        is_asked = name == options.name or options.sweep
        policy = options.policy if is_asked else ChunkPolicy.VLLM
        full = simulator.deployment.effective(settings)
        names.setdefault((full, policy), []).append(name)
    runs, left_out = list[SimulatedRun](), list[Note]()
    for (settings, policy), (name, *aliases) in names.items():
        is_asked, of_policy = (
            options.name in (name, *aliases),
            replace(simulator, policy=policy),
        )
        try:
            if options.find_rate:
                run = of_policy.highest_rate(settings)
            else:
                timeline = options.timeline if is_asked or options.sweep else 0
                run = of_policy.run(settings, timeline=timeline)
        except InputError:
            if is_asked and not options.sweep:
                raise
            shown = name or f"max_num_batched_tokens={settings.step_tokens}"
            left_out.append(note("setting_left_out", setting=shown))
        else:
            first, *rest = (*filter(None, (name, *aliases)), "")
            runs.append(replace(run, setting=first, same_as=tuple(filter(None, rest))))
    rates = {run.setting: run.rate.rate_per_s or 0.0 for run in runs if run.rate}
    others = max((rate for name, rate in rates.items() if name != BEST), default=0.0)
    # What was best with some of the requests may not be with all.
    return [
        run for run in runs if run.setting != BEST or rates[BEST] > others
    ], left_out


def _cost_model(
    deployment: Engine, full: Settings, calibration: Calibration | None
) -> CostModel:
    if calibration is None:
        return roofline_cost(
            deployment.shape, deployment.gpu, deployment.step_model(full)
        )
    check_calibration(
        calibration,
        shape=deployment.shape,
        gpu=deployment.gpu,
        vllm=deployment.release.text,
        parallel=full.parallel,
    )
    return calibrated_cost(calibration)


def _check_find_rate(options: SimulateOptions) -> None:
    """It tries rates itself, with enough requests to see a queue."""
    for name in ("arrivals", "concurrency", "sweep", "timeline", "policy"):
        if getattr(options, name) != getattr(SimulateOptions(), name):
            raise UsageError(f"--find-rate tries rates itself: leave {name} out")
    if options.requests and options.requests < (least := OPEN_REQUESTS[0]):
        raise UsageError(
            f"--find-rate needs at least {least:,} requests to see a queue"
        )


def _settings(plan: Plan, options: SimulateOptions, deployment: Engine) -> Settings:
    """The plan's settings with what was asked for instead, and what has to follow from that."""
    asked, settings = options.asked, options.asked.over(plan.settings)
    if (budget := asked.max_num_batched_tokens) is not None:
        context = deployment.effective(plan.settings).max_model_len or 0
        if settings.enable_chunked_prefill is False and budget < context:
            # Smaller than the longest request: then off is off.
            settings = replace(settings, enable_chunked_prefill=None)
        if asked.max_num_seqs is None and settings.step_requests > budget:
            settings = replace(settings, max_num_seqs=budget)
    if (
        options.policy is ChunkPolicy.FIXED
        and not settings.long_prefill_token_threshold
    ):
        settings = replace(settings, long_prefill_token_threshold=FIXED_THRESHOLD)
    return settings


# -- the requests ------------------------------------------------------------------------------


def _of_trace(
    path: Path, options: SimulateOptions, request: PlanRequest, limit: int | None
) -> tuple[Workload, tuple[Note, ...]]:
    for name in ("order", "shared_prefix"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"a trace has its own {name}", hint=f"leave out {name} or --trace"
            )
    trace = read_trace(Path(path))
    given, most = trace.sessions[: options.requests], limit or sys.maxsize
    sizes = [r.prompt_tokens + r.output_tokens for r in trace.requests[: len(given)]]
    places = [n for n, tokens in enumerate(sizes) if tokens <= most]
    fitting = [given[place] for place in places]
    if not fitting:
        hint = "plan for the lengths of the trace: `chunkscope analyze` it first"
        raise InputError(
            f"no request of {path} fits max_model_len ({limit:,})", hint=hint
        )
    left_out, arrivals = len(given) - len(fitting), trace.arrivals
    if options.arrivals is not None or options.find_rate:
        arrivals = request.arrivals
        times = arrival_times(arrivals, len(fitting), random.Random(request.seed))  # noqa: S311
        fitting = [
            replace(r, arrival_s=time) for r, time in zip(fitting, times, strict=True)
        ]
    workload = replace(
        trace,
        sessions=tuple(fitting),
        seed=request.seed,
        arrivals=arrivals,
        task=request.task or trace.task,
        left_out=left_out,
        scored=Numbers(n for n, place in enumerate(places) if place in trace.scored),
        concurrency=None
        if options.find_rate
        else options.concurrency or trace.concurrency,
    )
    values = {"count": left_out, "of": len(given), "context": limit}
    return workload, (note("trace_left_out", **values),) if left_out else ()


def _of_profile(
    plan: Plan, profile: Profile | None, request: PlanRequest, context: int | None
) -> tuple[Workload, tuple[Note, ...]]:
    if profile is None:
        hint = "count the data: `chunkscope analyze`"
        raise InputError("there is no profile to draw requests from", hint=hint)
    datasets = chosen_datasets(profile, request.dataset)
    workload = draw(request, plan.deployment, datasets, context or 1 << 30)
    notes = []
    if profile.digest() != plan.source.profile_digest:
        notes.append(Note(code="other_profile"))
        if plan.model and (doubt := tokenizer_note(profile, plan.model)):
            notes.append(doubt)
    if workload.left_out:
        notes.append(Note(code="prompts_left_out", values={"count": workload.left_out}))
    return workload, (*notes, *request.output_notes(datasets))
