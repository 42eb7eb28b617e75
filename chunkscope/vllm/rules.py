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
from chunkscope.vllm.settings import SINCE_0_31, EngineArgs

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
    async_by_default: bool = _rule((0, 14, 0))  # step t + 1 is scheduled before t is done
    has_watermark: bool = _rule((0, 24, 0))
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


def check_args(args: EngineArgs, rules: Rules) -> None:
    """The combinations with which vLLM, or this copy of it, would not start."""
    for name in ("max_num_batched_tokens", "max_num_seqs", "kv_cache_tokens", "block_size"):
        if getattr(args, name) < 1:
            raise UsageError(f"{name} must be at least 1, not {getattr(args, name)}")
    threshold = args.long_prefill_token_threshold
    if threshold < 0:
        raise UsageError(f"long_prefill_token_threshold must not be negative: {threshold}")
    if args.max_num_batched_tokens < args.max_num_seqs:
        raise UsageError(
            f"max_num_batched_tokens ({args.max_num_batched_tokens:,}) must be at least "
            f"max_num_seqs ({args.max_num_seqs:,}): vLLM refuses to start",
            hint="raise the budget, or lower max_num_seqs",
        )
    if not 0 <= args.watermark < 1:
        raise UsageError(f"watermark must be in [0, 1), not {args.watermark}")
    if args.watermark and not rules.has_watermark:
        raise UsageError("this vLLM version has no watermark")
    for name in SINCE_0_31:
        if getattr(args, name) and not rules.has_fair_shares:
            raise UsageError(f"this vLLM version has no {name}: it came with 0.31")
    if not 1 <= args.most_running <= args.max_num_seqs:
        raise UsageError(
            f"max_num_active_seqs ({args.most_running:,}) must be from 1 to max_num_seqs "
            f"({args.max_num_seqs:,}): vLLM refuses to start"
        )
