"""A model on a GPU under one vLLM version: what settings come to there, and what they leave."""

from dataclasses import dataclass, replace
from typing import Any

from chunkscope.hardware.gpus import Gpu
from chunkscope.hardware.memory import Memory, MemoryModel
from chunkscope.hardware.parallel import UNMEASURED
from chunkscope.models.layers import KvKind
from chunkscope.models.shape import ModelShape
from chunkscope.vllm.choices import Entry
from chunkscope.vllm.flags import (
    BY_NAME,
    OFF_SWITCH,
    THRESHOLD_IS_CHECKED,
    Off,
    Release,
    at,
    dotted,
)
from chunkscope.vllm.measured import MeasuredFit
from chunkscope.vllm.rules import rules_of
from chunkscope.vllm.settings import EngineArgs, Settings

OWN = Settings()  # everything left to vLLM


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Without a GPU nobody knows vLLM's batch sizes; without a model, too, no memory."""

    release: Release
    entry: Entry = Entry.SERVE
    shape: ModelShape | None = None
    gpu: Gpu | None = None
    logprobs: bool = False
    cuda_graphs: bool = True
    measured: MeasuredFit | None = None  # of an engine here, by its log

    def effective(self, settings: Settings = OWN) -> Settings:
        """What the engine ends up with: what is set, else what vLLM takes by itself.

        None is left where that is not known. The order is vLLM's: the budget holds a prompt whole
        where chunking is off, is no larger than the running requests can fill, and bounds them.
        """
        shape, release = self.shape, self.release
        own = release.batch_defaults(self.gpu, self.entry) if self.gpu else OWN
        context = settings.max_model_len or (shape.limit if shape else None)
        chunking = settings.enable_chunked_prefill is not False
        seqs = settings.max_num_seqs or own.max_num_seqs
        budget = settings.max_num_batched_tokens
        if budget is None and own.max_num_batched_tokens is not None:
            budget = own.max_num_batched_tokens
            if context:
                budget = budget if chunking else max(budget, context)
                budget = min(budget, (seqs or 1) * context)
        if settings.max_num_seqs is None and seqs and budget:
            seqs = min(seqs, budget)
        rest = Settings(
            long_prefill_token_threshold=0,
            enable_chunked_prefill=True,
            enable_prefix_caching=not (shape and shape.hybrid) or release.hybrid_caches_prefixes,
            gpu_memory_utilization=release.gpu_memory_utilization,
            tensor_parallel_size=1,
        )
        batch = Settings(max_model_len=context, max_num_batched_tokens=budget, max_num_seqs=seqs)
        full = settings.over(batch).over(rest)
        active, adapts = full.max_num_active_seqs, full.long_prefill_token_threshold_adaptive
        return replace(
            full,
            long_prefill_token_threshold_adaptive=adapts or None,
            max_num_active_seqs=None if active == full.max_num_seqs else active,
            data_parallel_size=None if full.data_parallel_size == 1 else full.data_parallel_size,
            enable_expert_parallel=full.enable_expert_parallel or None,
            kv_cache_dtype=None if full.kv_cache_dtype == "auto" else full.kv_cache_dtype,
        )

    def memory_model(self, settings: Settings = OWN) -> MemoryModel | None:
        """None without a model or a GPU."""
        parallel = settings.parallel
        if self.shape is None or self.gpu is None:
            return None
        runner = self.release.runner(self.shape.architecture, dense=self.shape.dense)
        return MemoryModel(
            shape=self.shape,
            gpu=self.gpu,
            runner=runner,
            counts_graphs=self.release.counts_graphs(runner),
            tp=parallel.tensor,
            parallel=parallel,
            logprobs=self.logprobs,
            cuda_graphs=self.cuda_graphs,
            expert_tokens=self.release.expert_tokens,
            kv_element_bytes=settings.kv_element_bytes,
            caches_prefixes=self.effective().enable_prefix_caching is not False,
        )

    def memory(self, settings: Settings = OWN, *, longest: int | None = None) -> Memory | None:
        """Where every GiB goes under these settings; no prompt has more than `longest` tokens."""
        s = self.effective(settings)
        model = self.memory_model(s)
        budget, seqs, share = s.max_num_batched_tokens, s.max_num_seqs, s.gpu_memory_utilization
        if model is None or budget is None or seqs is None or share is None:
            return None
        caps = (s.long_prefill_token_threshold, budget, longest)
        chunk = min(cap for cap in caps if cap)
        bill = model.memory(
            budget=budget, seqs=seqs, utilization=share, chunk=chunk, context=s.max_model_len
        )
        fit = self.measured
        if fit is None or fit.settings.parallel != s.parallel:
            return bill
        predicting = replace(self, measured=None, cuda_graphs=fit.cuda_graphs)
        at_log = predicting.memory(fit.settings)
        return fit.applied(bill, s, at_log=at_log, model=model) if at_log else bill

    def requests_of(self, tokens: int, memory: Memory, settings: Settings = OWN) -> int:
        """How many decoding requests of that many tokens the KV cache of a GPU holds at once."""
        model = self.memory_model(settings)
        if model is None:
            return 0
        layout = model.kv_layout
        return layout.blocks(memory.kv_cache_bytes) // max(1, layout.blocks_of(tokens))

    def engine_args(self, settings: Settings, *, kv_cache_tokens: int) -> EngineArgs:
        """Nothing left open, for a scheduler with so large a KV cache."""
        lag = rules_of(self.release).async_by_default
        full = self.effective(settings)
        pool = {"kv_cache_tokens": kv_cache_tokens, **self._grouped(full, kv_cache_tokens)}
        return EngineArgs.of({**full.given(), **pool, "async_scheduling": lag})

    def _grouped(self, s: Settings, tokens: int) -> dict[str, Any]:
        """Nothing where all layers keep all tokens, or it is not known what they keep."""
        model, context = self.memory_model(s), s.max_model_len
        if model is None or context is None or model.kv_layout.is_plain:
            return {}
        layout, step = model.kv_layout, s.max_num_batched_tokens or 1
        return {
            "block_size": layout.block_tokens,
            "kv_cache_blocks": layout.blocks_with(tokens, context=context, step=step),
            "kv_groups": layout.groups,
        }

    def unmeasured(self, settings: Settings = OWN) -> tuple[str, ...]:
        """What is said of several GPUs, and of a KV cache of other numbers than the model's."""
        parallel, kept = settings.parallel, self.effective(settings).kv_cache_dtype
        cache = f"a KV cache of {kept} was never measured: reading it is taken to cost by its bytes"
        cached = (cache,) if kept else ()
        if parallel.gpus == 1:
            return cached
        said = f"{UNMEASURED}: memory and times on {parallel.gpus} follow from how vLLM splits a "
        said += "model, and from assumptions on what communication takes"
        if parallel.data > 1 and self.shape and self.shape.experts:
            said += "; the replicas' steps, which wait for each other, are simulated each by itself"
        return (said, *cached)

    def uncovered(self, settings: Settings = OWN) -> tuple[str, ...]:
        """What the simulated scheduler does otherwise than vLLM's, with this model."""
        model = self.memory_model()
        if model is None or model.kv_layout.is_plain:
            return ()
        if self.effective(settings).enable_prefix_caching is False:
            return ()
        kinds = {group.kind for group in model.kv_layout.groups}
        said = "prefix hits are those of the layers that keep all tokens: vLLM needs the others' "
        said += "windows and states in the cache, too, so it may find less"
        if KvKind.FULL not in kinds:
            said = "no prefix hits are counted: no layer keeps all tokens, and vLLM finds windows"
        aligned = "vLLM ends chunks where blocks end, to keep states of prefixes: not simulated"
        return (said, *([aligned] if KvKind.STATE in kinds else []))

    def started_as(self, entry: Entry, settings: Settings) -> Settings:
        """The same engine started another way: what it would take there is spelled out."""
        here = self.effective(settings).given()
        there = replace(self, entry=entry).effective(settings).given()
        differs = {name: value for name, value in here.items() if value != there[name]}
        return settings.over(Settings.of(differs))

    def refusals(self, settings: Settings = OWN) -> tuple[str, ...]:
        """vLLM's own start-up checks, and two of ours where it would silently do something else.

        What is not known breaks no rule.
        """
        s, version = self.effective(settings), self.release.version
        off = s.enable_chunked_prefill is False
        context, budget, seqs = s.max_model_len, s.max_num_batched_tokens, s.max_num_seqs
        threshold, share = s.long_prefill_token_threshold or 0, s.gpu_memory_utilization or 0
        active = s.max_num_active_seqs
        limit = self.shape.limit if self.shape else None
        rules = {
            f"max_num_batched_tokens ({budget}) is smaller than max_model_len ({context}) "
            "with chunked prefill off": off and _over(context, budget),
            f"max_num_batched_tokens ({budget}) must be >= max_num_seqs ({seqs})": (
                _over(seqs, budget)
            ),
            f"max_num_active_seqs ({active}) is over max_num_seqs ({seqs})": _over(active, seqs),
            f"long_prefill_token_threshold ({threshold}) is over max_model_len ({context})": (
                _over(threshold, context) and at(THRESHOLD_IS_CHECKED, version)
            ),
            f"long_prefill_token_threshold ({threshold}) is negative": threshold < 0,
            f"max_model_len ({context}) is over the model's limit ({limit})": _over(context, limit),
            f"gpu_memory_utilization ({share}) is not in (0, 1]": not 0 < share <= 1,
            "data_parallel_size is for vllm serve: vLLM's LLM class starts one replica": (
                s.parallel.data > 1 and self.entry is Entry.LLM
            ),
            "max_model_len, max_num_batched_tokens and max_num_seqs must be at least 1": any(
                _over(1, value) for value in (context, budget, seqs, active)
            ),
            "chunked prefill is off, and a threshold would still chunk": off and threshold > 0,
            f"vLLM {dotted(version)} ignores chunked prefill off": (
                off and at(OFF_SWITCH, version) is Off.IGNORED
            ),
        }
        if self.measured and (failed := self.measured.failed_as(s)):
            where = f"{self.measured.log}, line {failed.line:,}"
            rules[f"it did not fit when it was tried: {failed.why} ({where})"] = True
        unknown = (name for name in s.given() if not BY_NAME[name].known_to(version))
        rules |= {f"{name} is not known to vLLM {dotted(version)}": True for name in unknown}
        return tuple(rule for rule, broken in rules.items() if broken)


def _over(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one > other
