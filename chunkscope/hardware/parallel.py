"""A model on several GPUs: who holds what.

Never measured: how vLLM splits weights is read in 0.24 and 0.32.
"""

from dataclasses import dataclass

from chunkscope.errors import UsageError
from chunkscope.models.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """`tensor` GPUs share every layer; `data` replicas share the requests.

    The experts of all replicas are spread over all GPUs: whole ones (`by_expert`) or parts of each.
    """

    tensor: int = 1
    data: int = 1
    by_expert: bool = False

    @property
    def gpus(self) -> int:
        return self.tensor * self.data

    def weight_bytes(self, shape: ModelShape) -> float:
        """On one GPU."""
        experts = shape.bytes_of("experts") if shape.experts else 0
        return (shape.weight_bytes - experts) / self.tensor + experts / self.gpus

    def check(self, shape: ModelShape | None) -> None:
        if min(self.tensor, self.data) < 1:
            raise UsageError(f"--tp {self.tensor} and --dp {self.data} must be at least 1")
        if shape is None:
            return
        heads, experts = shape.attention.heads, shape.experts.count if shape.experts else 0
        if heads % self.tensor:
            raise UsageError(
                f"{heads} attention heads cannot be split over {self.tensor} GPUs",
                hint="choose a --tp that divides the number of heads",
            )
        if self.by_expert and experts < self.gpus:
            raise UsageError(
                f"the {experts} experts of {shape.name} cannot be spread over {self.gpus} GPUs",
                hint="leave --ep out, or choose --tp",
            )


ALONE = Parallel()
