"""Requests through the scheduler, with a clock: schedule a step, let it take its time, repeat."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from chunkscope.artefacts.figures import Figures
from chunkscope.artefacts.percentiles import Ranked, percentiles
from chunkscope.hardware.step_time import StepModel
from chunkscope.prefixes.sharing import Stretch, block_paths
from chunkscope.simulation.arrivals import Arrivals
from chunkscope.simulation.blocks import clipped
from chunkscope.simulation.clock import Clock
from chunkscope.simulation.fast_scheduler import FastScheduler
from chunkscope.simulation.pipeline import Pipeline
from chunkscope.simulation.policies import make_policy
from chunkscope.simulation.replicas import Replica, Sent, distribute
from chunkscope.simulation.request_checks import check_requests
from chunkscope.simulation.request_state import RequestState
from chunkscope.simulation.result import Backlog, PromptChunk, SimulatedRun, TimelineStep
from chunkscope.simulation.scheduler import Scheduler
from chunkscope.simulation.slo import RequestTimes, Slo, slo_found
from chunkscope.simulation.step import Step
from chunkscope.simulation.workload import Request, read_together
from chunkscope.vllm.choices import ChunkPolicy
from chunkscope.vllm.rules import Rules, check_args
from chunkscope.vllm.settings import EngineArgs


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """All but the setting: the same for every run of a sweep."""

    requests: tuple[Request, ...]
    rules: Rules
    step: StepModel
    stretches: tuple[Stretch, ...] = ()  # in which the prompts of requests begin alike
    prompt_logprobs: bool = False
    policy: ChunkPolicy = ChunkPolicy.VLLM
    concurrency: int | None = None  # requests that the client keeps under way; None: all
    slo: Slo = ()


def run_setting(
    c: Circumstances,
    args: EngineArgs,
    *,
    watch: int = 0,
    fast: bool = True,
    pipeline: Pipeline | None = None,
) -> SimulatedRun:
    """One setting; the first `watch` steps are kept to be shown. `fast` changes nothing else.

    A `pipeline` of one's own says how long steps take: that of reference/ computes them.
    """
    check_args(args, c.rules)
    check_requests(c.requests, args, c.rules)
    states = _states(c, args.block_size)
    has_blocks_in_common = args.enable_prefix_caching and not c.prompt_logprobs
    together = read_together(c.requests, c.stretches) if has_blocks_in_common else 0.0
    graphed_tokens = min(c.step.graphed_tokens, 2 * args.max_num_seqs)
    model = replace(c.step.sharing(together), graphed_tokens=graphed_tokens)
    kind, engines = FastScheduler if fast else Scheduler, []
    for number in range(args.parallel.data):
        policy = make_policy(c.policy, args, c.rules)
        scheduler = kind(args, c.rules, policy, c.step.reach)
        start, log = states[0].arrival_s, _Log(watch=0 if number else watch)
        clock = Clock(pipeline or Pipeline(model, start), start)
        engines.append(_Engine(number, scheduler, clock, log))
    for state in states:
        state.priority = engines[0].scheduler.policy.priority_of(state)
    if len(engines) == 1:
        for _ in engines[0].steps(Arrivals(states, c.concurrency)):
            pass
    else:
        distribute(states, engines, c.rules, c.concurrency)
    return _result(c, args, states, engines)


def _states(c: Circumstances, block_size: int) -> list[RequestState]:
    """Where all want prompt_logprobs nobody reads from the cache, so nothing need be tracked."""
    paths = [] if c.prompt_logprobs else block_paths(c.stretches, block_size)
    return [
        RequestState(
            place,
            request,
            path=clipped(paths[request.stretch], request.prompt_tokens // block_size)
            if paths and request.stretch >= 0
            else (),
            skips_cache=c.prompt_logprobs,
        )
        for place, request in enumerate(c.requests)
    ]


@dataclass(slots=True, kw_only=True)
class _Log:
    """What happens whatever the time."""

    watch: int
    preemptions: int = 0
    peak_blocks: int = 0
    most_running: int = 0
    timeline: list[TimelineStep] = field(default_factory=list)


class _Engine(Replica):
    """The only one, or one of several in data parallel."""

    def __init__(self, number: int, scheduler: Scheduler, clock: Clock, log: _Log) -> None:
        super().__init__(number, scheduler, clock)
        self.log = log

    def steps(self, coming: Arrivals | None = None) -> Iterator[None]:
        return _run(self.scheduler, coming or self.sent, self.clock, self.log, self.flying)


def _run(
    scheduler: Scheduler, coming: Arrivals | Sent, clock: Clock, log: _Log, flying: deque[Step]
) -> Iterator[None]:
    """With async scheduling a step is launched before the one before is asked for its result."""
    lag = int(scheduler.args.async_scheduling)
    while coming or flying or scheduler.has_requests():
        for request in coming.due(clock.now):
            scheduler.add_request(request)
        step = scheduler.schedule()
        if step:
            flying.append(step)
            clock.launch(step)
            log.peak_blocks = max(log.peak_blocks, scheduler.kv_cache.num_used)
            log.most_running = max(log.most_running, len(scheduler.running))
            if step.number < log.watch:
                log.timeline.append(_seen(step, len(scheduler.waiting)))
        elif not flying:
            if not coming:
                raise AssertionError("nothing can be scheduled, and nothing is to come")
            clock.now = coming.next_s
        while len(flying) > (lag if step else 0):
            done = flying.popleft()
            _finish(done, clock, scheduler, log)
            coming.ended(len(done.ended), clock.now)
        if isinstance(scheduler, FastScheduler) and scheduler.num_steps >= log.watch:
            _coast(scheduler, flying, coming, clock, log)
        yield


def _finish(step: Step, clock: Clock, scheduler: Scheduler, log: _Log) -> None:
    seconds = clock.finish(step)
    log.preemptions += len(step.preempted)
    scheduler.update_from_output(step)
    scheduler.policy.after_step(step, seconds)


def _coast(
    scheduler: FastScheduler,
    flying: deque[Step],
    coming: Arrivals | Sent,
    clock: Clock,
    log: _Log,
) -> None:
    """Steps in which the same requests go on decoding, until something happens or one comes."""
    most = 0 if any(step.ended for step in flying) else scheduler.steps_alike()
    if not most:
        return
    group, taken = scheduler.decoding, 0
    step = Step(scheduler.num_steps, decode_requests=len(group), going_on=len(group))
    while taken < most and not coming.is_due(clock.now):
        step.decode_context_tokens = group.context_after(taken + 1)
        clock.launch(step)
        flying.append(step)
        if (done := flying.popleft()) is not step:
            _finish(done, clock, scheduler, log)  # the one before them, whatever it was
        else:
            clock.finish(step)
        taken += 1
    log.peak_blocks = max(log.peak_blocks, scheduler.coast(taken))


def _seen(step: Step, waiting: int) -> TimelineStep:
    return TimelineStep(
        number=step.number,
        start_s=0.0,
        duration_s=0.0,
        decode_requests=step.decode_requests,
        chunks=tuple(_chunks(step)),
        waiting=waiting,
        preempted=tuple(request.id for request in step.preempted),
    )


def _chunks(step: Step) -> Iterator[PromptChunk]:
    for request, tokens in step.num_scheduled_tokens.items():
        end = request.num_computed_tokens
        if end <= request.num_prompt_tokens:
            yield PromptChunk(
                request=request.id,
                start=end - tokens,
                end=end,
                prompt_tokens=request.num_prompt_tokens,
            )


def _timed(log: _Log, ends: Sequence[float], first: float) -> Iterator[TimelineStep]:
    """Steps follow each other without a pause, except where nothing was there to do."""
    for step in log.timeline:
        end = ends[step.number]
        start = ends[step.number - 1] if step.number else first
        yield replace(step, start_s=start - first, duration_s=end - start)


def _result(
    c: Circumstances,
    args: EngineArgs,
    states: Sequence[RequestState],
    engines: Sequence[_Engine],
) -> SimulatedRun:
    first, log = states[0].arrival_s, engines[0].log
    clocks = [engine.clock for engine in engines if engine.clock.ends]
    gaps = [gap for clock in clocks for gap in clock.gaps]
    every = [engine.clock.ends for engine in engines]
    waits = [every[state.replica][state.first_step] - state.arrival_s for state in states]
    stays = [every[state.replica][state.last_step] - state.arrival_s for state in states]
    ttft, e2e = percentiles(waits), percentiles(stays)
    if ttft is None or e2e is None:
        raise AssertionError("a run without requests")
    makespan_s = max(clock.ends[-1] for clock in clocks) - first
    steps = sum(len(clock.ends) for clock in clocks)
    input_tokens = sum(state.num_prompt_tokens for state in states)
    output_tokens = sum(state.max_tokens for state in states)
    cached_tokens = sum(state.num_cached_tokens for state in states)
    slo = slo_found(c.slo, _times(states, waits, stays), gaps) if c.slo else None
    figures = Figures(
        makespan_s=makespan_s,
        ttft_s=ttft,
        itl_s=Ranked(gaps).percentiles(),
        e2e_s=e2e,
        input_tokens_per_s=input_tokens / makespan_s,
        output_tokens_per_s=output_tokens / makespan_s,
        steps=steps,
        tokens_per_step=sum(clock.tokens for clock in clocks) / steps,
        chunked_prompts=sum(state.chunks > 1 for state in states),
        chunks_max=max(state.chunks for state in states),
        preemptions=sum(engine.log.preemptions for engine in engines),
        prefix_hit_rate=cached_tokens / input_tokens,
        goodput_per_s=slo.good_requests / makespan_s if slo else None,
        slo_use=slo.use if slo else None,
    )
    return SimulatedRun(
        args=args,
        policy=c.policy,
        figures=figures,
        requests=len(states),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        kv_peak_tokens=round(
            max(engine.log.peak_blocks for engine in engines) * args.tokens_per_block
        ),
        timeline=tuple(_timed(log, engines[0].clock.ends, first)),
        slo=slo,
        backlog=_backlog(states, waits) if c.concurrency is None else None,
        most_running=sum(engine.log.most_running for engine in engines),
        gpu_s=max(clock.gpu_s for clock in clocks),
    )


def _times(
    states: Sequence[RequestState], waits: Sequence[float], stays: Sequence[float]
) -> list[RequestTimes]:
    return [
        RequestTimes(ttft_s=wait, e2e_s=stay, output_tokens=state.max_tokens)
        for state, wait, stay in zip(states, waits, stays, strict=True)
    ]


def _backlog(states: Sequence[RequestState], waits: Sequence[float]) -> Backlog | None:
    """By Little's law, from how long they waited; None where all came at once."""
    half, last = len(states) // 2, len(states) - 1
    first_s, half_s, last_s = (states[place].arrival_s for place in (0, half, last))
    if not first_s < half_s < last_s:
        return None
    early = sum(waits[:half]) / (half_s - first_s)
    late = sum(waits[half:last]) / (last_s - half_s)
    return Backlog(early=early, late=late)
