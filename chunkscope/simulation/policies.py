"""How much of a prompt one step may take, and who comes first: vLLM's own rules, and experiments.

vLLM runs `vllm`, `fixed` and `interactive-first`; `by-length` and `adaptive` are from papers.
"""

from chunkscope.simulation.requests import RequestState, Step
from chunkscope.vllm.enums import ChunkPolicy
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import Settings

INTERACTIVE_TOKENS = 1_024
CHUNKS_BY_LENGTH = ((4_096, 512), (16_384, 1_024))  # prompts below -> chunk
LONGEST_CHUNK, SMALLEST_CHUNK = 2_048, 64
TARGET_STEP_S = 0.1
CROWDED_SHARE = 0.5  # decoding requests, of max_num_seqs


class Policy:
    """vLLM's own: long_prefill_token_threshold, with the two rules that 0.31 brought."""

    def __init__(self, name: ChunkPolicy, settings: Settings, rules: Rules) -> None:
        self.settings, self.rules = settings, rules
        self.by_priority = name is ChunkPolicy.INTERACTIVE_FIRST
        unchunked = not (
            settings.enable_chunked_prefill or settings.enable_prefix_caching
        )
        dropped = unchunked and rules.unchunked_drops_the_threshold
        self._threshold = 0 if dropped else settings.long_prefill_token_threshold or 0
        self._in_step = self._threshold

    def start_step(self, requests: int) -> None:
        """So many are running or waiting, before anything is scheduled."""
        if self._threshold and not self.rules.lone_request_is_capped:
            self._in_step = self._threshold if requests > 1 else 0
            if requests > 1 and self.settings.long_prefill_token_threshold_adaptive:
                self._in_step = max(
                    self._threshold, self.settings.step_tokens // requests
                )

    def threshold_of(self, request: RequestState) -> int:  # noqa: ARG002
        """The most tokens that one request gets in a step; 0 is no limit."""
        return self._in_step

    def after_step(self, step: Step, seconds: float) -> None:
        """Learn how long it took."""


def chunk_by_length(tokens: int) -> int:
    return next(
        (chunk for below, chunk in CHUNKS_BY_LENGTH if tokens < below), LONGEST_CHUNK
    )


class ByLength(Policy):
    """The longer the prompt, the larger its chunks."""

    def threshold_of(self, request: RequestState) -> int:
        return chunk_by_length(request.num_prompt_tokens)


class Adaptive(Policy):
    """Half the chunk when a step was slow or decodes crowd; twice when there is time to spare."""

    chunk = LONGEST_CHUNK

    def threshold_of(self, request: RequestState) -> int:  # noqa: ARG002
        return self.chunk

    def after_step(self, step: Step, seconds: float) -> None:
        if not step.prefill_requests:
            return
        is_crowded = step.decoding_on > CROWDED_SHARE * self.settings.step_requests
        if step.decode_requests and (seconds > TARGET_STEP_S or is_crowded):
            self.chunk = max(SMALLEST_CHUNK, self.chunk // 2)
        elif seconds < TARGET_STEP_S / 2:
            self.chunk = min(self.settings.step_tokens, self.chunk * 2)


EXPERIMENTS = {ChunkPolicy.BY_LENGTH: ByLength, ChunkPolicy.ADAPTIVE: Adaptive}
