"""A model that computes the steps of the scheduler: one forward pass each, prompts and decodes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chunkscope.reference.batch import BatchPiece, LiveRequest, PackedBatch
from chunkscope.simulation.requests import Step

if TYPE_CHECKING:
    import torch


class ModelRunner:
    """`execute` a step: afterwards every request that was due has its most likely token more."""

    def __init__(self, model: Any, requests: Sequence[LiveRequest], *, attends_by: str) -> None:
        self._model, self.requests, self._attends_by = model, requests, attends_by
        self.first_logits: dict[LiveRequest, torch.Tensor] = {}  # of the last prompt token

    def execute(self, step: Step) -> None:
        import torch

        for state in step.preempted:
            self.requests[state.id].forget()
        batch = self._batch(step)
        with torch.inference_mode():
            logits = self._forward(batch)
        for piece, row in zip(batch.due, logits, strict=True):
            request = piece.request
            if piece.end == request.prompt_tokens:
                self.first_logits[request] = row
            request.tokens.append(int(row.argmax()))
        for state in step.ended:
            self.requests[state.id].forget()

    def _batch(self, step: Step) -> PackedBatch:
        """The scheduler has counted these tokens as computed already, and the next one as there."""
        pieces, place = [], 0
        for state, tokens in step.num_scheduled_tokens.items():
            piece = BatchPiece(
                request=self.requests[state.id],
                start=state.num_computed_tokens - tokens,
                end=state.num_computed_tokens,
                place=place,
                is_due=state.last_step == step.number,
            )
            pieces.append(piece)
            place += tokens
        return PackedBatch(tuple(pieces))

    def _forward(self, batch: PackedBatch) -> "torch.Tensor":
        """Logits after the last token of each piece that is due, on the CPU."""
        import torch

        device = self._model.device
        last = [piece.in_batch.stop - 1 for piece in batch.due]
        wanted = torch.tensor(last or [0], device=device)  # the head is not asked for others
        logits = self._model(
            input_ids=torch.tensor([batch.tokens], device=device),
            position_ids=torch.tensor([batch.positions], device=device),
            use_cache=False,  # requests keep their own
            logits_to_keep=wanted,
            batch=batch,
            attends_by=self._attends_by,
        ).logits[0]
        return logits[: len(last)].float().cpu()
