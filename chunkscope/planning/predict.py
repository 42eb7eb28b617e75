"""A plan, its requests and step times -> the simulation."""

import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
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
from chunkscope.planning.case import Case
from chunkscope.planning.drawing import FEWEST_AT_A_RATE, draw
from chunkscope.planning.plan import BEST, DEFAULT, Plan
from chunkscope.planning.recommend import tokenizer_note
from chunkscope.planning.request import PlanRequest, chosen_datasets
from chunkscope.planning.search import Search, highest_rate_setting
from chunkscope.planning.simulator import Simulator
from chunkscope.simulation.outputs import OutputLengths
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

PLAN, ASKED, OFF = "plan", "asked", "off"
RATED = "highest"  # instead of arrivals: the rate that each setting sustains
FIXED_THRESHOLD = 2_048  # of the policy "fixed", where none is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """What the command line can say.

    `asked` overrides the plan's settings; what is None or empty is as in its request.
    """

    trace: Path | None = None
    requests: int | None = None
    arrivals: str | None = None
    seed: int | None = None
    max_output: int | None = None
    output: OutputLengths | None = None
    samples: int | None = None
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
    samples_at_once: int | None = None
    e2e_timeout_s: float | None = None
    together: bool = False
    find_rate: bool = False

    @property
    def name(self) -> str:
        """Of the setting that is simulated: the plan's, or the user's own."""
        own = self.asked != OWN or self.policy is not ChunkPolicy.VLLM
        return ASKED if own else PLAN


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Complete settings to simulate, and their names; points of a sweep have none."""

    settings: Settings
    policy: ChunkPolicy = ChunkPolicy.VLLM
    names: list[str] = field(default_factory=list)
    timeline: int = 0
    must_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The requests, and what is to be said of them."""

    workload: Workload
    notes: tuple[Note, ...] = ()


def predict(
    plan: Plan,
    profile: Profile | None,
    options: SimulateOptions,
    *,
    calibration: Calibration | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Simulation:
    """Run the plan's setting beside vLLM's default; or a sweep around it."""
    engine = plan.deployment
    if options.vllm_version:
        engine = replace(engine, release=release(options.vllm_version))
    settings = asked_settings(plan, options, engine)
    settings.parallel.check(plan.model)
    cost_model = cost_model_of(engine, engine.complete(settings), calibration)
    request = request_of(plan, options)
    context = engine.complete(settings).max_model_len
    if options.trace is not None:
        sent = sent_of_trace(options.trace, options, request, context)
    else:
        sent = sent_of_profile(plan, profile, request, context)
    simulator = Simulator(
        request=request,
        engine=engine,
        workload=sent.workload,
        step_model=cost_model.step if calibration else None,
        kv_cache_tokens=options.kv_cache_tokens,
        keeps_rows=not options.sweep,
        tick=tick,
    )
    candidates = candidates_of(plan, settings, options, engine, calibration)
    if options.find_rate and profile is not None and options.trace is None:
        case = Case.of(profile, request, engine)
        case = replace(case, needed=plan.advice.needed)
        best = highest_rate_setting(Search(case, tick))  # as recommend does
        add(candidates, BEST, Candidate(settings=engine.complete(best)))
    outcome = run_all(candidates, simulator, options)
    return Simulation(
        cost_model=cost_model,
        vllm=engine.release.text,
        workload=workload_info(sent.workload, profile, options),
        runs=outcome.runs,
        notes=(
            *cost_model.notes,
            *engine_notes(engine, settings, calibration, sent.workload, outcome.runs),
            *sent.notes,
            *outcome.left_out,
        ),
        version=__version__,
    )


def request_of(plan: Plan, options: SimulateOptions) -> PlanRequest:
    """The plan's request with what is asked for instead."""
    request = plan.request.asked_as(options)
    if not options.find_rate:
        return request
    # It tries rates itself, with enough requests to see a queue.
    for name in ("arrivals", "concurrency", "sweep", "timeline", "policy"):
        if getattr(options, name) != getattr(SimulateOptions(), name):
            raise UsageError(f"--find-rate tries rates itself: leave {name} out")
    if options.requests and options.requests < FEWEST_AT_A_RATE:
        raise UsageError(
            f"--find-rate needs at least {FEWEST_AT_A_RATE:,} requests to see a queue"
        )
    return replace(request, arrivals=UNIT_RATE, concurrency=None, samples_at_once=None)


def asked_settings(plan: Plan, options: SimulateOptions, engine: Engine) -> Settings:
    """The plan's settings with what is asked for instead, and what follows."""
    asked = options.asked
    settings = asked.over(plan.settings)
    step_tokens = asked.max_num_batched_tokens
    if step_tokens is not None:
        context = engine.complete(plan.settings).max_model_len or 0
        if settings.enable_chunked_prefill is False and step_tokens < context:
            # Smaller than the longest request: "off" cannot be any more.
            settings = replace(settings, enable_chunked_prefill=None)
        if asked.max_num_seqs is None and settings.step_requests > step_tokens:
            settings = replace(settings, max_num_seqs=step_tokens)
    fixed = options.policy is ChunkPolicy.FIXED
    if fixed and not settings.long_prefill_token_threshold:
        settings = replace(settings, long_prefill_token_threshold=FIXED_THRESHOLD)
    return settings


def cost_model_of(
    engine: Engine, complete: Settings, calibration: Calibration | None
) -> CostModel:
    """Where step times come from: the roofline, or what was measured there."""
    if calibration is None:
        return roofline_cost(engine.shape, engine.gpu, engine.step_model(complete))
    check_calibration(
        calibration,
        shape=engine.shape,
        gpu=engine.gpu,
        vllm=engine.release.text,
        parallel=complete.parallel,
    )
    return calibrated_cost(calibration)


def engine_notes(
    engine: Engine,
    settings: Settings,
    calibration: Calibration | None,
    workload: Workload,
    runs: Iterable[SimulatedRun],
) -> list[Note]:
    """What is not known of such an engine, and how rough gaps between tokens are."""
    notes = list(engine.notes(settings))
    if calibration is not None:
        return [note for note in notes if note.code != "unlike_measured"]
    if any(run.output_tokens > run.requests for run in runs):
        notes.append(note("rough_gaps", **GAPS[workload.arrivals != BATCH]))
    return notes


def workload_info(
    workload: Workload, profile: Profile | None, options: SimulateOptions
) -> WorkloadInfo:
    """What was sent, as the simulation tells it."""
    digest = None
    if profile is not None and options.trace is None:
        digest = profile.digest()
    return WorkloadInfo(
        source=str(options.trace or "the profile"),
        profile_digest=digest,
        requests=len(workload.requests),
        seed=None if workload.arrivals == AS_IN_TRACE else workload.seed,
        arrivals=RATED if options.find_rate else workload.arrivals,
        order=workload.order,
        concurrency=requests_under_way(workload),
        samples_at_once=workload.samples_at_once,
    )


def requests_under_way(workload: Workload) -> int | None:
    """Requests that the client keeps under way: the most of any dataset that is sent by
    itself; None where one of them is sent all at once."""
    if not workload.phases:
        return workload.concurrency
    most = 0
    for phase in workload.phases:
        if phase.concurrency is None:
            return None
        most = max(most, phase.concurrency)
    return most


# -- the settings ----------------------------------------------------------------------


def candidates_of(
    plan: Plan,
    settings: Settings,
    options: SimulateOptions,
    engine: Engine,
    calibration: Calibration | None,
) -> list[Candidate]:
    """A sweep's points, what is asked for, and vLLM's default on the same GPUs."""
    candidates: list[Candidate] = []
    complete = engine.complete(settings)
    if options.sweep:
        for point in points(complete):
            candidate = Candidate(
                settings=engine.complete(point),
                policy=options.policy,
                timeline=options.timeline,
            )
            add(candidates, "", candidate)
    asked = Candidate(
        settings=complete,
        policy=options.policy,
        timeline=options.timeline,
        must_run=not options.sweep,
    )
    add(candidates, options.name, asked)
    if plan.gpu is not None:
        same = Settings(data_parallel_size=options.asked.data_parallel_size)
        if calibration is not None:  # it is of one type of the KV cache
            same = replace(same, kv_cache_dtype=options.asked.kv_cache_dtype)
        default = same.over(plan.advice.needed).over(plan.request.settings)
        candidate = Candidate(settings=engine.complete(default))
        candidate.timeline = options.timeline
        if options.sweep:
            candidate.policy = options.policy
        add(candidates, DEFAULT, candidate)
        if options.timeline and not options.sweep:  # what chunks are compared with
            off = replace(default, enable_chunked_prefill=False)
            candidate = Candidate(settings=engine.complete(off))
            candidate.timeline = options.timeline
            add(candidates, OFF, candidate)
    return candidates


def add(candidates: list[Candidate], name: str, new: Candidate) -> None:
    """Append it, or its name to settings that are the same."""
    for candidate in candidates:
        if (candidate.settings, candidate.policy) == (new.settings, new.policy):
            candidate.must_run = candidate.must_run or new.must_run
            candidate.timeline = max(candidate.timeline, new.timeline)
            break
    else:
        candidate = new
        candidates.append(candidate)
    if name:
        candidate.names.append(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The runs, and notes on settings that cannot run."""

    runs: tuple[SimulatedRun, ...]
    left_out: tuple[Note, ...]


def run_all(
    candidates: Iterable[Candidate], simulator: Simulator, options: SimulateOptions
) -> Outcome:
    """One run for each of the settings; InputError where one that must run cannot."""
    runs = []
    left_out = []
    for candidate in candidates:
        try:
            run = run_of(candidate, simulator, options)
        except InputError:
            if candidate.must_run:
                raise
            shown = f"max_num_batched_tokens={candidate.settings.step_tokens}"
            if candidate.names:
                shown = candidate.names[0]
            left_out.append(note("setting_left_out", setting=shown))
            continue
        if candidate.names:
            aliases = tuple(candidate.names[1:])
            run = replace(run, setting=candidate.names[0], same_as=aliases)
        runs.append(run)
    return Outcome(runs=without_false_best(runs), left_out=tuple(left_out))


def run_of(
    candidate: Candidate, simulator: Simulator, options: SimulateOptions
) -> SimulatedRun:
    """Under its own policy; at the highest rate, if that is looked for."""
    if options.find_rate:
        return simulator.run_at_highest_rate(candidate.settings)
    return simulator.run(
        candidate.settings, policy=candidate.policy, timeline=candidate.timeline
    )


def without_false_best(runs: list[SimulatedRun]) -> tuple[SimulatedRun, ...]:
    """Without what was best with a part of the requests, if it is not with all."""
    best_rate = highest_of_others = 0.0
    for run in runs:
        rate = 0.0
        if run.rate is not None:
            rate = run.rate.rate_per_s or 0.0
        if run.setting == BEST:
            best_rate = rate
        else:
            highest_of_others = max(highest_of_others, rate)
    if best_rate > highest_of_others:
        return tuple(runs)
    return tuple(run for run in runs if run.setting != BEST)


# -- the requests ----------------------------------------------------------------------


def sent_of_trace(
    path: Path, options: SimulateOptions, request: PlanRequest, limit: int | None
) -> Sent:
    """The requests of a trace that fit the context; at other times, if asked for."""
    check_trace_options(options)
    trace = read_trace(Path(path))
    sessions = trace.sessions[: options.requests]
    most = limit or sys.maxsize
    places = [n for n, session in enumerate(sessions) if session.longest <= most]
    if not places:
        raise InputError(
            f"no request of {path} fits max_model_len ({limit:,})",
            hint="plan for the lengths of the trace: `chunkscope analyze` it first",
        )
    left_out = len(sessions) - len(places)
    workload = replace(
        trace,
        sessions=tuple(sessions[place] for place in places),
        seed=request.seed,
        task=request.task or trace.task,
        left_out=left_out,
        phases=(),
        scored=Numbers(n for n, place in enumerate(places) if place in trace.scored),
        concurrency=options.concurrency or trace.concurrency,
        samples_at_once=options.samples_at_once or trace.samples_at_once,
    )
    workload = at_asked_times(workload, options, request)
    notes: tuple[Note, ...] = ()
    if left_out:
        of = len(sessions)
        notes = (note("trace_left_out", count=left_out, of=of, context=limit),)
    return Sent(workload=workload, notes=notes)


def at_asked_times(
    workload: Workload, options: SimulateOptions, request: PlanRequest
) -> Workload:
    """As in the trace, unless a rate is asked for, or looked for."""
    if options.find_rate:
        workload = replace(workload, concurrency=None, samples_at_once=None)
    if options.arrivals is not None or options.find_rate:
        workload = arriving(workload, request)
    return workload


def check_trace_options(options: SimulateOptions) -> None:
    """UsageError where something is asked for that a trace decides."""
    for name in ("order", "shared_prefix"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"a trace has its own {name}", hint=f"leave out {name} or --trace"
            )


def arriving(workload: Workload, request: PlanRequest) -> Workload:
    """The same at the times that are asked for."""
    chance = random.Random(request.seed)  # noqa: S311  (a sample, no secret)
    times = arrival_times(request.arrivals, len(workload.sessions), chance)
    sessions = []
    for session, time in zip(workload.sessions, times, strict=True):
        sessions.append(replace(session, arrival_s=time))
    return replace(workload, sessions=tuple(sessions), arrivals=request.arrivals)


def sent_of_profile(
    plan: Plan, profile: Profile | None, request: PlanRequest, context: int | None
) -> Sent:
    """Requests drawn from the profile, and doubts about whether it is the plan's."""
    if profile is None:
        raise InputError(
            "there is no profile to draw requests from",
            hint="count the data: `chunkscope analyze`",
        )
    datasets = chosen_datasets(profile, request.dataset)
    workload = draw(
        request,
        plan.deployment,
        datasets,
        context or sys.maxsize,
        advised_samples=plan.advised_samples,
    )
    notes = []
    if profile.digest() != plan.source.profile_digest:
        notes.append(note("other_profile"))
        doubt = tokenizer_note(profile, plan.model) if plan.model else None
        if doubt is not None:
            notes.append(doubt)
    if workload.left_out:
        notes.append(note("prompts_left_out", count=workload.left_out))
    notes += request.output_notes(datasets)
    return Sent(workload=workload, notes=tuple(notes))
