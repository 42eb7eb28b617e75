"""What vLLM does differently by version, as data: its scheduler, its defaults, its checks.

tests/simulation/test_scheduler_twin.py agreed with the schedulers of 0.11.2, 0.12, 0.14, 0.16,
0.18, 0.19.1, 0.22.1 to 0.28, 0.30, 0.31 and 0.32. 0.10.2 differs in two corners: it goes on
computing for a request that it has just preempted by priority, and with async scheduling, which is
not its default, it schedules one token too many. The rest was read or executed in these versions.
"""

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

Version = tuple[int, int, int]
OLDEST: Version = (0, 10, 2)
NEWEST: Version = (0, 32, 0)
DEFAULT: Version = (0, 30, 0)  # whose rules hold where no version is named


def _rule(first: Any, *changes: tuple[Version, Any]) -> Any:
    """What 0.10.2 does, and what holds from other versions on, in their order."""
    table = ((OLDEST, first), *changes)
    return field(default=_value(table, DEFAULT), metadata={"table": table})


def _since(version: Version) -> Any:
    return _rule(False, (version, True))


def _value(table: tuple[tuple[Version, Any], ...], version: Version) -> Any:
    return next(value for since, value in reversed(table) if since <= version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How one version schedules, and what it takes by itself.

    With chunking off, a prompt over what is left of the budget stops the queue (or is skipped), and
    without prefix caching the threshold may be dropped as well. `lone_request_is_capped`: by the
    threshold, though nobody else waits; with its end came UNUSUAL[:2] of settings.py.
    """

    unchunked_stops_the_queue: bool = _since((0, 12, 0))
    unchunked_drops_the_threshold: bool = _rule(
        False, ((0, 11, 1), True), ((0, 12, 0), False)
    )
    reserves_full_prompt: bool = _since(
        (0, 19, 0)
    )  # a request is admitted when all of it fits
    blank_blocks_first: bool = _since((0, 24, 0))  # reused before cached ones
    lone_request_is_capped: bool = _rule(True, ((0, 31, 0), False))
    async_scheduling: bool = _since(
        (0, 14, 0)
    )  # step t + 1 is scheduled before t is done
    # A group with a window asks for what it holds; only 0.19 reserved as if it kept all.
    window_caps_admission: bool = _rule(True, ((0, 19, 0), False), ((0, 20, 0), True))
    keeps_window_of_running_step: bool = _since((0, 26, 0))

    off_is_ignored: bool = _rule(
        True, ((0, 11, 1), False)
    )  # chunking cannot be switched off
    gpu_memory_utilization: float = _rule(0.9, ((0, 20, 0), 0.92))
    leaves_volta_out: bool = _since((0, 20, 0))  # its wheels and images are of CUDA 13
    tries_kernels: bool = _since(
        (0, 11, 1)
    )  # while it compiles (by default from torch 2.9 on)
    checks_threshold: bool = _since((0, 27, 0))
    stays_unstretched: bool = _since(
        (0, 11, 1)
    )  # longrope's original context (PR 27431)
    chunks_are_windows: bool = _since((0, 14, 0))  # Llama 4 keeps no more KV (PR 29627)
    own_kv_cache: bool = _since(
        (0, 15, 0)
    )  # 8 bits if they say so (PRs 30785 and 30141)
    hybrid_refuses_off: bool = _since((0, 26, 0))
    hybrid_caches_prefixes: bool = _since((0, 26, 0))
    expert_tokens: int | None = _rule(
        32_768, ((0, 14, 0), 16_384), ((0, 19, 0), None)
    )  # at once
    # Whom the second model runner serves: nobody, a list of architectures, dense models too, all.
    v2_runner: int = _rule(0, ((0, 22, 0), 1), ((0, 28, 0), 2), ((0, 29, 0), 3))
    v1_counts_graphs: bool = _since((0, 20, 0))  # takes their memory off the KV cache
    v2_counts_graphs: bool = _since((0, 32, 0))


@cache
def rules_at(version: Version) -> Rules:
    """
    >>> rules_at((0, 30, 0)).lone_request_is_capped
    True
    """
    return Rules(
        **{x.name: _value(x.metadata["table"], version) for x in fields(Rules)}
    )
