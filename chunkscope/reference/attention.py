"""Attention of a batch that holds pieces of several requests: each looks at its own past alone.

All that a model does to one token at a time it does to the whole batch at once, which is what makes
a chunk beside decodes cheap. Only attention has to know who is who, so only attention is replaced:
piece by piece, with that request's keys and values, by the function the model would have called.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chunkscope.errors import InputError
from chunkscope.reference.batch import BatchPiece
from chunkscope.reference.models import why_whole

if TYPE_CHECKING:
    import torch

NAME = "chunkscope_pieces"


@contextmanager
def by_piece(model: Any) -> Iterator[str]:
    """Let a model's attention take pieces of requests; gives what it attends by otherwise."""
    from transformers import AttentionInterface

    config, before = model.config.get_text_config(), model.config._attn_implementation
    if (why := why_whole(model)) is not None:
        raise not_taken(model, why)
    AttentionInterface.register(NAME, batch_attention)
    model.set_attn_implementation(NAME)
    try:
        if config._attn_implementation != NAME:
            raise not_taken(model)
        yield "eager" if before == "eager" else "sdpa"
    finally:
        model.set_attn_implementation(before)


def not_taken(model: Any, why: str = "its attention cannot be replaced") -> InputError:
    return InputError(
        f"the reference engine does not run {type(model).__name__}: {why}",
        hint="it runs models with full or sliding attention: Llama, Qwen, Mistral, Gemma, GPT-2",
    )


def batch_attention(
    module: Any,
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    attention_mask: Any,  # noqa: ARG001  (None: transformers makes no mask for a name like ours)
    *,
    pieces: Sequence[BatchPiece] = (),
    attends_by: str = "sdpa",
    **options: Any,
) -> "tuple[torch.Tensor, None]":
    """Called by every layer with what the batch asks and keeps: each [1, heads, tokens, .]."""
    import torch

    if not pieces:
        raise not_taken(module)
    attend, window = _function(module, attends_by), _window(module)
    parts = []
    for piece in pieces:
        keys, values = piece.request.keep(
            module.layer_idx,
            piece.start,
            key[:, :, piece.in_batch],
            value[:, :, piece.in_batch],
        )
        oldest = max(0, piece.start - window + 1) if window else 0
        mask = _mask(piece, oldest, window, query, is_eager=attends_by == "eager")
        seen = keys[:, :, oldest:], values[:, :, oldest:]
        parts.append(
            attend(module, query[:, :, piece.in_batch], *seen, mask, **options)[0]
        )
    return torch.cat(parts, dim=1), None


def _mask(
    piece: BatchPiece,
    oldest: int,
    window: int | None,
    query: "torch.Tensor",
    *,
    is_eager: bool,
) -> "torch.Tensor | None":
    """Each token sees all earlier pieces, as far as its window goes, and its own up to itself.

    None where that goes without saying: of one token, and (but not to "eager") of a first piece.
    """
    import torch

    count = piece.end - piece.start
    fits = window is None or piece.end <= window
    if count == 1 or (piece.start == 0 and fits and not is_eager):
        return None
    queries = torch.arange(piece.start, piece.end, device=query.device)[:, None]
    keys = torch.arange(oldest, piece.end, device=query.device)[None, :]
    sees = keys <= queries
    if window is not None:
        sees &= keys > queries - window
    if not is_eager:
        return sees[None, None]
    hidden = torch.finfo(query.dtype).min
    return torch.zeros_like(sees, dtype=query.dtype).masked_fill(~sees, hidden)[
        None, None
    ]


def _window(module: Any) -> int | None:
    """How far the layer looks back, itself included; None: as far as there is anything."""
    config = module.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    is_full = kinds is not None and kinds[module.layer_idx] == "full_attention"
    return None if is_full else getattr(config, "sliding_window", None)


def _function(module: Any, name: str) -> Callable[..., Any]:
    from transformers import AttentionInterface

    if name == "eager":  # each model has its own
        eager: Callable[..., Any] = sys.modules[
            type(module).__module__
        ].eager_attention_forward
        return eager
    return AttentionInterface()[name]  # type: ignore[no-any-return]
