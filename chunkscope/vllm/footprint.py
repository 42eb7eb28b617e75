"""A model on a GPU without data: where every GiB goes, and how many requests fit."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.artefact import Shown, frame, plain
from chunkscope.artefacts.note import Label, Note, one_of
from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import LOCAL, Gpu, doubts, find_gpu
from chunkscope.hardware.memory import Memory
from chunkscope.models import ModelShape, find_model
from chunkscope.vllm.engine import Engine, Refusal
from chunkscope.vllm.enums import Entry, KvCacheType, Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

LENGTHS = (1_024, 4_096, 16_384, 65_536)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Footprint(Shown):
    """`settings` are complete: what was asked for, else what vLLM takes by itself.

    >>> memory("qwen3-8b", "h100", vllm_version="0.24").context
    40960
    """

    shape: ModelShape
    gpu: Gpu
    deployment: Engine
    settings: Settings
    memory: Memory
    context: int

    def to_frame(self) -> "pd.DataFrame":
        """One row per part of a GPU's memory."""
        rows = []
        for line in self.memory.lines:
            rows.append({"part": line.name, "gib": line.gib, "label": line.label.value})
        kv_cache: dict[str, Any] = {"part": "kv_cache", "gib": self.memory.kv_cache_gib}
        rows.append({**kv_cache, "label": Label.PREDICTED.value})
        return frame(rows)

    @property
    def requests(self) -> dict[int, int]:
        """How many fit at once, by tokens with the answer, up to the longest let in."""
        lengths = [length for length in LENGTHS if length < self.context]
        fitting = {}
        for length in (*lengths, self.context):
            fitting[length] = self.deployment.requests_of(
                length, self.memory, self.settings
            )
        return fitting

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Why vLLM would not start with this, or die of its first prompts."""
        return self.deployment.refusals(self.settings, self.memory)

    @property
    def notes(self) -> tuple[Note, ...]:
        notes = []
        if self.deployment.release.note is not None:
            notes.append(self.deployment.release.note)
        notes.extend(doubts(self.gpu))
        notes.extend(self.shape.notes)
        notes.extend(self.deployment.notes(self.settings, simulated=False))
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        figures = plain(self)
        del figures["deployment"]
        requests = []
        for tokens, fit in self.requests.items():
            requests.append({"tokens": tokens, "fit": fit})
        return {
            **figures,
            "requests": requests,
            "starts": not self.refusals,
            "refusals": plain(self.refusals),
            "notes": plain(self.notes),
            "vllm": self.deployment.release.text,
            "entry": self.deployment.entry.value,
        }


def memory(  # noqa: PLR0913
    model: str | os.PathLike[str],
    gpu: str | None = None,
    *,
    tp: int = 1,
    dp: int = 1,
    ep: bool = False,
    vllm_version: str | None = None,
    entry: Entry | str = Entry.SERVE,
    task: Task | str = Task.GENERATE,
    kv_cache_dtype: KvCacheType | str = KvCacheType.AUTO,
    **settings: Any,
) -> Footprint:
    """How a model fills a GPU with these settings of vLLM, and its defaults else.

    `gpu` is this machine's by default.

    >>> found = memory("qwen3-8b", "h100", max_num_seqs=256, vllm_version="0.24")
    >>> found.memory.kv_cache_tokens > 0
    True
    """
    shape = find_model(model)
    card = find_gpu(gpu or LOCAL)
    engine = Engine(
        release=release(vllm_version),
        entry=one_of(Entry, entry, "entry"),
        shape=shape,
        gpu=card,
        logprobs=one_of(Task, task, "task") is Task.LOGLIKELIHOOD,
    )
    asked = Settings(
        **settings,
        tensor_parallel_size=tp,
        data_parallel_size=dp,
        enable_expert_parallel=ep,
        kv_cache_dtype=one_of(KvCacheType, kv_cache_dtype, "kv_cache_dtype").value,
    )
    asked.parallel.check(shape)
    complete = engine.complete(asked)
    context = complete.max_model_len
    bill = engine.memory(complete, longest=context)
    if context is None or bill is None:
        what = f"the configuration of {shape.name} does not say how long its context is"
        raise UsageError(what, hint="set max_model_len")
    return Footprint(
        shape=shape,
        gpu=card,
        deployment=engine,
        settings=complete,
        memory=bill,
        context=context,
    )
