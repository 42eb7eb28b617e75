"""What fitted by an engine's log, and what did not: it goes before what the memory model says.

The model is shifted as a whole: at the log's own settings the KV cache has the tokens that the log
says, and elsewhere as many fewer or more than predicted as it was off there.
"""

from dataclasses import dataclass, replace

from chunkscope.artefacts.note import Label, Note
from chunkscope.hardware.gpus import GIB
from chunkscope.hardware.memory import Memory, MemoryLine, MemoryModel
from chunkscope.vllm.log.failures import Failure
from chunkscope.vllm.settings import Settings

_SIZES = ("step_tokens", "max_num_seqs", "gpu_memory_utilization", "max_model_len")
# What more memory for the KV cache would have mended; all else ran out of what was left free.
_TOO_LITTLE = (Failure.NO_CACHE_BLOCKS, Failure.CONTEXT_TOO_LONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStart:
    """An engine that ran out of memory; `settings` are complete."""

    settings: Settings
    why: Failure
    line: int

    def covers(self, other: Settings) -> bool:
        """Would these run out of it, too? They are if they ask for no less in any way."""
        mine, share = self.settings, self.settings.gpu_memory_utilization or 0.0
        its_share = other.gpu_memory_utilization or 0.0
        if mine.parallel != other.parallel:
            return False
        if self.why is Failure.OOM_LOGPROBS:
            return other.chunk_tokens >= mine.chunk_tokens and its_share >= share
        asks = other.step_tokens >= mine.step_tokens and other.step_requests >= mine.step_requests
        if self.why not in _TOO_LITTLE:
            return asks and its_share >= share
        context = (other.max_model_len or 0) >= (mine.max_model_len or 0)
        return asks and its_share <= share and (context or self.why is Failure.NO_CACHE_BLOCKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFit:
    """Of the last engine in a log that got so far. None is what the log does not say."""

    log: str
    settings: Settings  # complete: what that engine ran with
    cuda_graphs: bool = True
    kv_cache_tokens: int | None = None  # None as well where its size was given, not measured
    failed: tuple[FailedStart, ...] = ()

    def failed_as(self, settings: Settings) -> FailedStart | None:
        return next((one for one in self.failed if one.covers(settings)), None)

    def applied(
        self, bill: Memory, settings: Settings, *, at_log: Memory, model: MemoryModel
    ) -> Memory:
        """A predicted bill, off by as much as `at_log`: what is predicted at the log's settings."""
        if self.kv_cache_tokens is None:
            return bill
        layout, sizes = model.kv_layout, [_sizes(s, model) for s in (self.settings, settings)]
        held = layout.blocks_with(self.kv_cache_tokens, **sizes[0]) * layout.block_bytes
        off = at_log.kv_cache_bytes - held
        note = Note(
            code="memory_correction", values={"log": self.log, "tokens": self.kv_cache_tokens}
        )
        line = MemoryLine(name="correction", gib=off / GIB, label=Label.MEASURED, note=note)
        blocks = layout.blocks(bill.kv_cache_bytes - off)
        same = all(getattr(settings, name) == getattr(self.settings, name) for name in _SIZES)
        is_log = same and model.cuda_graphs == self.cuda_graphs
        return replace(
            bill,
            lines=(*bill.lines, line),
            kv_cache_bytes=bill.kv_cache_bytes - off,
            kv_cache_blocks=blocks,
            kv_cache_tokens=layout.tokens(blocks, **sizes[1]),
            kv_cache_label=Label.MEASURED if is_log else None,
        )


def _sizes(settings: Settings, model: MemoryModel) -> dict[str, int]:
    step = settings.step_tokens or 1
    return {"context": settings.max_model_len or model.shape.limit or step, "step": step}
