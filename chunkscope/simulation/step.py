"""What one step of the engine computes: vLLM's SchedulerOutput, and what its time depends on."""

from dataclasses import dataclass, field

from chunkscope.hardware.step_time import FAR, Reach
from chunkscope.simulation.request_state import RequestState


@dataclass(slots=True, eq=False)
class Step:
    """`num_scheduled_tokens` by request; the fast scheduler leaves out those that only go on.

    `ended` with its result. `resumed`: of requests that decode again, the step of their last token.
    `going_on`: requests that have a token in this step and had one in the step before.
    """

    number: int
    num_scheduled_tokens: dict[RequestState, int] = field(default_factory=dict)
    preempted: list[RequestState] = field(default_factory=list)
    ended: list[RequestState] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)
    going_on: int = 0
    decode_requests: int = 0
    decode_context_tokens: float = 0
    prefill_requests: int = 0
    prefill_tokens: int = 0
    prefill_pairs: float = 0

    def __bool__(self) -> bool:
        return bool(self.decode_requests or self.prefill_requests)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return self.decode_requests + self.prefill_tokens

    def count(self, request: RequestState, tokens: int, reach: Reach = FAR) -> None:
        """Before they count as computed."""
        computed = request.num_computed_tokens
        if request.num_output_tokens and request.num_tokens - computed == 1:
            self.decode_requests += 1
            self.decode_context_tokens += reach.context(request.num_tokens)
            return
        if not request.num_output_tokens:
            request.chunks += 1
        self.prefill_requests += 1
        self.prefill_tokens += tokens
        self.prefill_pairs += reach.pairs(tokens, computed)
