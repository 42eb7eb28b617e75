"""What an engine that ran here measured of its memory, by its log."""

from dataclasses import dataclass

from chunkscope.vllm.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFit:
    """Of the last engine in a log that got so far: the memory bill is shifted by it.

    At the log's own settings the KV cache has the tokens that it says, and elsewhere as
    many fewer or more than predicted as it was off there.
    """

    log: str
    settings: Settings  # complete: what that engine ran with
    cuda_graphs: bool = True
    compiled_before: bool = False
    # None where its size was given, not measured.
    kv_cache_tokens: int | None = None
