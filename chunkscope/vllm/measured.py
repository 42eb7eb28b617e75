"""What an engine that ran here measured of its memory, by its log."""

from dataclasses import dataclass, replace

from chunkscope.artefacts.note import Label, note
from chunkscope.hardware.gpus import GIB
from chunkscope.hardware.memory import Memory, MemoryLine, MemoryModel
from chunkscope.vllm.settings import Settings

_SIZES = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "gpu_memory_utilization",
    "max_model_len",
    "max_cudagraph_capture_size",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFit:
    """Of the last engine in a log that got so far: it shifts the memory model.

    At the log's own settings the KV cache has the tokens that it says, and elsewhere as
    many fewer or more than predicted as it was off there.
    """

    log: str
    settings: Settings  # complete: what that engine ran with
    cuda_graphs: bool = True
    compiled_before: bool = False
    # None where its size was given, not measured.
    kv_cache_tokens: int | None = None

    def applied(
        self, bill: Memory, settings: Settings, *, at_log: Memory, model: MemoryModel
    ) -> Memory:
        """A predicted bill, off by as much as that at the log's settings, `at_log`."""
        if self.kv_cache_tokens is None:
            return bill
        layout = model.kv_layout
        logged_blocks = layout.blocks_with(
            self.kv_cache_tokens,
            context=_context(self.settings, model),
            step=_step(self.settings),
        )
        off = at_log.kv_cache_bytes - logged_blocks * layout.block_bytes
        kv_cache_bytes = bill.kv_cache_bytes - off
        blocks = layout.blocks(kv_cache_bytes)
        tokens = layout.tokens(
            blocks, context=_context(settings, model), step=_step(settings)
        )
        why = note("memory_correction", log=self.log, tokens=self.kv_cache_tokens)
        correction = MemoryLine(
            name="correction", gib=off / GIB, label=Label.MEASURED, note=why
        )
        return replace(
            bill,
            lines=(*bill.lines, correction),
            kv_cache_bytes=kv_cache_bytes,
            kv_cache_blocks=blocks,
            kv_cache_tokens=tokens,
            kv_cache_label=self._label(settings, model),
        )

    def _label(self, settings: Settings, model: MemoryModel) -> Label | None:
        """Measured, where the settings are those of the log."""
        for name in _SIZES:
            if getattr(settings, name) != getattr(self.settings, name):
                return None
        return Label.MEASURED if model.cuda_graphs == self.cuda_graphs else None


def _step(settings: Settings) -> int:
    return settings.max_num_batched_tokens or 1


def _context(settings: Settings, model: MemoryModel) -> int:
    return settings.max_model_len or model.shape.limit or _step(settings)
