"""What one step computes, as a model is given it: tokens of several requests, one behind the other.

A prompt's chunk and the single token of a request that decodes are the same thing: some tokens of
one request, computed together, after all that were computed before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class LiveRequest:
    """The tokens of a request, and the keys and values of those that are computed, by layer."""

    def __init__(self, prompt: Sequence[int], max_tokens: int) -> None:
        self.tokens = list(prompt)  # the answer's follow, one at a time
        self.prompt_tokens = len(prompt)
        self._room = len(prompt) + max_tokens - 1  # the last token is never read back
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def output(self) -> tuple[int, ...]:
        return tuple(self.tokens[self.prompt_tokens :])

    def keep(
        self, layer: int, start: int, keys: "torch.Tensor", values: "torch.Tensor"
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        """Put those of a piece behind those of earlier ones; all of them, up to its end.

        Room for all tokens is taken with the first piece, so that nothing is copied later.
        """
        if layer not in self._kept:
            self._kept[layer] = (self._empty(keys), self._empty(values))
        end, (all_keys, all_values) = start + keys.shape[2], self._kept[layer]
        all_keys[:, :, start:end], all_values[:, :, start:end] = keys, values
        return all_keys[:, :, :end], all_values[:, :, :end]

    def _empty(self, like: "torch.Tensor") -> "torch.Tensor":
        one, heads, _, width = like.shape
        return like.new_empty(one, heads, self._room, width)

    def forget(self) -> None:
        """It has ended, or was preempted and will be read again from the start."""
        self._kept.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPiece:
    """Tokens `start` to `end` of a request, at `place` in the batch. `is_due`: the next follows."""

    request: LiveRequest
    start: int
    end: int
    place: int
    is_due: bool

    @property
    def in_batch(self) -> slice:
        return slice(self.place, self.place + self.end - self.start)


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """All pieces of a step in one row, without padding."""

    pieces: tuple[BatchPiece, ...]

    @property
    def tokens(self) -> list[int]:
        return [token for p in self.pieces for token in p.request.tokens[p.start : p.end]]

    @property
    def positions(self) -> list[int]:
        return [position for p in self.pieces for position in range(p.start, p.end)]

    @property
    def due(self) -> list[BatchPiece]:
        return [piece for piece in self.pieces if piece.is_due]
