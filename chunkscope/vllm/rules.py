"""What vLLM's scheduler does differently by version, as data.

tests/simulation/test_scheduler_twin.py agreed with the schedulers of 0.11.2, 0.12, 0.14, 0.16,
0.18, 0.19, 0.22.1, 0.24, 0.28, 0.30, 0.31 and 0.32. 0.10.2 differs in two corners: it goes on
computing for a request that it has just preempted by priority, and with async scheduling, which is
not its default, it schedules one token too many.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from chunkscope.errors import UsageError
from chunkscope.vllm.flags import Release, Version
from chunkscope.vllm.settings import SINCE_0_31, Settings

DEFAULT: Version = (0, 30, 0)  # whose rules hold where no version is named


def _rule(*changed: Version, first: bool = False) -> Any:
    """What 0.10.2 does, and the versions that changed it to the opposite and back."""
    meta = {"first": first, "changed": changed}
    return field(default=_holds(meta, DEFAULT), metadata=meta)


def _holds(rule: Mapping[str, Any], version: Version) -> bool:
    return bool((rule["first"] + sum(since <= version for since in rule["changed"])) % 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How one version schedules.

    With chunking off, a prompt over what is left of the budget stops the queue (or is skipped), and
    without prefix caching the threshold may be dropped as well. `lone_request_is_capped`: by the
    threshold, though nobody else waits.
    """

    unchunked_stops_the_queue: bool = _rule((0, 12, 0))
    unchunked_drops_the_threshold: bool = _rule((0, 11, 1), (0, 12, 0))
    reserves_full_prompt: bool = _rule((0, 19, 0))  # a request is admitted when all of it fits
    blank_blocks_first: bool = _rule((0, 24, 0))  # reused before cached ones
    lone_request_is_capped: bool = _rule((0, 31, 0), first=True)
    async_scheduling: bool = _rule((0, 14, 0))  # step t + 1 is scheduled before t is done
    has_fair_shares: bool = _rule((0, 31, 0))  # the adaptive threshold, and max_num_active_seqs
    window_caps_admission: bool = _rule((0, 24, 0))  # a group with a window asks for what it holds
    keeps_window_of_running_step: bool = _rule((0, 28, 0))


def rules_of(release: Release) -> Rules:
    """
    >>> from chunkscope.vllm.flags import release
    >>> rules_of(release("0.30")).lone_request_is_capped
    True
    """
    return Rules(**{x.name: _holds(x.metadata, release.version) for x in fields(Rules)})


def check_settings(settings: Settings, rules: Rules) -> None:
    """The combinations with which vLLM would not start; settings are complete."""
    budget, seqs = settings.step_tokens, settings.step_requests
    for name, value in (("max_num_batched_tokens", budget), ("max_num_seqs", seqs)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    threshold = settings.long_prefill_token_threshold or 0
    if threshold < 0:
        raise UsageError(f"long_prefill_token_threshold must not be negative: {threshold}")
    if budget < seqs:
        raise UsageError(
            f"max_num_batched_tokens ({budget:,}) must be at least max_num_seqs ({seqs:,}): "
            "vLLM refuses to start",
            hint="raise the budget, or lower max_num_seqs",
        )
    for name in SINCE_0_31:
        if getattr(settings, name) and not rules.has_fair_shares:
            raise UsageError(f"this vLLM version has no {name}: it came with 0.31")
    if not 1 <= settings.most_running <= seqs:
        raise UsageError(
            f"max_num_active_seqs ({settings.most_running:,}) must be from 1 to max_num_seqs "
            f"({seqs:,}): vLLM refuses to start"
        )
