"""What one step of the engine computes: vLLM's SchedulerOutput, and what its time depends on."""

from chunkscope.simulation.request_state import RequestState


class Step:
    """`num_scheduled_tokens` by request; the fast scheduler leaves out those that only go on."""

    __slots__ = (
        "decode_context_tokens", "decode_requests", "ended", "going_on", "launched",
        "num_scheduled_tokens", "number", "preempted", "prefill_pairs", "prefill_requests",
        "prefill_tokens", "resumed",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.num_scheduled_tokens: dict[RequestState, int] = {}
        self.preempted: list[RequestState] = []
        self.ended: list[RequestState] = []  # with the result of this step
        self.resumed: list[int] = []  # of requests that decode again, the step of their last token
        self.launched = 0.0  # when
        self.going_on = 0  # requests that have a token in this step and had one in the step before
        self.decode_requests = 0
        self.decode_context_tokens = 0
        self.prefill_requests = 0
        self.prefill_tokens = 0
        self.prefill_pairs = 0

    def __bool__(self) -> bool:
        return bool(self.decode_requests or self.prefill_requests)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return self.decode_requests + self.prefill_tokens

    def count(self, request: RequestState, tokens: int) -> None:
        """Before they count as computed."""
        computed = request.num_computed_tokens
        if request.num_output_tokens and request.num_tokens - computed == 1:
            self.decode_requests += 1
            self.decode_context_tokens += request.num_tokens
            return
        if not request.num_output_tokens:
            request.chunks += 1
        self.prefill_requests += 1
        self.prefill_tokens += tokens
        self.prefill_pairs += tokens * computed + tokens * (tokens + 1) // 2
