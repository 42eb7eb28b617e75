"""Lowers three of vLLM's limits while an engine runs; measure_many.py loads it.

How many requests run, how many tokens a step has, and up to which size it replays its
CUDA graph. The scheduler reads them in every step, and lives in the process of the only
worker.
"""

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
from vllm.v1.worker.gpu import cudagraph_utils

LIMITS = {"running": 1 << 30, "graphs": 1 << 30, "tokens": 1 << 30}


class Limits:
    """What the worker answers besides its own methods."""

    def lower_limits(self, running: int, graphs: int, tokens: int) -> None:
        LIMITS.update(running=running, graphs=graphs, tokens=tokens)


def with_fewer_requests(schedule: Any) -> Any:
    def schedule_fewer(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = self.scheduler_config
        self.max_num_running_reqs = min(LIMITS["running"], config.max_num_seqs)
        tokens = min(LIMITS["tokens"], config.max_num_batched_tokens)
        self.max_num_scheduled_tokens = tokens
        return schedule(self, *args, **kwargs)

    return schedule_fewer


def with_fewer_graphs(dispatch: Any, *, captured: str, place: int) -> Any:
    """As if nothing was captured where a step has more tokens than the limit.

    `captured` names the attribute that says so; `place` is that of the tokens among the
    arguments.
    """

    def dispatch_small(self: Any, *args: Any, **kwargs: Any) -> Any:
        tokens = kwargs.get("num_tokens", args[place] if len(args) > place else 0)
        if tokens <= LIMITS["graphs"]:
            return dispatch(self, *args, **kwargs)
        usual = getattr(self, captured)
        setattr(self, captured, False)
        try:
            return dispatch(self, *args, **kwargs)
        finally:
            setattr(self, captured, usual)

    return dispatch_small


Scheduler.schedule = with_fewer_requests(Scheduler.schedule)
CudagraphDispatcher.dispatch = with_fewer_graphs(
    CudagraphDispatcher.dispatch, captured="keys_initialized", place=0
)
for value in list(vars(cudagraph_utils).values()):
    if isinstance(value, type) and "dispatch" in vars(value):
        value.dispatch = with_fewer_graphs(
            value.dispatch, captured="_graphs_captured", place=1
        )
