"""Requests through the scheduler, with a clock: schedule a step, let it take its time, repeat."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from chunkscope.costs.step_time import StepModel
from chunkscope.engine.choices import ChunkPolicy
from chunkscope.engine.rules import Rules, check_args
from chunkscope.engine.settings import EngineArgs
from chunkscope.simulation.fast_scheduler import FastScheduler
from chunkscope.simulation.pipeline import Pipeline
from chunkscope.simulation.policies import make_policy
from chunkscope.simulation.request_checks import check_requests
from chunkscope.simulation.request_state import RequestState
from chunkscope.simulation.result import PromptChunk, SimulatedRun, TimelineStep, spread
from chunkscope.simulation.scheduler import Scheduler
from chunkscope.simulation.step import Step
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


def run_setting(
    c: Circumstances, args: EngineArgs, *, watch: int = 0, fast: bool = True
) -> SimulatedRun:
    """One setting; the first `watch` steps are kept to be shown. `fast` changes nothing else."""
    check_args(args, c.rules)
    check_requests(c.requests, args)
    policy = make_policy(c.policy, args, c.rules)
    scheduler = (FastScheduler if fast else Scheduler)(args, c.rules, policy)
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


def _run(scheduler: Scheduler, coming: deque[RequestState], model: StepModel, log: _Log) -> None:
    """With async scheduling a step is launched before the one before is asked for its result."""
    lag = int(scheduler.args.async_scheduling)
    flying: deque[Step] = deque()
    now = coming[0].arrival_s
    pipeline = Pipeline(model, now)
    while coming or flying or scheduler.has_requests():
        while coming and coming[0].arrival_s <= now:
            scheduler.add_request(coming.popleft())
        step = scheduler.schedule()
        if step:
            flying.append(step)
            pipeline.launch(step, now)
            now = pipeline.host_free
            log.peak_blocks = max(log.peak_blocks, scheduler.kv_cache.num_used)
            if step.number < log.watch:
                log.timeline.append(_seen(step, len(scheduler.waiting)))
        elif not flying:
            if not coming:
                raise AssertionError("nothing can be scheduled, and nothing is to come")
            now = coming[0].arrival_s
        while len(flying) > (lag if step else 0):
            now = _finish(flying.popleft(), pipeline, scheduler, log)


def _finish(step: Step, pipeline: Pipeline, scheduler: Scheduler, log: _Log) -> float:
    """The tokens that a step gives are there at its end."""
    end = pipeline.finish()
    before = log.ends[-1] if log.ends else step.launched
    seconds = end - max(step.launched, before)
    log.slowest_s = max(log.slowest_s, seconds)
    if step.going_on:
        log.gaps.append((end - before, step.going_on))
    for last_step in step.resumed:
        log.gaps.append((end - log.ends[last_step], 1))
    log.ends.append(end)
    log.preemptions += len(step.preempted)
    scheduler.update_from_output(step)
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
        input_tokens=sum(state.num_prompt_tokens for state in states),
        output_tokens=sum(state.max_tokens for state in states),
        steps=len(log.ends),
        slowest_step_s=log.slowest_s,
        chunked_prompts=sum(state.chunks > 1 for state in states),
        most_chunks=max(state.chunks for state in states),
        preemptions=log.preemptions,
        cached_tokens=cached,
        kv_peak_tokens=log.peak_blocks * args.block_size,
        timeline=tuple(_timed(log, first)),
    )
