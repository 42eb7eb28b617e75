"""A model on a GPU without any data: where every GiB goes, and how many requests fit."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.artefact import Shown, frame, plain
from chunkscope.artefacts.note import Label, Note, one_of
from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import LOCAL, Gpu, doubts, find_gpu
from chunkscope.hardware.memory import Memory
from chunkscope.models import ModelShape, find_model
from chunkscope.vllm.deployment import Deployment, Refusal
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
    deployment: Deployment
    settings: Settings
    memory: Memory
    context: int

    def to_frame(self) -> "pd.DataFrame":
        """One row per part of a GPU's memory."""
        parts = [(line.name, line.gib, line.label) for line in self.memory.lines]
        parts.append(("kv_cache", self.memory.kv_cache_gib, Label.PREDICTED))
        return frame(
            {"part": name, "gib": gib, "label": label.value}
            for name, gib, label in parts
        )

    @property
    def requests(self) -> dict[int, int]:
        """How many fit at once, by tokens with the answer: up to the longest that vLLM lets in."""
        lengths = (
            *(length for length in LENGTHS if length < self.context),
            self.context,
        )
        held = self.deployment.requests_of
        return {length: held(length, self.memory, self.settings) for length in lengths}

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Why vLLM would not start with this, or die of its first prompts; empty when it runs."""
        return self.deployment.refusals(self.settings, self.memory)

    @property
    def notes(self) -> tuple[Note, ...]:
        return (
            *filter(None, [self.deployment.release.note]),
            *doubts(self.gpu),
            *self.shape.notes,
            *self.deployment.notes(self.settings, simulated=False),
        )

    def to_json(self) -> dict[str, Any]:
        requests = [
            {"tokens": tokens, "fit": fit} for tokens, fit in self.requests.items()
        ]
        facts = {"refusals": plain(self.refusals), "notes": plain(self.notes)}
        facts |= {
            "vllm": self.deployment.release.text,
            "entry": self.deployment.entry.value,
        }
        figures = {
            name: value for name, value in plain(self).items() if name != "deployment"
        }
        return {**figures, "requests": requests, "starts": not self.refusals, **facts}


def memory(
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
    """How a model fills a GPU with these settings (vLLM's names; the others have its defaults).

    `gpu` is this machine's by default.

    >>> memory("qwen3-8b", "h100", max_num_seqs=256, vllm_version="0.24").memory.kv_cache_tokens > 0
    True
    """
    shape = find_model(model)
    card = find_gpu(gpu or LOCAL)
    deployment = Deployment(
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
    full = deployment.effective(asked)
    context = full.max_model_len
    bill = deployment.memory(full, longest=context)
    if context is None or bill is None:
        raise UsageError(
            f"the configuration of {shape.name} does not say how long its context is",
            hint="set max_model_len",
        )
    return Footprint(
        shape=shape,
        gpu=card,
        deployment=deployment,
        settings=full,
        memory=bill,
        context=context,
    )
