"""Attention of a batch that holds pieces of several requests.

A model computes everything else for all tokens of the batch at once, which is what
makes a chunk beside decodes cheap. Only attention has to know which token belongs to
which request, so only attention is replaced: each piece looks at the keys and values of
its own request.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chunkscope.errors import InputError
from chunkscope.reference.models import obstacles

if TYPE_CHECKING:
    import torch
    from transformers import DynamicCache, PreTrainedModel

NAME = "chunkscope_pieces"
EAGER = "eager"  # written by hand in each model's own module


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPiece:
    """Tokens `start` to `end` of a request, computed together: a chunk, or a decode."""

    cache: "DynamicCache"  # keys and values of the request's earlier tokens
    start: int
    end: int
    in_batch: slice


@contextmanager
def attention_by_piece(model: "PreTrainedModel") -> Iterator[str]:
    """Let the attention of a model take pieces of several requests.

    Gives the name of the function that attends for each of them.
    """
    from transformers import AttentionInterface

    before = model.config._attn_implementation
    obstacle = next(obstacles(model), None)
    if obstacle is not None:
        raise not_taken(model, obstacle)
    AttentionInterface.register(NAME, batch_attention)
    model.set_attn_implementation(NAME)
    try:
        if model.config.get_text_config()._attn_implementation != NAME:
            raise not_taken(model, "its attention cannot be replaced")
        yield EAGER if before == EAGER else "sdpa"
    finally:
        model.set_attn_implementation(before)


def not_taken(model: "torch.nn.Module", reason: str) -> InputError:
    return InputError(
        f"the reference engine does not run {type(model).__name__}: {reason}",
        hint="it runs models with full or sliding attention: Llama, Qwen, Mistral, "
        "Gemma, GPT-2",
    )


def batch_attention(  # noqa: PLR0913  (as transformers calls it)
    module: "torch.nn.Module",
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    attention_mask: None,  # noqa: ARG001  (none is made for a name like ours)
    *,
    pieces: Sequence[BatchPiece] = (),
    attends_by: str = "sdpa",
    **options: object,
) -> "tuple[torch.Tensor, None]":
    """What each layer calls, with tensors of [1, heads, tokens, size]."""
    import torch

    if not pieces:
        raise not_taken(module, "its attention cannot be replaced")
    attend = attention_function(module, attends_by)
    window = window_of(module)
    results = []
    for piece in pieces:
        keys, values = piece.cache.update(
            key[:, :, piece.in_batch], value[:, :, piece.in_batch], module.layer_idx
        )
        oldest = 0
        if window is not None:
            oldest = max(0, piece.start - window + 1)
        mask = None
        if attends_by == EAGER or not starts_within(piece, window):
            mask = mask_of(piece, oldest, window, query)
        result, _ = attend(
            module,
            query[:, :, piece.in_batch],
            keys[:, :, oldest:],
            values[:, :, oldest:],
            mask,
            **options,
        )
        results.append(result)
    return torch.cat(results, dim=1), None


def attention_function(
    module: "torch.nn.Module", name: str
) -> "Callable[..., tuple[torch.Tensor, object]]":
    from transformers import AttentionInterface

    if name == EAGER:
        return sys.modules[type(module).__module__].eager_attention_forward  # type: ignore[no-any-return]
    return AttentionInterface()[name]  # type: ignore[no-any-return]


def starts_within(piece: BatchPiece, window: int | None) -> bool:
    """Whether each token sees all before it, which torch masks faster by itself."""
    return piece.start == 0 and (window is None or piece.end <= window)


def mask_of(
    piece: BatchPiece, oldest: int, window: int | None, query: "torch.Tensor"
) -> "torch.Tensor":
    """Added to the scores: which of the tokens from `oldest` on each token sees."""
    import torch

    queries = torch.arange(piece.start, piece.end, device=query.device)[:, None]
    keys = torch.arange(oldest, piece.end, device=query.device)[None, :]
    hidden = keys > queries
    if window is not None:
        hidden |= keys <= queries - window
    mask = torch.zeros_like(hidden, dtype=query.dtype)
    mask.masked_fill_(hidden, torch.finfo(query.dtype).min)
    return mask[None, None]


def window_of(module: "torch.nn.Module") -> int | None:
    """How many tokens the layer looks back, the current one included; None: all."""
    config = module.config.get_text_config()
    layer_types = getattr(config, "layer_types", None)
    if layer_types and layer_types[module.layer_idx] == "full_attention":
        return None
    window: int | None = getattr(config, "sliding_window", None)
    return window
