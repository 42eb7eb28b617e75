"""A workload through the scheduler, with a clock: what a setting does, in seconds.

A step: the host prepares and launches it, the GPU computes, the host hands out its
tokens. With async scheduling the host launches a step before it asks for the result of
the one before: the two work side by side, and a token is late by whatever the host does
first.
"""

from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.constants import constant
from chunkscope.hardware.gpus import GIB
from chunkscope.hardware.step_time import AttentionWindow, StepModel
from chunkscope.prefixes.sharing import Path, PathPart, block_paths, read_together
from chunkscope.simulation.client import Client, Router, sent_parts
from chunkscope.simulation.kv_cache import GroupBlocks
from chunkscope.simulation.policies import adapted_chunk
from chunkscope.simulation.requests import NO_END, RequestState, Step
from chunkscope.simulation.result import (
    UNJUDGED,
    Gaps,
    Judged,
    PromptChunk,
    ReplicaRun,
    SimulatedRun,
    TimelineStep,
    simulated_run,
)
from chunkscope.simulation.scheduler import Scheduler
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import KvPool, Settings, check_sizes

FEWEST_SKIPPED = 4  # steps that are taken at once: fewer are as fast one by one


class StepSeconds(NamedTuple):
    """How long a step takes: on the GPU, and on the host in three parts."""

    gpu: float
    prepare: float
    launch: float
    hand_out: float


StepTimes = Callable[[Step], StepSeconds]


def simulate(  # noqa: PLR0913  (all by name)
    workload: Workload,
    settings: Settings,
    engine: Engine,
    step_times: StepModel | StepTimes | None = None,
    *,
    judged: Judged = UNJUDGED,
    policy: ChunkPolicy = ChunkPolicy.VLLM,
    timeline: int = 0,
    kv_pool: KvPool | None = None,
    async_scheduling: bool | None = None,
) -> SimulatedRun:
    """What becomes of a workload under these settings; the same every time.

    `step_times` None: the roofline's for this model and GPU. `kv_pool` None: the memory
    that is left. `async_scheduling` None: as this version of vLLM does it. The first
    `timeline` steps are kept to be shown.
    """
    settings = engine.complete(settings)
    if settings.max_num_batched_tokens is None or settings.max_num_seqs is None:
        raise _not_known("vLLM's defaults are not known without a GPU")
    rules = engine.release.rules
    if async_scheduling is not None:
        rules = replace(rules, async_scheduling=async_scheduling)
    pool = kv_pool or usual_pool(settings, engine)
    window = AttentionWindow()
    if step_times is None:
        step_times = usual_step_model(settings, engine)
    if isinstance(step_times, StepModel):
        window = step_times.window
        step_times = ModelTimes(step_times, workload, settings, pool)
    check_sizes(settings, checks_threshold=rules.checks_threshold)
    check_requests(workload, settings, pool, rules)
    sessions = session_states(workload, pool.block_size)
    start_s = min(session.arrival_s for session in sessions)
    client = Client(sent_parts(workload, sessions), start_s)
    replicas = []
    for number in range(min(settings.parallel.data, len(sessions))):
        replica = Replica(
            Scheduler(settings, pool, rules, window=window, policy=policy),
            Clock(step_times, start=start_s),
            client,
            timeline=timeline if number == 0 else 0,
        )
        replicas.append(replica)
    run_together(replicas, client, sticky=workload.sticky)
    return simulated_run(
        workload,
        settings,
        pool,
        [replica.run() for replica in replicas],
        part_ends_s=client.part_ends_s,
        judged=judged,
        policy=policy,
    )


def run_together(
    replicas: "Sequence[Replica]", client: Client, *, sticky: bool
) -> None:
    """Step by step until all is answered: the replica that is furthest behind is
    next."""
    router = Router(replicas, sticky=sticky)
    while True:
        behind: Replica | None = None
        for replica in replicas:
            if replica.is_busy and (behind is None or replica.now < behind.now):
                behind = replica
        if behind is None and not client:
            return
        now = behind.now if behind is not None else client.next_s
        for request in client.due(now):
            replicas[router.replica_for(request)].accept(request, now)
        if behind is not None:
            behind.take_step()
            if len(replicas) == 1:
                behind.skip_ahead(client.next_s)


def usual_pool(settings: Settings, engine: Engine) -> KvPool:
    """The KV cache that the memory model leaves."""
    memory = engine.memory(settings)
    if memory is None:
        raise _not_known(
            "the size of the KV cache is not known without a model and a GPU"
        )
    return engine.kv_pool(settings, max(1, memory.kv_cache_tokens))


def with_host_memory(
    pool: KvPool, settings: Settings, engine: Engine, gib: float
) -> KvPool:
    """The same with so much of the host's memory behind it, which all GPUs share.

    What is loaded from there keeps a step waiting, at an assumed speed of PCIe.
    """
    if not gib or engine.shape is None:
        return pool
    parallel = settings.parallel
    token_bytes = engine.shape.kv_bytes_per_token(
        parallel.tensor, settings.kv_element_bytes
    )
    return replace(
        pool,
        host_tokens=int(gib * GIB / (token_bytes * parallel.tensor)),
        host_token_s=token_bytes / constant("pcie_bytes_per_s"),
    )


def usual_step_model(settings: Settings, engine: Engine) -> StepModel:
    """The roofline of this model and GPU."""
    model = engine.step_model(settings)
    if model is None:
        raise _not_known(
            "how long a step takes is not known without a model and a known GPU"
        )
    return model


def _not_known(what: str) -> MissingError:
    hint = "plan for both: `chunkscope recommend --model llama-3.1-8b --gpu h200`"
    return MissingError(what, hint=hint)


class ModelTimes:
    """The step times of a model. Blocks that neighbours share are read faster."""

    def __init__(
        self, model: StepModel, workload: Workload, settings: Settings, pool: KvPool
    ) -> None:
        share = 0.0
        if workload.stretches and settings.enable_prefix_caching:
            requests = workload.requests
            if len(workload.likelihoods) < len(requests):
                share = read_together(requests, workload.stretches)
        self._model = with_graphs(model.sharing(share), settings)
        self._loaded_token_s = pool.host_token_s

    def decode_seconds(self, requests: int, contexts: np.ndarray) -> np.ndarray:
        """What the GPU takes for steps with so many tokens, and these contexts."""
        return self._model.decode_s(requests, contexts)

    def __call__(self, step: Step) -> StepSeconds:
        model = self._model
        tokens = step.total_num_scheduled_tokens
        requests = step.prefill_requests + step.decode_requests
        gpu_s = model.gpu_s(
            tokens, step.prefill_pairs, step.decode_context_tokens, requests
        )
        gpu_s += step.loaded_tokens * self._loaded_token_s
        host = model.host_parts(tokens, requests, step.prefill_requests)
        return StepSeconds(gpu_s, *host)


def with_graphs(model: StepModel, settings: Settings) -> StepModel:
    """Steps of up to so many tokens replay a CUDA graph: as many as are asked for, or
    vLLM's own number, which ends at twice max_num_seqs."""
    tokens = settings.max_cudagraph_capture_size
    if tokens is None:
        tokens = min(model.graphed_tokens, 2 * settings.step_requests)
    return replace(model, graphed_tokens=min(tokens, settings.step_tokens))


# -- requests ------------------------------------------------------------------


def check_requests(
    workload: Workload, settings: Settings, pool: KvPool, rules: Rules
) -> None:
    """InputError where no engine could ever serve the longest request with this
    setting."""
    if not workload.sessions:
        raise InputError("there are no requests", hint="is the profile or trace empty?")
    tokens = place = requests = 0
    for session in workload.sessions:
        requests += len(session.turns)
        if session.longest > tokens:
            tokens, place = session.longest, requests
    limit = settings.max_model_len
    blocks = GroupBlocks(settings, pool, rules)
    # The last token is never read back: it needs no room.
    if blocks.to_reserve(tokens - 1) > pool.num_blocks:
        held = bisect(range(tokens), pool.num_blocks, key=blocks.to_reserve) - 1
        why = f"{tokens - 1:,} tokens, and the KV cache holds {max(0, held):,} of one"
        hint = "plan for a GPU with more memory, or leave such requests out"
        raise InputError(f"request {place:,} can never fit: {why} request", hint=hint)
    if limit is not None and tokens > limit:
        raise InputError(
            f"request {place:,} has {tokens:,} tokens, max_model_len is {limit:,}"
        )
    # A request that is preempted at its end is read again whole, with all but its last
    # token.
    chunked = settings.enable_chunked_prefill or settings.long_prefill_token_threshold
    if not chunked and tokens - 1 > settings.step_tokens:
        raise InputError(
            f"request {place:,} may have {tokens - 1:,} tokens to read, and with "
            f"chunking off one step takes {settings.step_tokens:,}",
            hint="raise the budget to max_model_len, or leave chunking on",
        )


def session_states(workload: Workload, block_size: int) -> list[RequestState]:
    """The first request of each session, which leads to the next ones."""
    paths = block_paths(workload.stretches, block_size)
    scored = workload.likelihoods
    sessions: list[RequestState] = []
    own = len(workload.stretches)  # the next name of blocks that nobody shares
    place = 0
    for number, session in enumerate(workload.sessions):
        # What the first prompt shares, and then what the session has for itself.
        path = paths[session.stretch] if session.stretch >= 0 else ()
        kept_tokens = session.turns[0].prompt_tokens
        before: RequestState | None = None
        for turn in session.turns:
            if before is not None:
                kept_tokens = turn.kept_tokens
            if (
                before is None
                or kept_tokens < before.num_prompt_tokens + before.max_tokens
            ):
                path = path_with_own(path, own, kept_tokens // block_size)
                own += 1
            state = RequestState(
                id=place,
                session=number,
                num_prompt_tokens=turn.prompt_tokens,
                max_tokens=turn.output_tokens,
                arrival_s=session.arrival_s,
                path=path,
                skips_cache=place in scored,
                think_s=turn.think_s,
            )
            if before is None:
                sessions.append(state)
            else:
                before.next_turn = state
            place += 1
            before = state
    return sessions


def path_with_own(path: Path, own: int, blocks: int) -> Path:
    """The first of these blocks, then others without end, which nobody else has."""
    parts = []
    for part in path:
        if part.start < blocks:
            parts.append(part._replace(end=min(part.end, blocks)))
    start = parts[-1].end if parts else 0
    return (*parts, PathPart(own, start, NO_END))


# -- the run -------------------------------------------------------------------


class Clock:
    """`launch` a step, `finish` the oldest that is launched.

    `gpu_s`: what the GPU computed in all; where all requests come at once, as long as
    the run would take with a host that takes no time.
    """

    def __init__(self, step_times: StepTimes, start: float) -> None:
        self.now = self._gpu_free = start
        self.ends: list[float] = []  # of steps that are finished
        self.gaps = Gaps()
        self.gpu_s = 0.0
        self.tokens = 0
        self._step_times = step_times
        self.launched: deque[Launched] = deque()

    def decode_seconds(self, requests: int, contexts: np.ndarray) -> np.ndarray | None:
        """What the GPU takes for steps that only decode; None where only single steps
        have a time."""
        if not isinstance(self._step_times, ModelTimes):
            return None
        return self._step_times.decode_seconds(requests, contexts)

    def launch(self, step: Step) -> None:
        """Kernel by kernel, the GPU cannot be done before the last is launched."""
        seconds = self._step_times(step)
        launched = self.now
        ready = launched + seconds.prepare
        self.now = ready + seconds.launch
        computed = max(self._gpu_free, ready) + seconds.gpu
        self._gpu_free = max(computed, self.now)
        self.launched.append(Launched(step, launched, self._gpu_free, seconds.hand_out))
        self.tokens += step.total_num_scheduled_tokens
        self.gpu_s += seconds.gpu

    def skip(self, step: Step, gpu_s: np.ndarray, until_s: float) -> int:
        """Launch as many steps like this one as end before a time, and finish all but
        the last: if the GPU is busy all the time, its times add up.

        `gpu_s` are theirs, in order. How many were launched.
        """
        if len(self.launched) != 1:
            return 0
        before = self.launched[0]
        host = self._step_times(step)
        host_s = host.prepare + host.launch
        if (
            gpu_s.min() < host_s + host.hand_out
            or before.computed_s < self.now + host_s
        ):
            return 0  # the GPU waits for the host
        computed_s = np.cumsum(np.concatenate([[before.computed_s], gpu_s]))
        ends_s = computed_s + host.hand_out
        steps = int(np.searchsorted(ends_s, until_s)) - 1
        if steps < FEWEST_SKIPPED:
            return 0
        self.finish()
        ends = ends_s[1:steps].tolist()
        self.gaps.seconds += np.diff(ends_s[:steps]).tolist()
        self.gaps.counts += [step.decoding_on] * (steps - 1)
        self.ends += ends
        self.now = self.ends[-1]
        self._gpu_free = float(computed_s[steps])
        self.launched.append(Launched(step, self.now, self._gpu_free, host.hand_out))
        # Added one by one, as single steps are: to the last bit.
        so_far_s = np.concatenate([[self.gpu_s], gpu_s[:steps]])
        self.gpu_s = float(np.cumsum(so_far_s)[-1])
        self.tokens += steps * step.decode_requests
        return steps

    def finish(self) -> tuple[Step, float]:
        """The tokens that a step gives are there at its end; how long it took."""
        step, launched, computed, hand_out = self.launched.popleft()
        before = self.ends[-1] if self.ends else launched
        self.now = max(computed, self.now) + hand_out
        if step.decoding_on:
            self.gaps.add(self.now - before, step.decoding_on)
        for last_step in step.resumed:
            self.gaps.add(self.now - self.ends[last_step])
        self.ends.append(self.now)
        return step, self.now - max(launched, before)


class Launched(NamedTuple):
    """A step that runs: when it was launched and will be computed, and handing out its
    tokens."""

    step: Step
    launched_s: float
    computed_s: float
    hand_out_s: float


class Replica:
    """One scheduler with its clock: the only one, or one of several."""

    def __init__(
        self, scheduler: Scheduler, clock: Clock, client: Client, *, timeline: int
    ) -> None:
        self._scheduler, self._clock, self._client = scheduler, clock, client
        self._start_s = clock.now
        self._timeline: list[TimelineStep] = []
        self._timeline_steps = timeline
        self._requests: list[RequestState] = []
        self._preemptions = self._most_running = 0
        # With async scheduling a step is launched before the result of the last is
        # there.
        self._lag = 1 if scheduler.rules.async_scheduling else 0

    @property
    def now(self) -> float:
        return self._clock.now

    @property
    def waiting(self) -> int:
        return len(self._scheduler.waiting)

    @property
    def running(self) -> int:
        return len(self._scheduler.running)

    @property
    def is_busy(self) -> bool:
        return bool(self._clock.launched or self.running or self.waiting)

    def accept(self, request: RequestState, now: float) -> None:
        """A request has come; an idle replica was waiting for it."""
        self._clock.now = max(self._clock.now, now)
        self._scheduler.waiting.append(request)
        self._requests.append(request)

    def run(self) -> ReplicaRun:
        """All that happened."""
        clock = self._clock
        return ReplicaRun(
            requests=self._requests,
            start_s=self._start_s,
            ends_s=clock.ends,
            gaps=clock.gaps,
            gpu_s=clock.gpu_s,
            tokens=clock.tokens,
            preemptions=self._preemptions,
            most_running=self._most_running,
            timeline=self._timeline,
        )

    def skip_ahead(self, until_s: float) -> None:
        """Take the steps in which nothing happens but the next token of each request,
        all at once, up to when something is sent."""
        scheduler = self._scheduler
        steps = scheduler.uneventful_steps()
        if steps < FEWEST_SKIPPED or self._lag == 0 or self._timeline_steps:
            return
        if scheduler.policy is not ChunkPolicy.VLLM:
            return
        decodes = scheduler.decodes
        count = len(decodes)
        contexts = decodes.context + count * np.arange(1, steps + 1)
        gpu_s = self._clock.decode_seconds(count, contexts)
        if gpu_s is None:
            return
        step = Step(scheduler.num_steps)
        step.decode_requests = step.decoding_on = count
        taken = self._clock.skip(step, gpu_s, until_s)
        if taken:
            scheduler.skip_steps(taken)

    def take_step(self) -> None:
        scheduler, clock = self._scheduler, self._clock
        step = scheduler.schedule()
        self._preemptions += len(step.preempted)
        if step:
            clock.launch(step)
            self._most_running = max(self._most_running, len(scheduler.running))
            if step.number < self._timeline_steps:
                self._timeline.append(timeline_step(step, len(scheduler.waiting)))
        elif not clock.launched and not step.preempted:
            raise AssertionError("nothing can be scheduled, and something waits")
        lag = self._lag if step else 0
        while len(clock.launched) > lag:
            self._finish()

    def _finish(self) -> None:
        step, seconds = self._clock.finish()
        scheduler = self._scheduler
        if scheduler.policy is ChunkPolicy.ADAPTIVE:
            chunk = scheduler.adaptive_chunk
            scheduler.adaptive_chunk = adapted_chunk(
                chunk, step, seconds, scheduler.settings
            )
        if step.ended:
            scheduler.update_from_output(step)
            for request in step.ended:
                self._client.ended(request, self._clock.now)


def timeline_step(step: Step, waiting: int) -> TimelineStep:
    """Its times are not known yet."""
    chunks = []
    for request, tokens in step.num_scheduled_tokens.items():
        end = request.num_computed_tokens
        if end <= request.num_prompt_tokens:
            prompt_tokens = request.num_prompt_tokens
            chunks.append(PromptChunk(request.id, end - tokens, end, prompt_tokens))
    return TimelineStep(
        number=step.number,
        decode_requests=step.decode_requests,
        chunks=tuple(chunks),
        waiting=waiting,
        preempted=tuple(request.id for request in step.preempted),
    )
