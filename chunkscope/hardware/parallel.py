"""A model on several GPUs: who holds what, and what they have to tell each other.

None of it was measured here: nobody had such a machine. How vLLM splits weights is read in 0.24 and
0.32; what communication takes is assumed.
"""

from dataclasses import dataclass

from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import Gpu
from chunkscope.models.shape import BYTES, ModelShape

# GPUs with so much bandwidth of their own are taken to have NVLink, others to talk over PCIe:
# bytes a second that a GPU sends, and what an exchange takes however little is sent.
LINKED_GB_S = 1_500
NVLINK, PCIE = (300e9, 10e-6), (20e9, 25e-6)
UNMEASURED = "several GPUs were never measured"


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

    def exchange_s(self, shape: ModelShape, gpu: Gpu) -> tuple[float, float]:
        """Seconds of a step, and of each of its tokens: assumed.

        After attention and after the MLP of each layer the GPUs of a replica add up their parts;
        the replicas of a model with experts gather all tokens before those, and scatter them after.
        """
        is_linked = (gpu.bandwidth_gb_s or 0) >= LINKED_GB_S
        bytes_per_s, each_s = NVLINK if is_linked else PCIE
        hidden = BYTES * shape.hidden
        sums = 2 * shape.layers if self.tensor > 1 else 0
        sent = sums * 2 * hidden * (self.tensor - 1) / self.tensor
        if self.data > 1 and shape.experts:
            turns = 2 * shape.experts.layers
            sums += turns
            sent += turns * hidden * (self.data - 1)
        return sums * each_s, sent / bytes_per_s


ALONE = Parallel()
