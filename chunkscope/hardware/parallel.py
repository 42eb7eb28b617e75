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
        if self.data < 1:
            raise UsageError(f"--dp must be at least 1, not {self.data}")
        if shape is None:
            return
        if self.by_expert and shape.experts is None:
            raise UsageError(
                f"{shape.name} has no experts to spread", hint="leave --ep out, or choose --tp"
            )
        if self.by_expert and shape.experts and shape.experts.count < self.gpus:
            raise UsageError(
                f"{shape.experts.count} experts cannot be spread over {self.gpus} GPUs",
                hint="choose fewer GPUs, or leave --ep out",
            )


ALONE = Parallel()
