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
        self.steps: list[int] = []  # that gave a token of the answer
        self.first_logits: torch.Tensor  # after the last prompt token
        self._room = len(prompt) + max_tokens - 1  # the last token is never read back
        self._kept: dict[int, list[torch.Tensor]] = {}

    def keep(
        self, layer: int, start: int, keys: "torch.Tensor", values: "torch.Tensor"
    ) -> "list[torch.Tensor]":
        """Put those of a piece behind the earlier ones, for which the first took room; all."""
        both, end = (keys, values), start + keys.shape[2]
        if layer not in self._kept:
            room = [(*new.shape[:2], self._room, new.shape[3]) for new in both]
            self._kept[layer] = [
                new.new_empty(size) for new, size in zip(both, room, strict=True)
            ]
        for kept, new in zip(self._kept[layer], both, strict=True):
            kept[:, :, start:end] = new
        return [kept[:, :, :end] for kept in self._kept[layer]]

    def forget(self) -> None:
        """It has ended, or was preempted and will be read again from the start."""
        self._kept.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPiece:
    """Tokens `start` to `end` of a request, and where in the batch. `is_due`: the next follows."""

    request: LiveRequest
    start: int
    end: int
    in_batch: slice
    is_due: bool
