"""Many settings of the same workload: which of them nobody beats, and where it bends."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace

from chunkscope.artefacts.figures import ITL_MAX, ITL_P99, MAKESPAN, TTFT_P95, Figure
from chunkscope.errors import InputError
from chunkscope.simulation.loop import Circumstances, run_setting
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.settings import EngineArgs, Settings

BUDGETS = (256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
THRESHOLDS = (512, 2_048, 8_192)
# Below this, a pool of processes costs more than it saves.
REQUESTS_WORTH_A_POOL = 2_000


def points(base: Settings) -> Iterator[Settings]:
    """Every budget without a threshold, then thresholds at the budget of `base`.

    A budget below max_model_len needs chunking on; one below max_num_seqs runs fewer requests.
    """
    own = Settings.of(base.given())
    size = base.max_num_batched_tokens or 0
    for budget in BUDGETS:
        yield _at(own, budget, 0)
    for threshold in THRESHOLDS:
        if threshold < size:
            yield _at(own, size, threshold)


def around(base: Settings) -> Iterator[Settings]:
    """A few budgets beside that of `base`, smaller and larger."""
    own, size = Settings.of(base.given()), base.max_num_batched_tokens or 0
    for budget in (size // 4, size // 2, size * 2):
        if budget >= BUDGETS[0]:
            yield _at(own, budget, own.long_prefill_token_threshold or 0)


def _at(base: Settings, budget: int, threshold: int) -> Settings:
    return replace(
        base.at_budget(budget),
        long_prefill_token_threshold=threshold,
        enable_chunked_prefill=True,
    )


Work = Callable[[Circumstances, EngineArgs], SimulatedRun]


def run_all(
    c: Circumstances,
    chosen: Sequence[EngineArgs],
    *,
    work: Work = run_setting,
    processes: int | None = None,
    advance: Callable[[], None] = lambda: None,
) -> tuple[SimulatedRun, ...]:
    """All settings, on all cores where that pays; in their order, whoever is done first."""
    many = min(processes or os.cpu_count() or 1, len(chosen))
    is_short = work is run_setting and len(c.requests) < REQUESTS_WORTH_A_POOL
    if many < 2 or is_short:
        runs = []
        for args in chosen:
            runs.append(work(c, args))
            advance()
        return tuple(runs)
    return _in_processes(c, chosen, work, many, advance)


def _in_processes(
    c: Circumstances,
    chosen: Sequence[EngineArgs],
    work: Work,
    many: int,
    advance: Callable[[], None],
) -> tuple[SimulatedRun, ...]:
    # A fresh process, not a fork: a progress bar's thread may hold a lock just then.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(many, fresh, initializer=_remember, initargs=(c,)) as pool:
        try:
            with _deaf_to_ctrl_c():
                places = {pool.submit(_run, work, args): at for at, args in enumerate(chosen)}
            done: dict[int, SimulatedRun] = {}
            for future in as_completed(places):
                done[places[future]] = future.result()
                advance()
        except BrokenProcessPool as error:
            raise InputError("a process of the sweep was ended from outside") from error
        except BaseException:
            _end(pool)
            raise
    return tuple(done[place] for place in range(len(chosen)))


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that start in here do not hear it: the parent answers for all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_circumstances: Circumstances | None = None


def _remember(c: Circumstances) -> None:
    """Sent once to each process, not with every setting."""
    global _circumstances
    _circumstances = c


def _run(work: Work, args: EngineArgs) -> SimulatedRun:
    if _circumstances is None:
        raise AssertionError("a process of the pool was not told what to run")
    return work(_circumstances, args)


def _end(pool: ProcessPoolExecutor) -> None:
    """Ctrl-C: do not wait for what is still being simulated."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def axes(runs: Sequence[SimulatedRun]) -> tuple[Figure, Figure]:
    """What settings are weighed by: who decides when requests come decides the makespan, too."""
    return (TTFT_P95, ITL_P99) if any(run.backlog for run in runs) else (MAKESPAN, ITL_MAX)


def _places(runs: Sequence[SimulatedRun]) -> list[tuple[float, float]]:
    x, y = axes(runs)
    return [(x.value(run.figures) or 0.0, y.value(run.figures) or 0.0) for run in runs]


def pareto(runs: Sequence[SimulatedRun]) -> tuple[int, ...]:
    """Places of the runs that no other beats on both axes, the best on the first one first."""
    places = _places(runs)
    kept, best = [], float("inf")
    for place in sorted(range(len(runs)), key=lambda i: (*places[i], i)):
        if places[place][1] < best:
            kept.append(place)
            best = places[place][1]
    return tuple(kept)


def knee(runs: Sequence[SimulatedRun], front: Sequence[int]) -> int | None:
    """Where the front bends: farthest below the line between its ends. None without a bend."""
    if len(front) < 3:
        return None
    places = _places(runs)
    points = [places[place] for place in front]
    (x0, y0), (x1, y1) = points[0], points[-1]
    below = [1 - (x - x0) / (x1 - x0) - (y - y1) / (y0 - y1) for x, y in points]
    best = max(range(len(front)), key=lambda i: (below[i], -i))
    return front[best] if below[best] > 1e-9 else None
