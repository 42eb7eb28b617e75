"""Requests through the scheduler, with a clock: schedule a step, let it take its time, repeat."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from chunkscope.artefacts.figures import Figures
from chunkscope.errors import InputError
from chunkscope.hardware.step_time import StepModel
from chunkscope.lengths.histogram import Ranked
from chunkscope.prefixes.sharing import Stretch, block_paths
from chunkscope.simulation.clock import Arrivals, Clock, StepTimes, step_times
from chunkscope.simulation.fast_scheduler import FastScheduler
from chunkscope.simulation.kv_cache import GroupBlocks, clipped
from chunkscope.simulation.policies import INTERACTIVE_TOKENS, make_policy
from chunkscope.simulation.requests import RequestState, Step
from chunkscope.simulation.result import Backlog, PromptChunk, SimulatedRun, TimelineStep
from chunkscope.simulation.scheduler import Scheduler
from chunkscope.simulation.slo import RequestTimes, Slo, slo_result
from chunkscope.simulation.workload import Request, read_together
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import KvPool, Settings, check_sizes

FEW_STEPS = 8  # more of them are faster computed together


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All but the setting: the same for every run of a sweep."""

    requests: tuple[Request, ...]
    rules: Rules
    step: StepModel
    stretches: tuple[Stretch, ...] = ()  # in which the prompts of requests begin alike
    scored: frozenset[int] = frozenset()  # places of those that ask for prompt_logprobs
    policy: ChunkPolicy = ChunkPolicy.VLLM
    concurrency: int | None = None  # requests that the client keeps under way; None: all
    slo: Slo = ()


def run_setting(
    scenario: Scenario,
    settings: Settings,
    pool: KvPool,
    *,
    watch: int = 0,
    fast: bool = True,
    times: StepTimes | None = None,
) -> SimulatedRun:
    """One setting; the first `watch` steps are kept to be shown. `fast` changes nothing else.

    `times` say how long steps take: those of reference/ are measured. Of several replicas in data
    parallel each gets every n-th request.
    """
    check_sizes(settings)
    check_requests(scenario.requests, settings, pool, scenario.rules)
    states, model = _states(scenario, pool.block_size), _step_model(scenario, settings)
    start, concurrency = states[0].arrival_s, scenario.concurrency
    replicas = min(settings.parallel.data, len(states), concurrency or len(states))
    engines = []
    for number in range(replicas):
        policy = make_policy(scenario.policy, settings, scenario.rules)
        scheduler = FastScheduler if fast else Scheduler
        share = concurrency and -(-(concurrency - number) // replicas)
        engine = _Replica(
            scheduler(settings, pool, scenario.rules, policy, scenario.step.window),
            Clock(times or step_times(model), start),
            Arrivals(states[number::replicas], share),
            model,
            watch=0 if number else watch,
        )
        engine.run()
        engines.append(engine)
    return _result(scenario, settings, pool, states, engines)


def check_requests(
    requests: Iterable[Request], settings: Settings, pool: KvPool, rules: Rules
) -> None:
    """InputError where no engine could ever serve the longest request with this setting."""
    totals = [request.prompt_tokens + request.output_tokens for request in requests]
    if not totals:
        raise InputError("there are no requests", hint="is the profile or trace empty?")
    tokens, blocks = max(totals), GroupBlocks(settings, pool, rules)
    place, limit = totals.index(tokens) + 1, settings.max_model_len
    chunked = settings.enable_chunked_prefill or settings.long_prefill_token_threshold
    if blocks.to_reserve(tokens - 1) + blocks.state > pool.num_blocks:
        raise InputError(  # the last token is never read back, so it needs no room
            f"request {place:,} can never fit: {tokens - 1:,} tokens, and the KV cache holds "
            f"{max(0, round(pool.num_blocks * pool.tokens_per_block)):,}",
            hint="plan for a GPU with more memory, or leave such requests out",
        )
    if limit is not None and tokens > limit:
        raise InputError(
            f"request {place:,} has {tokens:,} tokens in all, max_model_len is {limit:,}: "
            "vLLM would refuse or cut it"
        )
    # A request that is preempted at its end is read again whole, with all but its last token.
    if not chunked and tokens - 1 > settings.step_tokens:
        raise InputError(
            f"request {place:,} may have {tokens - 1:,} tokens to read, and with chunking off "
            f"one step takes {settings.step_tokens:,}",
            hint="raise the budget to max_model_len, or leave chunking on",
        )


def _states(scenario: Scenario, block_size: int) -> list[RequestState]:
    paths = block_paths(scenario.stretches, block_size)
    return [
        RequestState(
            place,
            request.prompt_tokens,
            request.output_tokens,
            request.arrival_s,
            path=clipped(paths[request.stretch], request.prompt_tokens // block_size)
            if request.stretch >= 0
            else (),
            skips_cache=place in scenario.scored,
            # Short prompts are somebody waiting; where that counts, long ones give way.
            priority=int(request.prompt_tokens > INTERACTIVE_TOKENS),
        )
        for place, request in enumerate(scenario.requests)
    ]


def _step_model(scenario: Scenario, settings: Settings) -> StepModel:
    """Blocks that neighbours share are read faster; CUDA graphs end at twice max_num_seqs."""
    shares = settings.enable_prefix_caching and len(scenario.scored) < len(scenario.requests)
    share = read_together(scenario.requests, scenario.stretches) if shares else 0.0
    graphed_tokens = min(scenario.step.graphed_tokens, 2 * settings.step_requests)
    return replace(scenario.step.sharing(share), graphed_tokens=graphed_tokens)


class _Replica:
    """One scheduler with its clock: the only one, or one of several replicas."""

    def __init__(
        self, scheduler: Scheduler, clock: Clock, coming: Arrivals, model: StepModel, *, watch: int
    ) -> None:
        self.scheduler, self.clock, self._coming, self._watch = scheduler, clock, coming, watch
        self._model = model
        self._launched: deque[Step] = deque()
        self.timeline: list[TimelineStep] = []
        self.preemptions = self.peak_blocks = self.most_running = 0

    def run(self) -> None:
        """With async scheduling a step is launched before the result of the last is there."""
        scheduler, clock = self.scheduler, self.clock
        coming, launched = self._coming, self._launched
        lag = int(scheduler.rules.async_scheduling)
        while coming or launched or scheduler.has_requests():
            for request in coming.due(clock.now):
                scheduler.add_request(request)
            step = scheduler.schedule()
            self.preemptions += len(step.preempted)
            if step:
                launched.append(step)
                clock.launch(step)
                self.peak_blocks = max(self.peak_blocks, scheduler.kv_cache.num_used)
                self.most_running = max(self.most_running, len(scheduler.running))
                if step.number < self._watch:
                    self.timeline.append(_timeline_step(step, len(scheduler.waiting)))
            elif not launched and not step.preempted:
                if not coming:
                    raise AssertionError("nothing can be scheduled, and nothing is to come")
                clock.now = coming.next_s
            while len(launched) > (lag if step else 0):
                done = launched.popleft()
                self._finish(done)
                coming.ended(len(done.ended), clock.now)
            if isinstance(scheduler, FastScheduler) and scheduler.num_steps >= self._watch:
                self._skip_ahead(scheduler)

    def _finish(self, step: Step) -> None:
        seconds = self.clock.finish(step)
        self.scheduler.update_from_output(step)
        self.scheduler.policy.after_step(step, seconds)

    def _skip_ahead(self, scheduler: FastScheduler) -> None:
        """Steps in which the same requests decode on, until something happens or one comes."""
        clock, launched, coming = self.clock, self._launched, self._coming
        most = 0 if any(step.ended for step in launched) else scheduler.steps_alike()
        if not most or coming.next_s <= clock.now:
            return
        group, requests = scheduler.decoding, len(scheduler.decoding)
        step = Step(scheduler.num_steps, decode_requests=requests, decoding_on=requests)
        step.decode_context_tokens = group.context_after(1)
        clock.launch(step)
        launched.append(step)
        self._finish(launched.popleft())  # the one before them, whatever it was
        model = self._model  # what `gpu_s` computes, in its order
        fixed_s, context_s = model.gpu_s(requests, 0, 0, 0), model.per_decode_context_s
        last_s, contexts = requests * model.per_request_s, group.contexts(most)
        seconds = (fixed_s + context * context_s + last_s for context in contexts)
        ahead = most >= FEW_STEPS and not model.window.tokens  # a window only moves forward
        taken = 1 + clock.repeat(step, seconds, coming.next_s, ahead=ahead)
        self.peak_blocks = max(self.peak_blocks, scheduler.skip_ahead(taken))


def _timeline_step(step: Step, waiting: int) -> TimelineStep:
    """Its times are not known yet."""
    chunks = (
        PromptChunk(
            r.id, r.num_computed_tokens - tokens, r.num_computed_tokens, r.num_prompt_tokens
        )
        for r, tokens in step.num_scheduled_tokens.items()
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
    itl = Ranked(chain.from_iterable(clock.gaps for clock in clocks))
    ends = [clocks[state.id % len(clocks)].ends for state in states]
    times = [
        RequestTimes(
            end[state.first_step] - state.arrival_s,
            end[state.last_step] - state.arrival_s,
            state.max_tokens,
        )
        for state, end in zip(states, ends, strict=True)
    ]
    ttft = Ranked((request.ttft_s, 1) for request in times).percentiles()
    e2e = Ranked((request.e2e_s, 1) for request in times).percentiles()
    makespan_s = max(clock.ends[-1] for clock in clocks) - first
    steps = sum(len(clock.ends) for clock in clocks)
    input_tokens = sum(state.num_prompt_tokens for state in states)
    output_tokens = sum(state.max_tokens for state in states)
    cached_tokens = sum(state.num_cached_tokens for state in states)
    slo = slo_result(scenario.slo, times, itl)
    shown = pairwise((first, *clocks[0].ends))  # without a pause, unless nothing was to do
    figures = Figures(
        makespan_s=makespan_s,
        ttft_s=ttft,
        itl_s=itl.percentiles() if itl.count else None,
        e2e_s=e2e,
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
        kv_peak_tokens=round(max(e.peak_blocks for e in engines) * pool.tokens_per_block),
        timeline=tuple(
            replace(step, start_s=start - first, duration_s=end - start)
            for step, (start, end) in zip(engines[0].timeline, shown, strict=False)
        ),
        slo=slo,
        backlog=_backlog(states, times) if scenario.concurrency is None else None,
        most_running=sum(engine.most_running for engine in engines),
        gpu_s=max(clock.gpu_s for clock in clocks),
    )


def _backlog(states: Sequence[RequestState], times: Sequence[RequestTimes]) -> Backlog | None:
    """By Little's law, from how long they waited; None where all came at once."""
    half, last = len(states) // 2, len(states) - 1
    first_s, half_s, last_s = (states[place].arrival_s for place in (0, half, last))
    if not first_s < half_s < last_s:
        return None
    early = sum(t.ttft_s for t in times[:half]) / (half_s - first_s)
    late = sum(t.ttft_s for t in times[half:last]) / (last_s - half_s)
    return Backlog(early=early, late=late)
