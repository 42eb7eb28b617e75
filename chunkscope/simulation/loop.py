"""Requests through the scheduler, with a clock: schedule a step, let it take its time, repeat."""

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, pairwise, repeat
from math import inf
from typing import Any

from chunkscope.artefacts.figures import Figures
from chunkscope.errors import InputError
from chunkscope.hardware.step_time import StepModel
from chunkscope.lengths.histogram import Ranked
from chunkscope.prefixes.sharing import Stretch, block_paths, read_together
from chunkscope.simulation.clock import Arrivals, Clock, StepTimes, step_times
from chunkscope.simulation.fast_scheduler import FastScheduler
from chunkscope.simulation.kv_cache import GroupBlocks, clipped
from chunkscope.simulation.policies import EXPERIMENTS, INTERACTIVE_TOKENS, Policy
from chunkscope.simulation.requests import RequestState, Step
from chunkscope.simulation.result import PromptChunk, SimulatedRun, TimelineStep
from chunkscope.simulation.scheduler import Scheduler
from chunkscope.simulation.slo import (
    Outlook,
    Slo,
    backlog,
    outlook_of,
    request_times,
    slo_result,
)
from chunkscope.simulation.workload import Request
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import KvPool, Settings, check_sizes

FEW_STEPS, LATER = (
    8,
    1.2,
)  # when one looks what is sure, and after how many times as many again


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All but the setting: the same for every run of a sweep."""

    requests: tuple[Request, ...]
    rules: Rules
    step: StepModel
    stretches: tuple[Stretch, ...] = ()  # in which the prompts of requests begin alike
    scored: frozenset[int] = frozenset()  # places of those that ask for prompt_logprobs
    policy: ChunkPolicy = ChunkPolicy.VLLM
    concurrency: int | None = (
        None  # requests that the client keeps under way; None: all
    )
    slo: Slo = ()
    rate: float = 1.0  # requests come so many times as fast


def run_setting(
    scenario: Scenario, settings: Settings, pool: KvPool, **how: Any
) -> SimulatedRun:
    """One setting, as `simulated`."""
    return simulated(scenario, settings, pool, **how)[1]()


def simulated(
    scenario: Scenario,
    settings: Settings,
    pool: KvPool,
    *,
    watch: int = 0,
    fast: bool = True,
    times: StepTimes | None = None,
    give_up: float | None = None,
) -> tuple[Outlook, Callable[[], SimulatedRun]]:
    """One setting: what is sure of its limits, and its figures, which take some time. The first
    `watch` steps are kept to be shown. `fast` changes nothing else.

    `times` say how long steps take: those of reference/ are measured. Of several replicas in data
    parallel each gets every n-th request. It ends when a limit is broken, `give_up` times over.
    """
    check_sizes(settings, checks_threshold=scenario.rules.checks_threshold)
    check_requests(scenario, settings, pool)
    states = _states(scenario, pool.block_size)
    # Blocks that neighbours share are read faster.
    shares = settings.enable_prefix_caching and len(scenario.scored) < len(
        scenario.requests
    )
    share = read_together(scenario.requests, scenario.stretches) if shares else 0.0
    model = with_graphs(scenario.step.sharing(share), settings)
    start, name, engines, known = states[0].arrival_s, scenario.policy, [], Outlook()
    concurrency = scenario.concurrency or len(states)
    replicas = min(settings.parallel.data, len(states), concurrency)
    look = partial(outlook_of, scenario.slo, is_open=scenario.concurrency is None)
    for number in range(replicas):
        kind, scheduler = (
            EXPERIMENTS.get(name, Policy),
            FastScheduler if fast else Scheduler,
        )
        own, share = states[number::replicas], -(-(concurrency - number) // replicas)
        engine = _Replica(
            scheduler(kind(name, settings, scenario.rules), pool, scenario.step.window),
            Clock(times or partial(step_times, model), start),
            Arrivals(own, share),
            model,
            watch=0 if number else watch,
        )
        known = engine.run(look(give_up, states, own) if give_up else None)
        if known.broken:
            return known, partial(run_setting, scenario, settings, pool)
        engines.append(engine)
    return known, partial(_result, scenario, settings, pool, states, engines)


def with_graphs(step: StepModel, settings: Settings) -> StepModel:
    """Steps of up to so many tokens replay a CUDA graph: as many as are asked for, or vLLM's
    own number, which ends at twice max_num_seqs."""
    tokens = settings.max_cudagraph_capture_size
    if tokens is None:
        tokens = min(step.graphed_tokens, 2 * settings.step_requests)
    return replace(step, graphed_tokens=min(tokens, settings.step_tokens))


def check_requests(scenario: Scenario, settings: Settings, pool: KvPool) -> None:
    """InputError where no engine could ever serve the longest request with this setting."""
    totals = [
        request.prompt_tokens + request.output_tokens for request in scenario.requests
    ]
    if not totals:
        raise InputError("there are no requests", hint="is the profile or trace empty?")
    tokens, blocks = max(totals), GroupBlocks(settings, pool, scenario.rules)
    place, limit = totals.index(tokens) + 1, settings.max_model_len
    chunked = settings.enable_chunked_prefill or settings.long_prefill_token_threshold
    free = pool.num_blocks - blocks.state
    if (
        blocks.to_reserve(tokens - 1) > free
    ):  # the last token is never read back: it needs no room
        held = max(0, bisect(range(tokens), free, key=blocks.to_reserve) - 1)
        why = f"{tokens - 1:,} tokens, and the KV cache holds {held:,} of one request"
        hint = "plan for a GPU with more memory, or leave such requests out"
        raise InputError(f"request {place:,} can never fit: {why}", hint=hint)
    if limit is not None and tokens > limit:
        raise InputError(
            f"request {place:,} has {tokens:,} tokens, max_model_len is {limit:,}"
        )
    # A request that is preempted at its end is read again whole, with all but its last token.
    if not chunked and tokens - 1 > settings.step_tokens:
        raise InputError(
            f"request {place:,} may have {tokens - 1:,} tokens to read, and with chunking off "
            f"one step takes {settings.step_tokens:,}",
            hint="raise the budget to max_model_len, or leave chunking on",
        )


def _states(scenario: Scenario, block_size: int) -> list[RequestState]:
    paths = [*block_paths(scenario.stretches, block_size), ()]  # the last, of NOTHING
    return [
        RequestState(
            place,
            request.prompt_tokens,
            request.output_tokens,
            request.arrival_s / scenario.rate,
            path=clipped(paths[request.stretch], request.prompt_tokens // block_size),
            skips_cache=place in scenario.scored,
            # Short prompts are somebody waiting; where that counts, long ones give way.
            priority=int(request.prompt_tokens > INTERACTIVE_TOKENS),
        )
        for place, request in enumerate(scenario.requests)
    ]


class _Replica:
    """One scheduler with its clock: the only one, or one of several replicas."""

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Clock,
        coming: Arrivals,
        model: StepModel,
        *,
        watch: int,
    ) -> None:
        self.scheduler, self.clock, self._coming, self._watch = (
            scheduler,
            clock,
            coming,
            watch,
        )
        self._model, self._lag = model, int(scheduler.rules.async_scheduling)
        self.timeline: list[TimelineStep] = []
        self.preemptions = self.most_running = 0

    def run(self, sure: Callable[[Clock], Outlook] | None) -> Outlook:
        """What is sure, looked at now and then, ends it where a limit is broken."""
        scheduler, clock, coming, due = (
            self.scheduler,
            self.clock,
            self._coming,
            FEW_STEPS,
        )
        while clock.launched or scheduler.running or scheduler.waiting or coming:
            for request in coming.due(clock.now):
                scheduler.waiting.add(request)
            if not (
                isinstance(scheduler, FastScheduler) and self._skip_ahead(scheduler)
            ):
                self._take_step()
            if sure and clock.num_steps >= due:
                due = int(clock.num_steps * LATER) + 1
                if (known := sure(clock)).broken:
                    return known
        return sure(clock) if sure else Outlook()

    def _take_step(self) -> None:
        scheduler, clock = self.scheduler, self.clock
        step = scheduler.schedule()
        self.preemptions += len(step.preempted)
        if step:
            clock.launch(step)
            self.most_running = max(self.most_running, len(scheduler.running))
            if step.number < self._watch:
                self.timeline.append(_timeline_step(step, len(scheduler.waiting)))
        elif not clock.launched and not step.preempted:
            if not self._coming:
                raise AssertionError("nothing can be scheduled, and nothing is to come")
            clock.now = self._coming.next_s
        self._finish(self._lag if step else 0)

    def _finish(self, lag: int) -> None:
        """With async scheduling a step is launched before the result of the last is there."""
        while len(self.clock.launched) > lag:
            step, seconds = self.clock.finish()
            self.scheduler.policy.after_step(step, seconds)
            self._end(step)

    def _end(self, step: Step) -> None:
        if step.ended:
            self.scheduler.update_from_output(step)
            self._coming.ended(len(step.ended), self.clock.now)

    def _skip_ahead(self, scheduler: FastScheduler) -> bool:
        """Steps in which the same requests decode on, or one prompt is read on. Were there any?"""
        most = scheduler.steps_alike() if scheduler.num_steps >= self._watch else 0
        if not most:
            return False
        clock, coming, model = self.clock, self._coming, self._model
        is_queue = scheduler.is_queue and bool(scheduler.waiting)
        step = scheduler.schedule_alike()
        clock.launch(step)
        self._finish(self._lag)  # the one before them, whatever it was
        if most == 1:
            return True
        # What `gpu_s` computes, in its order.
        contexts, context_s = scheduler.contexts(most - 1), model.per_decode_context_s
        requests = step.decode_requests + step.prefill_requests
        fixed_s = model.gpu_s(step.total_num_scheduled_tokens, 0, 0, requests)
        seconds = (fixed_s + c * context_s for c in contexts)
        for request in scheduler.in_turn:  # one at the most
            size, pair_s, mixed = (
                scheduler.read_in_step,
                model.per_prefill_pair_s,
                model.mixed,
            )
            read = zip(count(request.num_computed_tokens, size), contexts, strict=False)
            pairs = model.window.pairs
            seconds = (
                fixed_s + pairs(size, n) * pair_s + c * mixed * context_s
                for n, c in read
            )
        taken = clock.repeat(seconds, inf if is_queue else coming.next_s)
        if taken:
            step.ended = scheduler.skip_ahead(taken)
            if not self._lag:
                self._end(step)
        return True


def _timeline_step(step: Step, waiting: int) -> TimelineStep:
    """Its times are not known yet."""
    chunks = (
        PromptChunk(
            r.id, r.num_computed_tokens - n, r.num_computed_tokens, r.num_prompt_tokens
        )
        for r, n in step.num_scheduled_tokens.items()
        if r.num_computed_tokens <= r.num_prompt_tokens
    )
    return TimelineStep(
        number=step.number,
        decode_requests=step.decode_requests,
        chunks=tuple(chunks),
        waiting=waiting,
        preempted=tuple(request.id for request in step.preempted),
    )


def _result(
    scenario: Scenario,
    settings: Settings,
    pool: KvPool,
    states: Sequence[RequestState],
    engines: list[_Replica],
) -> SimulatedRun:
    first, clocks = states[0].arrival_s, [engine.clock for engine in engines]
    gaps = [some for clock in clocks for some in clock.gaps.items()]
    waiting = chain.from_iterable(repeat(n, len(seconds)) for n, seconds in gaps)
    itl = Ranked(chain.from_iterable(seconds for _, seconds in gaps), waiting)
    times = [
        request_times(state, clocks[state.id % len(clocks)].ends) for state in states
    ]
    makespan_s = max(max(clock.ends.values()) for clock in clocks) - first
    steps = sum(clock.num_steps for clock in clocks)
    input_tokens = sum(state.num_prompt_tokens for state in states)
    output_tokens = sum(state.max_tokens for state in states)
    cached_tokens = sum(state.num_cached_tokens for state in states)
    slo, is_open = slo_result(scenario.slo, times, itl), scenario.concurrency is None
    shown = pairwise(
        (first, *clocks[0].ends.values())
    )  # without a pause, unless nothing was to do
    figures = Figures(
        makespan_s=makespan_s,
        ttft_s=Ranked(request.ttft_s for request in times).percentiles(),
        itl_s=itl.percentiles() if itl.count else None,
        e2e_s=Ranked(request.e2e_s for request in times).percentiles(),
        input_tokens_per_s=input_tokens / makespan_s,
        output_tokens_per_s=output_tokens / makespan_s,
        steps=steps,
        tokens_per_step=sum(clock.tokens for clock in clocks) / steps,
        chunked_prompts=sum(state.chunks > 1 for state in states),
        chunks_max=max(state.chunks for state in states),
        preemptions=sum(engine.preemptions for engine in engines),
        prefix_hit_rate=cached_tokens / input_tokens,
        goodput_per_s=slo.good_requests / makespan_s if slo else None,
        slo_use=slo.use if slo else None,
    )
    return SimulatedRun(
        settings=settings,
        pool=pool,
        policy=scenario.policy,
        figures=figures,
        requests=len(states),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        timeline=tuple(
            replace(step, start_s=start - first, duration_s=end - start)
            for step, (start, end) in zip(engines[0].timeline, shown, strict=False)
        ),
        slo=slo,
        backlog=backlog(states, [t.ttft_s for t in times]) if is_open else None,
        most_running=sum(engine.most_running for engine in engines),
        gpu_s=max(clock.gpu_s for clock in clocks),
    )
