"""Requests that no engine could serve with a setting: refused before the first step."""

from collections.abc import Iterable

from chunkscope.errors import InputError
from chunkscope.simulation.group_blocks import GroupBlocks
from chunkscope.simulation.workload import Request
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import EngineArgs


def check_requests(requests: Iterable[Request], args: EngineArgs, rules: Rules) -> None:
    """Requests that could never be served, or that came from nowhere, get a clear error."""
    arrived, count, blocks = 0.0, 0, GroupBlocks(args, rules)
    for count, request in enumerate(requests, start=1):
        _check_request(request, count, arrived, args, blocks)
        arrived = request.arrival_s
    if not count:
        raise InputError("there are no requests", hint="an empty profile or trace has no run")


def _check_request(
    request: Request, place: int, arrived: float, args: EngineArgs, blocks: GroupBlocks
) -> None:
    if request.prompt_tokens < 1 or request.output_tokens < 1:
        raise InputError(
            f"request {place:,} has {request.prompt_tokens:,} prompt and "
            f"{request.output_tokens:,} output tokens: both must be at least 1"
        )
    if not arrived <= request.arrival_s < float("inf"):
        raise InputError(
            f"request {place:,} arrives at {request.arrival_s:g} s, after one that arrived at "
            f"{arrived:g} s",
            hint="arrivals must be in order, from 0 s on",
        )
    # The last token is never read back, so it needs no room.
    need = request.prompt_tokens + request.output_tokens - 1
    if blocks.to_reserve(need) + blocks.state > args.num_blocks:
        raise InputError(
            f"request {place:,} can never fit: {need:,} tokens, and the KV cache holds "
            f"{max(0, round(args.num_blocks * args.tokens_per_block)):,}",
            hint="give a larger --kv-cache-tokens, or leave such requests out",
        )
    limit = args.max_model_len
    if limit is not None and request.prompt_tokens + request.output_tokens > limit:
        raise InputError(
            f"request {place:,} has {request.prompt_tokens + request.output_tokens:,} tokens in "
            f"all, max_model_len is {limit:,}: vLLM would refuse or cut it"
        )
    # A request that is preempted at its end is read again whole, with all but its last token.
    chunked = args.enable_chunked_prefill or args.long_prefill_token_threshold
    if not chunked and need > args.max_num_batched_tokens:
        raise InputError(
            f"request {place:,} may have {need:,} tokens to read, and with chunking off one step "
            f"takes {args.max_num_batched_tokens:,}",
            hint="raise the budget to max_model_len, or leave chunking on",
        )
