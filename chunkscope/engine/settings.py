"""The engine arguments that the scheduler obeys, under vLLM's own names."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from chunkscope.costs.models.shape import BLOCK_TOKENS
from chunkscope.engine.rules import Rules
from chunkscope.errors import UsageError


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
