"""What vLLM's scheduler does differently by version, as data.

tests/simulation/test_scheduler_twin.py agreed with the schedulers of 0.11.2, 0.12, 0.14, 0.16,
0.18, 0.19, 0.22.1, 0.24, 0.28, 0.30, 0.31 and 0.32. 0.10.2 differs in two corners: it goes on
computing for a request that it has just preempted by priority, and with async scheduling, which is
not its default, it schedules one token too many.
"""

from dataclasses import dataclass

from chunkscope.errors import UsageError
from chunkscope.vllm.flags import LONE_PROMPT_IS_CAPPED, Release, at
from chunkscope.vllm.settings import SINCE_0_31, EngineArgs

# Chunking off and a prompt over what is left of the budget: is the queue stopped, or is the prompt
# skipped and the next one tried?
UNCHUNKED_STOPS_THE_QUEUE = (((0, 10, 2), False), ((0, 12, 0), True))
# Chunking and prefix caching off: is the threshold dropped as well?
UNCHUNKED_DROPS_THE_THRESHOLD = (((0, 10, 2), False), ((0, 11, 1), True), ((0, 12, 0), False))
# Is a request only admitted when its whole prompt fits the free blocks?
RESERVES_FULL_PROMPT = (((0, 10, 2), False), ((0, 19, 0), True))
# Are freed blocks without a hash reused before any cached one?
BLANK_BLOCKS_FIRST = (((0, 10, 2), False), ((0, 24, 0), True))
# Is step t + 1 scheduled before the result of step t is there, unless told otherwise?
ASYNC_BY_DEFAULT = (((0, 10, 2), False), ((0, 14, 0), True))
HAS_WATERMARK = (((0, 10, 2), False), ((0, 24, 0), True))
# The adaptive threshold, and a limit to running requests below the places that there are.
HAS_FAIR_SHARES = (((0, 10, 2), False), ((0, 31, 0), True))
# Groups with a window: is only what they can hold asked for when a request is let in? And do they
# keep what a step needs that is still running?
WINDOW_CAPS_ADMISSION = (((0, 10, 2), False), ((0, 24, 0), True))
KEEPS_WINDOW_OF_RUNNING_STEP = (((0, 10, 2), False), ((0, 28, 0), True))
# Replicas: does the next request go to the one with the fewest, and waiting ones count more only
# where the KV cache is full? Before, a waiting one counted as four.
COUNTS_REQUESTS_OF_REPLICAS = (((0, 10, 2), False), ((0, 28, 0), True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How one version schedules. `lone_request_is_capped`: by the threshold, with nobody else."""

    unchunked_stops_the_queue: bool = True
    unchunked_drops_the_threshold: bool = False
    reserves_full_prompt: bool = True
    blank_blocks_first: bool = True
    lone_request_is_capped: bool = True
    async_by_default: bool = True
    has_watermark: bool = True
    has_fair_shares: bool = False
    window_caps_admission: bool = True
    keeps_window_of_running_step: bool = True
    counts_requests_of_replicas: bool = True


def rules_of(release: Release) -> Rules:
    version = release.version
    return Rules(
        unchunked_stops_the_queue=at(UNCHUNKED_STOPS_THE_QUEUE, version),
        unchunked_drops_the_threshold=at(UNCHUNKED_DROPS_THE_THRESHOLD, version),
        reserves_full_prompt=at(RESERVES_FULL_PROMPT, version),
        blank_blocks_first=at(BLANK_BLOCKS_FIRST, version),
        lone_request_is_capped=at(LONE_PROMPT_IS_CAPPED, version),
        async_by_default=at(ASYNC_BY_DEFAULT, version),
        has_watermark=at(HAS_WATERMARK, version),
        has_fair_shares=at(HAS_FAIR_SHARES, version),
        window_caps_admission=at(WINDOW_CAPS_ADMISSION, version),
        keeps_window_of_running_step=at(KEEPS_WINDOW_OF_RUNNING_STEP, version),
        counts_requests_of_replicas=at(COUNTS_REQUESTS_OF_REPLICAS, version),
    )


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
