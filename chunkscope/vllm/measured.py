"""What fitted by an engine's log, and what did not: it goes before what the memory model says.

The model is shifted as a whole: at the log's own settings the KV cache has the tokens that the log
says, and elsewhere as many fewer or more than predicted as it was off there.
"""

from dataclasses import dataclass, replace
from typing import Any

from chunkscope.artefacts.note import Label, Note
from chunkscope.hardware.gpus import GIB
from chunkscope.hardware.memory import Memory, MemoryLine, MemoryModel
from chunkscope.vllm.log.failures import Failure
from chunkscope.vllm.settings import Settings

_SIZES = ("step_tokens", "max_num_seqs", "gpu_memory_utilization", "max_model_len")
PEAK = ("activation", "experts", "sampler")  # what vLLM profiles as one peak
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
    weights_gib: float | None = None
    activation_gib: float | None = None
    graphs_gib: float | None = None
    hit_rate: float | None = None
    failed: tuple[FailedStart, ...] = ()

    def failed_as(self, settings: Settings) -> FailedStart | None:
        return next((one for one in self.failed if one.covers(settings)), None)

    def applied(
        self, bill: Memory, settings: Settings, *, at_log: Memory, model: MemoryModel
    ) -> Memory:
        """A predicted bill, with what was measured; `at_log` is what is predicted there."""
        parts = {"weights": self.weights_gib, "cuda_graphs": self.graphs_gib}
        parts["activation"] = self.activation_gib
        more = {name: gib - _of(at_log, name) for name, gib in parts.items() if gib is not None}
        if not self.cuda_graphs:
            more.pop("cuda_graphs", None)
        counted = [line.name for line in bill.lines if line.profiled]
        shift = sum(round(gib * GIB) for name, gib in more.items() if name in counted)
        lines = [self._line(line, more, settings) for line in bill.lines]
        if (held := self._kv_bytes(model)) is not None:
            rest = at_log.kv_cache_bytes - held - shift
            shift += rest
            note = self._note("memory_correction", tokens=self.kv_cache_tokens)
            line = MemoryLine(name="correction", gib=rest / GIB, label=Label.MEASURED, note=note)
            lines.append(line)
        kv_bytes = bill.kv_cache_bytes - shift
        budget = settings.step_tokens or 1
        longest = settings.max_model_len or model.shape.limit or budget
        blocks = model.kv_layout.blocks(kv_bytes)
        here = self._same(settings) and model.cuda_graphs == self.cuda_graphs
        outside = sum(gib for name, gib in more.items() if name not in counted)
        return replace(
            bill,
            lines=tuple(lines),
            kv_cache_bytes=kv_bytes,
            kv_cache_blocks=blocks,
            kv_cache_tokens=model.kv_layout.tokens(blocks, context=longest, step=budget),
            headroom_gib=bill.headroom_gib - outside,
            kv_cache_label=Label.MEASURED if held is not None and here else None,
        )

    def _kv_bytes(self, model: MemoryModel) -> int | None:
        if self.kv_cache_tokens is None:
            return None
        layout, budget = model.kv_layout, self.settings.step_tokens or 1
        context = self.settings.max_model_len or model.shape.limit or budget
        blocks = layout.blocks_with(self.kv_cache_tokens, context=context, step=budget)
        return blocks * layout.block_bytes

    def _same(self, settings: Settings) -> bool:
        return all(getattr(settings, name) == getattr(self.settings, name) for name in _SIZES)

    def _line(self, line: MemoryLine, more: dict[str, float], settings: Settings) -> MemoryLine:
        if line.name in PEAK and "activation" in more:
            here = self._same(replace(settings, max_model_len=self.settings.max_model_len))
            if here and line.name == "activation":
                gib, note = self.activation_gib or 0.0, self._note("memory_peak_in_log")
                return replace(line, gib=gib, label=Label.MEASURED, note=note)
            if here:
                return replace(line, gib=0.0, note=Note(code="memory_in_activation"))
            if line.name == "activation":
                gib = more["activation"]
                note = self._note("memory_activation_and_log", more_gib=gib, **line.note.values)
                return replace(line, gib=line.gib + gib, note=note)
        if line.name in more and line.name not in PEAK:
            gib, note = line.gib + more[line.name], self._note("memory_in_log")
            return replace(line, gib=gib, label=Label.MEASURED, note=note)
        return line

    def _note(self, code: str, **values: Any) -> Note:
        return Note(code=code, values={"log": self.log, **values})


def _of(bill: Memory, name: str) -> float:
    names = PEAK if name == "activation" else (name,)
    return sum(line.gib for line in bill.lines if line.name in names)
