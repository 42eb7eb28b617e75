"""What vLLM does differently by version: its scheduler, its defaults, its checks.

tests/simulation/test_scheduler_twin.py agreed with the schedulers of 0.12, 0.14, 0.16,
0.18, 0.19.1, 0.22.1 to 0.28, 0.30, 0.31 and 0.32. The rest was read or executed in
these versions.
"""

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

Version = tuple[int, int, int]
OLDEST: Version = (0, 12, 0)
NEWEST: Version = (0, 32, 0)


def _rule(first: Any, *changes: tuple[Version, Any]) -> Any:
    """A field: what the oldest version does, and what later ones do, in their order."""
    table = ((OLDEST, first), *changes)
    return field(default=table[-1][1], metadata={"table": table})


def _since(version: Version) -> Any:
    return _rule(False, (version, True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How one version schedules, and what it takes by itself; by default the newest."""

    # A request is admitted only when all of it fits.
    reserves_full_prompt: bool = _since((0, 19, 0))
    # Blocks that were never used are taken before cached ones.
    blank_blocks_first: bool = _since((0, 24, 0))
    # The threshold caps a request though nobody else waits. With the end of that came
    # max_num_active_seqs and long_prefill_token_threshold_adaptive.
    lone_request_is_capped: bool = _rule(True, ((0, 31, 0), False))
    # Step t + 1 is scheduled before step t is done.
    async_scheduling: bool = _since((0, 14, 0))
    # A group with a window asks for what it holds; only 0.19 reserved as if it kept
    # all.
    window_caps_admission: bool = _rule(True, ((0, 19, 0), False), ((0, 20, 0), True))
    keeps_window_of_running_step: bool = _since((0, 26, 0))

    gpu_memory_utilization: float = _rule(0.9, ((0, 20, 0), 0.92))
    # Its wheels and images are of CUDA 13.
    leaves_volta_out: bool = _since((0, 20, 0))
    # long_prefill_token_threshold may not be over max_model_len.
    checks_threshold: bool = _since((0, 27, 0))
    hybrid_refuses_off: bool = _since((0, 26, 0))
    hybrid_caches_prefixes: bool = _since((0, 26, 0))
    # Tokens that the experts' kernel takes at once; None: all of a step.
    expert_tokens: int | None = _rule(32_768, ((0, 14, 0), 16_384), ((0, 19, 0), None))
    # Whom the second model runner serves: nobody (0), a list of architectures (1),
    # dense models too (2), all (3).
    v2_runner: int = _rule(0, ((0, 22, 0), 1), ((0, 28, 0), 2), ((0, 29, 0), 3))
    # A data-centre Blackwell captures CUDA graphs of larger steps.
    large_graphs_on_blackwell: bool = _since((0, 28, 0))
    # The runner takes the memory of CUDA graphs off the KV cache.
    v1_counts_graphs: bool = _since((0, 20, 0))
    v2_counts_graphs: bool = _since((0, 32, 0))


@cache
def rules_at(version: Version) -> Rules:
    """The rules of a version.

    >>> rules_at((0, 30, 0)).lone_request_is_capped
    True
    """
    values = {}
    for rule in fields(Rules):
        for since, value in rule.metadata["table"]:
            if since <= version:
                values[rule.name] = value
    return Rules(**values)
