"""The small random model of the demo, whose attention takes pieces of several requests.

A model computes everything else for all tokens of a batch at once, which is what makes
a chunk beside decodes cheap. Only attention has to know which token belongs to which
request, so only attention is replaced: each piece looks at the keys and values of its
own request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chunkscope.errors import MissingError
from chunkscope.tokenizers.reference import auto_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import DynamicCache, PreTrainedModel

NAME = "a random Llama"
ATTENTION = "chunkscope_pieces"
CONTEXT = 32_768
# Two million parameters: a step of 6,000 tokens takes two CPU cores about a second.
SHAPE = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    # Large enough that one logit stands out; among flat ones rounding would decide.
    "initializer_range": 0.1,
    "bos_token_id": None,
    "eos_token_id": None,
}


def require_torch(feature: str) -> None:
    """Raise MissingError, which names the extra, where torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingError(
            f"{feature} needs torch, which is not installed",
            hint="in a clone of chunkscope: pip install '.[torch]'",
        ) from error


def random_model(seed: int = 0) -> "PreTrainedModel":
    """A small Llama on the GPU, if there is one, that attends by pieces."""
    import torch

    auto_tokenizer()  # imports transformers and silences its advice
    from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    AttentionInterface.register(ATTENTION, attend_by_piece)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    model.set_attn_implementation(ATTENTION)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device).eval()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPiece:
    """Tokens `start` to `end` of a request, computed together: a chunk, or a decode."""

    cache: "DynamicCache"  # keys and values of the request's earlier tokens
    start: int
    end: int
    in_batch: slice


def attend_by_piece(  # noqa: PLR0913  (as transformers calls it)
    module: "torch.nn.Module",
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    attention_mask: None,  # noqa: ARG001  (none is made for a name like ours)
    *,
    pieces: Sequence[BatchPiece],
    **options: object,
) -> "tuple[torch.Tensor, None]":
    """What each layer calls, with tensors of [1, heads, tokens, size]."""
    import torch
    from transformers import AttentionInterface

    attend = AttentionInterface()["sdpa"]
    results = []
    for piece in pieces:
        keys, values = piece.cache.update(
            key[:, :, piece.in_batch], value[:, :, piece.in_batch], module.layer_idx
        )
        mask = None  # a piece at the start of its request is masked by torch itself
        if piece.start > 0:
            queries = torch.arange(piece.start, piece.end, device=query.device)
            seen = torch.arange(piece.end, device=query.device) <= queries[:, None]
            mask = seen[None, None]
        result, _ = attend(
            module, query[:, :, piece.in_batch], keys, values, mask, **options
        )
        results.append(result)
    return torch.cat(results, dim=1), None
