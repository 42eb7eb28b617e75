"""Two ways from papers to cut prompts into chunks, which vLLM does not have."""

from chunkscope.simulation.requests import Step
from chunkscope.vllm.settings import Settings

CHUNKS_BY_LENGTH = ((4_096, 512), (16_384, 1_024))  # prompts below -> chunk, in tokens
LONGEST_CHUNK = 2_048  # tokens
SMALLEST_CHUNK = 64  # tokens
TARGET_STEP_S = 0.1  # a step that takes longer is slow, one of half of it is fast
CROWDED_SHARE = 0.5  # decoding requests, of max_num_seqs


def chunk_by_length(tokens: int) -> int:
    """The longer the prompt, the larger its chunks."""
    for below, chunk in CHUNKS_BY_LENGTH:
        if tokens < below:
            return chunk
    return LONGEST_CHUNK


def adapted_chunk(chunk: int, step: Step, seconds: float, settings: Settings) -> int:
    """Half the chunk after a slow step or while decodes crowd; twice when there is
    time."""
    if not step.prefill_requests:
        return chunk
    is_crowded = step.decoding_on > CROWDED_SHARE * settings.step_requests
    if step.decode_requests and (seconds > TARGET_STEP_S or is_crowded):
        return max(SMALLEST_CHUNK, chunk // 2)
    if seconds < TARGET_STEP_S / 2:
        return min(settings.step_tokens, chunk * 2)
    return chunk
