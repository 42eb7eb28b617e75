"""How many samples or requests to keep under way: the fewest that are as fast as more.

So nobody waits longer than needed. Of sessions, more may also be slower: what earlier
turns left in the KV cache is evicted before the next turn comes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, sqrt
from typing import Literal

from chunkscope.hardware.gpus import GIB, TABLE
from chunkscope.models.shape import BYTES
from chunkscope.planning.case import Case, round_up
from chunkscope.planning.plan import ConcurrencyAnswer, ConcurrencyPoint, KneeChange
from chunkscope.planning.request import client_of
from chunkscope.planning.search import Search
from chunkscope.planning.simulator import NEVER, Simulator
from chunkscope.simulation.draw import outgrown_sessions
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.workload import Workload
from chunkscope.vllm.flags import flags_of
from chunkscope.vllm.settings import Settings

HOUR_S = 3_600
AS_FAST = 1.02  # times as long as the fastest run
PAST_KNEE = 1.1  # times as long as the fastest run, where more only costs
# Of very many sessions, so many times as many are simulated as are under way.
TIMES_AT_ONCE = 4
FEW_REQUESTS = 500  # that are always simulated whole
ROUNDS = 2  # of looking between two points of the grid
LARGER_TIMES = 1.2  # as much memory as the GPU has, for another one to be named
LEAST_CONTEXT = 4_096  # tokens: nobody gives an agent less
MOST_ANSWER_TOKENS = 8_000_000  # of requests that are simulated
HOST_STEP_GIB = 16  # host memory is named in multiples of it
MOST_HOST_GIB = 256
WORTH_A_CHANGE = 1.05  # times as fast: for less nobody changes the engine
NEAR_NUMBERS = 1.15  # as many under way: what lies between makes no difference


class Curve:
    """One workload with different numbers under way, each simulated once.

    `requests`: all that are sent, of which the workload may hold a part.
    """

    def __init__(
        self,
        simulator: Simulator,
        settings: Settings,
        *,
        unit: Literal["samples", "requests"],
        requests: int,
    ) -> None:
        self.unit = unit
        self._simulator = simulator
        self._settings = settings
        self._requests = requests
        self.runs: dict[int, SimulatedRun | None] = {}

    @property
    def workload(self) -> Workload:
        return self._simulator.workload

    @property
    def most(self) -> int:
        """All at once."""
        return len(self.workload.sessions)

    def run(self, at_once: int) -> SimulatedRun | None:
        """None where vLLM would not start."""
        if at_once not in self.runs:
            workload = self._part(at_once)
            if self.unit == "samples":
                workload = replace(workload, samples_at_once=at_once, concurrency=None)
            else:
                workload = replace(workload, concurrency=at_once)
            simulator = replace(self._simulator, workload=workload, runs={})
            self.runs[at_once] = simulator.attempt(self._settings)
        return self.runs[at_once]

    def _part(self, at_once: int) -> Workload:
        """Of very many sessions some, so that places are taken again and again."""
        workload = self.workload
        count = TIMES_AT_ONCE * at_once
        if self.unit == "requests" or count >= self.most:
            return workload
        if len(workload.requests) <= FEW_REQUESTS:
            return workload
        return workload.every_nth(self.most // count)

    def hours(self, at_once: int) -> float:
        """Of all requests."""
        run = self.run(at_once)
        if run is None:
            return NEVER
        return run.figures.makespan_s * self._requests / run.requests / HOUR_S

    def share(self, at_once: int) -> float:
        """How many times as many requests there are as this run has."""
        run = self.run(at_once)
        return self._requests / run.requests if run else 1.0

    @property
    def best_hours(self) -> float:
        return min(self.hours(at_once) for at_once in self.runs)

    @property
    def enough(self) -> int:
        """The fewest under way that are as fast as the fastest run."""
        longest = AS_FAST * self.best_hours
        return min(n for n in self.runs if self.hours(n) <= longest)

    def points(self) -> tuple[ConcurrencyPoint, ...]:
        """All that was simulated, the fewest under way first."""
        points = []
        for at_once in sorted(self.runs):
            run = self.runs[at_once]
            if run is None or run.figures.ttft_s is None or run.figures.e2e_s is None:
                continue
            point = ConcurrencyPoint(
                at_once=at_once,
                hours=self.hours(at_once),
                served_from_cache=run.cached_tokens / run.input_tokens,
                ttft_p50_s=run.figures.ttft_s.p50,
                ttft_p95_s=run.figures.ttft_s.p95,
                e2e_p95_s=run.figures.e2e_s.p95,
                preemptions=round((run.figures.preemptions or 0) * self.share(at_once)),
            )
            points.append(point)
        return tuple(points)


def concurrency_of(search: Search, settings: Settings) -> ConcurrencyAnswer | None:
    """How many to keep under way; None where nothing can be simulated, or where
    requests come by themselves."""
    case = search.case
    if not case.can_simulate or case.request.is_open or not case.served:
        return None
    if case.has_sessions:
        return samples_answer(search, settings)
    return requests_answer(search, settings)


# -- requests by themselves ------------------------------------------------------------


def requests_answer(search: Search, settings: Settings) -> ConcurrencyAnswer | None:
    """By halving, since more requests under way are never much slower."""
    case = search.case
    workload = search.part.workload
    most = search.requests_with(MOST_ANSWER_TOKENS)
    count = min(search.enough_requests(), most, len(search.whole.workload.sessions))
    if len(workload.sessions) < count:
        # The longest answers must not be all that takes time.
        workload = case.draw(count=count, together=True)
    curve = Curve(
        search.simulator(without_client(workload)),
        settings,
        unit="requests",
        requests=case.served,
    )
    run = curve.run(curve.most)
    if run is None:
        return None
    halve(curve, min(run.most_running, curve.most))
    advised = curve.enough
    client = client_of(case.request, case.datasets).at_once
    return ConcurrencyAnswer(
        unit="requests",
        advised=advised,
        client=client,
        points=curve.points(),
        samples=case.served,
        timeouts=timeouts(curve, client or advised),
    )


def halve(curve: Curve, at_once: int) -> None:
    """Simulate half as many under way, again and again, until that is slower; then what
    lies between."""
    too_few = at_once
    while too_few > 1 and curve.hours(too_few) <= AS_FAST * curve.best_hours:
        too_few //= 2
    enough = curve.enough
    while enough - too_few > max(1, enough // 16):
        tried = (too_few + enough) // 2
        if curve.hours(tried) <= AS_FAST * curve.best_hours:
            enough = tried
        else:
            too_few = tried


def without_client(workload: Workload) -> Workload:
    """All at once, whatever the client would keep under way."""
    return replace(workload, concurrency=None, samples_at_once=None, phases=())


def timeouts(curve: Curve, at_once: int) -> int | None:
    """Of all requests, those for which the client does not wait long enough."""
    at_once = min(at_once, curve.most)
    run = curve.run(at_once)
    if run is None or run.timeouts is None:
        return None
    return round(run.timeouts * curve.share(at_once))


# -- sessions --------------------------------------------------------------------------


def samples_answer(search: Search, settings: Settings) -> ConcurrencyAnswer | None:
    """From one under way to all: beyond a number the KV cache may hold no context until
    its next turn."""
    agents = only_sessions(search.case)
    curve = curve_of(agents, settings, search.tick)
    for at_once in doubling(curve):
        curve.run(at_once)
    if curve.best_hours == NEVER:
        return None
    look_between(curve)
    client = client_of(agents.request, agents.datasets).at_once
    advised = curve.enough
    if client is not None:
        curve.run(min(client, curve.most))
    changes: tuple[KneeChange, ...] = ()
    if advised < curve.most:
        changes = tuple(knee_changes(agents, settings, curve, search.tick))
    return ConcurrencyAnswer(
        unit="samples",
        advised=advised,
        client=client,
        points=curve.points(),
        changes=changes,
        samples=sessions_in(agents),
        outgrow=outgrown_sessions(agents.datasets, agents.outputs, agents.context),
        timeouts=timeouts(curve, client or advised),
    )


def only_sessions(case: Case) -> Case:
    """The datasets whose requests wait for each other."""
    datasets = tuple(d for d in case.datasets if d.sessions is not None)
    names = [dataset.name for dataset in datasets]
    outputs = {}
    for name, lengths in case.request.outputs.items():
        if name in names:
            outputs[name] = lengths
    return replace(
        case, datasets=datasets, request=replace(case.request, outputs=outputs)
    )


def curve_of(
    case: Case,
    settings: Settings,
    tick: Callable[[], None],
    host_gib: float = 0.0,
) -> Curve:
    workload = without_client(case.draw(together=True))
    return Curve(
        replace(Search(case, tick).simulator(workload), host_gib=host_gib),
        settings,
        unit="samples",
        requests=case.served,
    )


def sessions_in(case: Case) -> int:
    """All samples of the data, as often as each is sent."""
    samples = 0
    for dataset in case.datasets:
        if dataset.sessions is not None:
            samples += len(dataset.sessions.turns)
    return samples * case.request.samples


def doubling(curve: Curve) -> Iterator[int]:
    """1, 2, 4 and so on until more only costs; then all."""
    at_once = 1
    while at_once < curve.most:
        yield at_once
        if curve.hours(at_once) > PAST_KNEE * curve.best_hours:
            break
        at_once *= 2
    yield curve.most


def look_between(curve: Curve) -> None:
    """Simulate what lies beside the best point, until nothing new is there."""
    for _ in range(ROUNDS):
        best = curve.enough
        for left, right in pairwise(sorted(curve.runs)):
            if best in (left, right) and right > NEAR_NUMBERS * left:
                curve.run(max(left, round(sqrt(left * right))))


# -- what else could be ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Another engine or other settings, to see whether more samples fit then."""

    code: str
    case: Case
    settings: Settings
    gpu: str | None = None
    host_gib: float | None = None


def knee_changes(
    case: Case, settings: Settings, usual: Curve, tick: Callable[[], None]
) -> Iterator[KneeChange]:
    """What makes the run faster, and how many to keep under way then, by doubling."""
    advised = usual.enough
    best_hours = usual.best_hours
    for change in changes_of(case, settings):
        curve = curve_of(change.case, change.settings, tick, change.host_gib or 0.0)
        at_once = min(advised, curve.most)
        while curve.hours(at_once) == curve.best_hours and at_once < curve.most:
            at_once = min(2 * at_once, curve.most)
        if curve.best_hours * WORTH_A_CHANGE > best_hours:
            continue
        yield KneeChange(
            code=change.code,
            settings=change.settings.changed_from(settings),
            at_once=curve.enough,
            hours=curve.best_hours,
            gpu=change.gpu,
            host_gib=change.host_gib,
            outgrow=curve.workload.outgrown,
        )


def changes_of(case: Case, settings: Settings) -> Iterator[Change]:
    """Those that this engine would take."""
    halved = replace(settings, kv_cache_dtype="fp8")
    if settings.kv_element_bytes == BYTES and not case.engine.refusals(halved):
        yield Change(code="fp8_kv_cache", case=case, settings=halved)
    shorter = shorter_context(case)
    if shorter is not None:
        asked = replace(case.request.settings, max_model_len=shorter)
        request = replace(case.request, settings=asked)
        yield Change(
            code="shorter_context",
            case=replace(case, request=request),
            settings=replace(settings, max_model_len=shorter),
        )
    if "kv_offloading_size" in flags_of(case.engine.release.version):
        yield Change(
            code="kv_offload",
            case=case,
            settings=settings,
            host_gib=memory_for_all(case, settings),
        )
    gpu = next_gpu(case)
    if gpu is not None:
        engine = replace(case.engine, gpu=TABLE[gpu], measured=None)
        yield Change(
            code="other_gpu",
            case=replace(case, engine=engine),
            settings=settings,
            gpu=gpu,
        )


def shorter_context(case: Case) -> int | None:
    """Half of what the longest session needs; None where that is little."""
    longest = 0
    for dataset in case.datasets:
        if dataset.sessions is not None:
            longest = max(longest, *dataset.sessions.contexts)
    half = round_up(min(longest, case.context) // 2)
    return half if half >= LEAST_CONTEXT else None


def memory_for_all(case: Case, settings: Settings) -> float:
    """GiB that hold the contexts of all samples, as far as a host may have them."""
    if case.engine.shape is None:
        raise AssertionError("the KV cache of an unknown model is not simulated")
    tokens = 0
    for dataset in case.datasets:
        if dataset.sessions is not None:
            contexts = dataset.sessions.contexts
            tokens += sum(contexts[place] for place in dataset.sessions.last_turns)
    token_bytes = case.engine.shape.kv_bytes_per_token(1, settings.kv_element_bytes)
    steps = ceil(tokens * token_bytes / GIB / HOST_STEP_GIB)
    return min(steps * HOST_STEP_GIB, MOST_HOST_GIB)


def next_gpu(case: Case) -> str | None:
    """The smallest of the table with more memory that is as fast, by the same maker."""
    gpu = case.engine.gpu
    if gpu is None or gpu.speed is None:
        return None
    maker = gpu.title.partition(" ")[0]
    larger = []
    for name, candidate in TABLE.items():
        if candidate.speed is None or not candidate.title.startswith(maker):
            continue
        if candidate.memory_gib <= LARGER_TIMES * gpu.memory_gib:
            continue
        reads_as_fast = candidate.speed[0] >= gpu.speed[0]
        computes_as_fast = candidate.speed[1] >= gpu.speed[1]
        if reads_as_fast and computes_as_fast:
            larger.append((candidate.memory_gib, name))
    return min(larger)[1] if larger else None
