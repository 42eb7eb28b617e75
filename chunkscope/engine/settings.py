"""The engine arguments that the scheduler obeys, under vLLM's own names."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from chunkscope.costs.models.shape import BLOCK_TOKENS
from chunkscope.engine.rules import Rules
from chunkscope.errors import InputError, UsageError
from chunkscope.simulation.workload import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArgs:
    """One setting. `kv_cache_tokens` is what vLLM logs: its null block, never used, included."""

    max_num_batched_tokens: int
    max_num_seqs: int
    kv_cache_tokens: int
    max_model_len: int | None = None
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    async_scheduling: bool = False
    watermark: float = 0.0
    block_size: int = BLOCK_TOKENS

    @classmethod
    def of(cls, given: "EngineArgs | Mapping[str, Any]") -> "EngineArgs":
        """Arguments from a dictionary; UsageError for names that the scheduler does not know."""
        if isinstance(given, EngineArgs):
            return given
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise UsageError(
                f"the simulator knows no argument {unknown[0]!r}",
                hint=f"known: {', '.join(sorted(known))}",
            )
        missing = {"max_num_batched_tokens", "max_num_seqs", "kv_cache_tokens"} - set(given)
        if missing:
            raise UsageError(f"the simulator needs {', '.join(sorted(missing))}")
        return cls(**given)

    @property
    def num_blocks(self) -> int:
        """Blocks that can be used: the first is vLLM's null block."""
        return self.kv_cache_tokens // self.block_size - 1


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
    if args.long_prefill_token_threshold_adaptive and not rules.has_adaptive_threshold:
        raise UsageError("this vLLM version has no adaptive threshold: it came with 0.31")


def check_requests(requests: Iterable[Request], args: EngineArgs) -> None:
    """Requests that could never be served, or that came from nowhere, get a clear error."""
    arrived, count = 0.0, 0
    for count, request in enumerate(requests, start=1):
        _check_request(request, count, arrived, args)
        arrived = request.arrival_s
    if not count:
        raise InputError("there are no requests", hint="an empty profile or trace has no run")


def _check_request(request: Request, place: int, arrived: float, args: EngineArgs) -> None:
    named = f"request {place:,}"
    if request.prompt_tokens < 1 or request.output_tokens < 1:
        raise InputError(
            f"{named} has {request.prompt_tokens:,} prompt and {request.output_tokens:,} output "
            "tokens: both must be at least 1"
        )
    if not arrived <= request.arrival_s < float("inf"):
        raise InputError(
            f"{named} arrives at {request.arrival_s:g} s, after one that arrived at {arrived:g} s",
            hint="arrivals must be in order, from 0 s on",
        )
    # The last token is never read back, so it needs no room.
    need = request.prompt_tokens + request.output_tokens - 1
    if -(-need // args.block_size) > args.num_blocks:
        raise InputError(
            f"{named} can never fit: {need:,} tokens, and the KV cache holds "
            f"{max(0, args.num_blocks) * args.block_size:,}",
            hint="give a larger --kv-cache-tokens, or leave such requests out",
        )
    limit = args.max_model_len
    if limit is not None and request.prompt_tokens + request.output_tokens > limit:
        raise InputError(
            f"{named} has {request.prompt_tokens + request.output_tokens:,} tokens in all, "
            f"max_model_len is {limit:,}: vLLM would refuse or cut it"
        )
    if not args.enable_chunked_prefill and not args.long_prefill_token_threshold:
        _check_unchunked(request, named, args)


def _check_unchunked(request: Request, named: str, args: EngineArgs) -> None:
    """A request that is preempted at its end is read again whole, with all but its last token."""
    most = request.prompt_tokens + request.output_tokens - 1
    if most > args.max_num_batched_tokens:
        raise InputError(
            f"{named} may have {most:,} tokens to read, and with chunking off one step takes "
            f"{args.max_num_batched_tokens:,}",
            hint="raise the budget to max_model_len, or leave chunking on",
        )
