"""A model that computes the steps of the scheduler: one forward pass each, prompts and decodes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chunkscope.reference.batch import LiveRequest, PackedBatch
from chunkscope.simulation.requests import Step

if TYPE_CHECKING:
    import torch


class ModelRunner:
    """`execute` a step: afterwards every request that was due has a token more.

    `temperature` 0 takes the most likely token. Otherwise each request draws with a seed of its
    own, so that its answer does not depend on who else is in the batch.
    """

    def __init__(
        self,
        model: Any,
        requests: Sequence[LiveRequest],
        *,
        attends_by: str,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        import torch

        self._model, self.requests, self._attends_by = model, requests, attends_by
        self._temperature = temperature
        self._chance = {
            request: torch.Generator().manual_seed(seed + place)
            for place, request in enumerate(requests)
        }
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
            request.tokens.append(self._sample(row, self._chance[request]))
        for state in step.ended:
            self.requests[state.id].forget()

    def _batch(self, step: Step) -> PackedBatch:
        """The scheduler has counted these tokens as computed already, and the next one as there."""
        return PackedBatch.of(
            (
                self.requests[state.id],
                state.num_computed_tokens - tokens,
                state.num_computed_tokens,
                state.last_step == step.number,
            )
            for state, tokens in step.num_scheduled_tokens.items()
        )

    def _forward(self, batch: PackedBatch) -> "torch.Tensor":
        """Logits after the last token of each piece that is due, on the CPU."""
        import torch

        device = self._model.device
        last = [piece.in_batch.stop - 1 for piece in batch.due]
        kept = torch.tensor(last or [0], device=device)  # the head is not asked for the others
        logits = self._model(
            input_ids=torch.tensor([batch.tokens], device=device),
            position_ids=torch.tensor([batch.positions], device=device),
            use_cache=False,  # requests keep their own
            logits_to_keep=kept,
            batch=batch,
            attends_by=self._attends_by,
        ).logits[0]
        return logits[: len(last)].float().cpu()

    def _sample(self, logits: "torch.Tensor", chance: "torch.Generator") -> int:
        import torch

        if not self._temperature:
            return int(logits.argmax())
        shares = torch.softmax(logits / self._temperature, dim=-1)
        return int(torch.multinomial(shares, 1, generator=chance))
