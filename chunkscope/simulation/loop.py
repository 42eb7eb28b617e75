"""Requests through the scheduler, with a clock: schedule a step, let it take its time, repeat."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from chunkscope.costs.step_time import StepModel
from chunkscope.engine.choices import ChunkPolicy
from chunkscope.engine.rules import Rules
from chunkscope.engine.settings import EngineArgs, check_args
from chunkscope.simulation.pipeline import Pipeline
from chunkscope.simulation.policies import make_policy
from chunkscope.simulation.request import RequestState
from chunkscope.simulation.request_checks import check_requests
from chunkscope.simulation.result import Chunk, SimulatedRun, TimelineStep, spread
from chunkscope.simulation.scheduler import Scheduler, Step
from chunkscope.simulation.workload import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """All but the setting: the same for every run of a sweep."""

    requests: tuple[Request, ...]
    rules: Rules
    step: StepModel
    shared_prefix: int = 0
    prompt_logprobs: bool = False
    policy: ChunkPolicy = ChunkPolicy.VLLM


def run_setting(c: Circumstances, args: EngineArgs, *, watch: int = 0) -> SimulatedRun:
    """One setting; the first `watch` steps are kept to be shown."""
    check_args(args, c.rules)
    check_requests(c.requests, args)
    policy = make_policy(c.policy)
    scheduler = Scheduler(args, c.rules, policy)
    graphed_tokens = min(c.step.graphed_tokens, 2 * args.max_num_seqs)
    model = replace(c.step, graphed_tokens=graphed_tokens)
    states = [
        RequestState(
            place,
            request,
            shared_blocks=min(c.shared_prefix, request.prompt_tokens) // args.block_size,
            skips_cache=c.prompt_logprobs,
        )
        for place, request in enumerate(c.requests)
    ]
    for state in states:
        state.priority = policy.priority_of(state)
    log = _Log(watch=watch)
    _run(scheduler, deque(states), model, log)
    return _result(c, args, states, log, scheduler.cached_tokens)


@dataclass(slots=True, kw_only=True)
class _Log:
    watch: int
    ends: list[float] = field(default_factory=list)  # of each step
    gaps: list[tuple[float, int]] = field(default_factory=list)  # between tokens, and how many
    preemptions: int = 0
    slowest_s: float = 0.0
    peak_blocks: int = 0
    timeline: list[TimelineStep] = field(default_factory=list)

    def end(self, now: float, going_on: int) -> float:
        """A step ended; so many requests had a token in the one before, and have one now."""
        if going_on:
            gap = now - self.ends[-1]
            self.gaps.append((gap, going_on))
            self.slowest_s = max(self.slowest_s, gap)
        self.ends.append(now)
        return now

    def look(self, scheduler: Scheduler) -> None:
        used = scheduler.pool.num_blocks - scheduler.pool.num_free
        self.peak_blocks = max(self.peak_blocks, used)


def _run(scheduler: Scheduler, coming: deque[RequestState], model: StepModel, log: _Log) -> None:
    """With async scheduling a step is launched before the one before is asked for its result."""
    lag = int(scheduler.args.async_scheduling)
    flying: deque[Step] = deque()
    now = coming[0].arrival_s
    pipeline = Pipeline(model, now)
    while coming or scheduler or flying:
        while coming and coming[0].arrival_s <= now:
            scheduler.add(coming.popleft())
        step = scheduler.schedule()
        if step:
            flying.append(step)
            pipeline.launch(step, now)
            now = pipeline.host_free
            log.look(scheduler)
            if step.number < log.watch:
                log.timeline.append(_seen(step, len(scheduler.waiting)))
        elif not flying:
            if not coming:
                raise AssertionError("nothing can be scheduled, and nothing is to come")
            now = coming[0].arrival_s
        while len(flying) > (lag if step else 0):
            now = _finish(flying.popleft(), pipeline, scheduler, log)
        if len(log.ends) >= log.watch and step:
            until = coming[0].arrival_s if coming else float("inf")
            now = _decode_on(scheduler, flying, now, until, pipeline, log)


def _decode_on(
    scheduler: Scheduler,
    flying: deque[Step],
    now: float,
    until: float,
    pipeline: Pipeline,
    log: _Log,
) -> float:
    """Pass over the steps that only decode, until somebody ends or comes.

    It is what `_run` would do, but nobody is asked: the time of a step follows from the number of
    requests and their context. A step that flies is the last one scheduled.
    """
    steps = scheduler.steps_of_decoding
    if steps < 2:
        return now
    requests = len(scheduler.decoding)
    flown = flying.pop() if flying else None  # launched, and not yet finished
    lagging, launched, context = flown is not None, 0, 0
    launch = pipeline.decoder(requests)
    for _ in range(steps):
        if until <= now or (scheduled := scheduler.decode_on()) is None:
            break
        launched, context = launched + 1, scheduled
        launch(context, now)
        if flown is not None:
            now, flown = _finish(flown, pipeline, scheduler, log), None
        else:
            now = log.end(pipeline.finish(), requests)
    if lagging:
        last = _decoding_step(len(log.ends), requests, context) if launched else flown
        flying.extend([last] if last else [])
    log.look(scheduler)
    return now


def _decoding_step(number: int, requests: int, context: int) -> Step:
    step = Step(number)
    step.going_on = step.decode_requests = requests
    step.decode_context_tokens = context
    return step


def _finish(step: Step, pipeline: Pipeline, scheduler: Scheduler, log: _Log) -> float:
    """The tokens that a step gives are there at its end."""
    end = pipeline.finish()
    seconds = end - max([step.launched, *log.ends[-1:]])
    log.end(end, step.going_on)
    log.slowest_s = max(log.slowest_s, seconds)
    for _, last_step in step.resumed:
        log.gaps.append((end - log.ends[last_step], 1))
    log.preemptions += len(step.preempted)
    scheduler.update(step)
    scheduler.policy.after_step(step, seconds)
    return end


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


def _chunks(step: Step) -> Iterator[Chunk]:
    for request, tokens in step.tokens.items():
        if request.computed <= request.prompt:
            start = request.computed - tokens
            yield Chunk(
                request=request.id,
                start=start,
                end=request.computed,
                prompt_tokens=request.prompt,
            )


def _timed(log: _Log, first: float) -> Iterator[TimelineStep]:
    """Steps follow each other without a pause, except where nothing was there to do."""
    for step in log.timeline:
        end = log.ends[step.number]
        start = log.ends[step.number - 1] if step.number else first
        yield replace(step, start_s=start - first, duration_s=end - start)


def _result(
    c: Circumstances, args: EngineArgs, states: Sequence[RequestState], log: _Log, cached: int
) -> SimulatedRun:
    first = states[0].arrival_s
    ttft = spread((log.ends[s.first_step] - s.arrival_s, 1) for s in states)
    e2e = spread((log.ends[s.last_step] - s.arrival_s, 1) for s in states)
    if ttft is None or e2e is None:
        raise AssertionError("a run without requests")
    return SimulatedRun(
        args=args,
        policy=c.policy,
        makespan_s=log.ends[-1] - first,
        ttft_s=ttft,
        itl_s=spread(log.gaps),
        e2e_s=e2e,
        requests=len(states),
        input_tokens=sum(state.prompt for state in states),
        output_tokens=sum(state.output for state in states),
        steps=len(log.ends),
        slowest_step_s=log.slowest_s,
        chunked_prompts=sum(state.chunks > 1 for state in states),
        most_chunks=max(state.chunks for state in states),
        preemptions=log.preemptions,
        cached_tokens=cached,
        kv_peak_tokens=log.peak_blocks * args.block_size,
        timeline=tuple(_timed(log, first)),
    )
