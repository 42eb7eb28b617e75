"""When a step ends: the host prepares and launches it, the GPU computes, the host hands out.

With async scheduling the host launches a step before it asks for the result of the one before: the
two work side by side, and a token is late by whatever the host does first.
"""

from collections import deque

from chunkscope.hardware.step_time import StepModel
from chunkscope.simulation.step import Step


class Pipeline:
    """`launch` a step, and `finish` the oldest that is launched."""

    def __init__(self, model: StepModel, start: float) -> None:
        self._model = model
        self._gpu_free = start
        self.host_free = start
        self._launched: deque[tuple[float, float]] = deque()  # its end on the GPU, then handing out

    def launch(self, step: Step, now: float) -> float:
        """Kernel by kernel, the GPU cannot be done before the last is launched. The GPU's part."""
        model, tokens = self._model, step.total_num_scheduled_tokens
        requests, context = step.prefill_requests + step.decode_requests, step.decode_context_tokens
        gpu_s = model.gpu_s(tokens, step.prefill_pairs, context, requests)
        prepare, launch, hand_out = model.host_parts(tokens, requests, step.prefill_requests)
        ready = now + prepare
        self.host_free = ready + launch
        computed = max(self._gpu_free, ready) + gpu_s
        self._gpu_free = max(computed, self.host_free)
        self._launched.append((self._gpu_free, hand_out))
        return gpu_s

    def finish(self) -> float:
        """When its tokens are there."""
        computed, hand_out = self._launched.popleft()
        self.host_free = max(computed, self.host_free) + hand_out
        return self.host_free
