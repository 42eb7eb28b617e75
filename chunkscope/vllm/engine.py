"""A model on a GPU under one vLLM version: what settings come to, what they leave."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from chunkscope.artefacts.note import Fact, Label, Note, Values, note
from chunkscope.hardware.accuracy import unlike_measured
from chunkscope.hardware.gpus import GIB, Gpu
from chunkscope.hardware.kv_groups import KvLayout, kv_layout
from chunkscope.hardware.memory import (
    Memory,
    MemoryDemand,
    MemoryLine,
    memory_bill,
)
from chunkscope.hardware.step_time import (
    GRAPHED_TOKENS,
    GRAPHED_TOKENS_OF_BLACKWELL,
    Runner,
    StepModel,
    step_model,
)
from chunkscope.models.layers import KvKind
from chunkscope.models.shape import ModelShape
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import Release, dotted, flags_of
from chunkscope.vllm.measured import MeasuredFit
from chunkscope.vllm.settings import AUTO, NAMES, OWN, POSITIVE, KvPool, Settings

WIDER_TP = (2, 4, 8, 16)
# The KV cache of an engine with the same of these is known, not shifted.
SIZES = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "gpu_memory_utilization",
    "max_model_len",
    "max_cudagraph_capture_size",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Note):
    """Why vLLM would not start with an argument, or not do what it says."""

    argument: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A model on a GPU. Without a GPU, batch sizes and memory are not known."""

    release: Release
    entry: Entry = Entry.SERVE
    shape: ModelShape | None = None
    gpu: Gpu | None = None
    logprobs: bool = False
    cuda_graphs: bool = True
    compiled_before: bool = False  # vLLM finds what an earlier start has compiled
    measured: MeasuredFit | None = None  # by the log of an engine that ran here

    # -- settings ----------------------------------------------------------------------

    def complete(self, settings: Settings = OWN) -> Settings:
        """What the engine runs with: what is set, else what vLLM takes by itself.

        Only sizes that follow from an unknown GPU or model stay None, and two that
        follow the number of requests: `max_num_active_seqs` where it limits nothing,
        and `max_cudagraph_capture_size`.
        """
        rules, shape = self.release.rules, self.shape
        context = settings.max_model_len or self._context()
        sizes = self._batch_sizes(settings, context)
        defaults = Settings(
            max_model_len=context,
            max_num_batched_tokens=sizes.max_num_batched_tokens,
            max_num_seqs=sizes.max_num_seqs,
            long_prefill_token_threshold=0,
            enable_chunked_prefill=True,
            enable_prefix_caching=True,
            gpu_memory_utilization=rules.gpu_memory_utilization,
            tensor_parallel_size=1,
            long_prefill_token_threshold_adaptive=False,
            data_parallel_size=1,
            enable_expert_parallel=False,
        )
        if shape is not None and shape.hybrid and not rules.hybrid_caches_prefixes:
            defaults = replace(defaults, enable_prefix_caching=False)
        complete = settings.over(defaults)
        if complete.max_num_active_seqs == complete.max_num_seqs:
            # As many as there are places is no limit of its own, which vLLM calls None.
            complete = replace(complete, max_num_active_seqs=None)
        if complete.kv_cache_dtype in (None, AUTO):
            complete = replace(complete, kv_cache_dtype=self._kv_cache_dtype())
        return complete

    def shortest(self, complete: Settings) -> Settings:
        """The fewest arguments with which vLLM ends up so, without its defaults."""
        complete = self.complete(complete)
        short = complete
        for name in NAMES:
            without = replace(short, **{name: None})
            if self.complete(without) == complete:
                short = without
        return short

    def _context(self) -> int | None:
        """The longest context that vLLM takes by itself: longrope's original one."""
        if self.shape is None:
            return None
        return self.shape.original or self.shape.limit

    def _batch_sizes(self, settings: Settings, context: int | None) -> Settings:
        """The tokens and requests of a step.

        The order is vLLM's: the budget holds a prompt
        whole where chunking is off, is no larger than the running requests can fill,
        and bounds them."""
        own = OWN
        if self.gpu is not None:
            own = self.release.batch_defaults(self.gpu, self.entry)
        seqs = settings.max_num_seqs or own.max_num_seqs
        budget = own.max_num_batched_tokens
        if budget and context:
            if settings.enable_chunked_prefill is False:
                budget = max(budget, context)
            budget = min(budget, (seqs or 1) * context)
        budget = settings.max_num_batched_tokens or budget
        if settings.max_num_seqs is None and seqs and budget:
            seqs = min(seqs, budget)
        return Settings(max_num_batched_tokens=budget, max_num_seqs=seqs)

    def _kv_cache_dtype(self) -> str:
        """What `auto` is: of 8 bits if the checkpoint says so."""
        if self.shape is None:
            return AUTO
        return self.shape.quantization.kv_cache or AUTO

    # -- memory ------------------------------------------------------------------------

    def memory(
        self, settings: Settings = OWN, *, longest: int | None = None
    ) -> Memory | None:
        """Where every GiB goes if no prompt has more than `longest` tokens."""
        complete = self.complete(settings)
        demand, layout = self._demand(complete, longest), self.kv_layout(complete)
        if self.shape is None or self.gpu is None or demand is None or layout is None:
            return None
        bill = memory_bill(self.shape, self.gpu, layout, demand)
        if self.measured is None:
            return bill
        return self._shifted(bill, complete, layout, self.measured)

    def kv_layout(self, settings: Settings = OWN) -> KvLayout | None:
        """How the layers share the KV cache; None without a model."""
        if self.shape is None:
            return None
        complete, rules = self.complete(settings), self.release.rules
        in_flight = 1
        if rules.async_scheduling and rules.keeps_window_of_running_step:
            in_flight = 2
        return kv_layout(
            self.shape,
            complete.parallel.tensor,
            complete.kv_element_bytes,
            caches_states=complete.enable_prefix_caching is not False,
            in_flight=in_flight,
        )

    def kv_pool(self, settings: Settings, tokens: int) -> KvPool:
        """A KV cache of so many tokens, in groups where layers keep parts of them."""
        complete = self.complete(settings)
        layout, context = self.kv_layout(complete), complete.max_model_len
        if self.gpu is None or layout is None or context is None or layout.is_plain:
            return KvPool(tokens=tokens)
        step = complete.max_num_batched_tokens or 1
        return KvPool(
            tokens=tokens,
            block_size=layout.block_tokens,
            blocks=layout.blocks_with(tokens, context=context, step=step),
            groups=layout.groups,
        )

    def requests_of(self, tokens: int, memory: Memory, settings: Settings = OWN) -> int:
        """How many decoding requests of that many tokens a GPU's KV cache holds."""
        layout = self.kv_layout(settings)
        if layout is None:
            return 0
        return memory.kv_cache_blocks // max(1, layout.blocks_of(tokens))

    def fitting_tp(self, settings: Settings, tokens: int) -> int | None:
        """The fewest GPUs, more than these, whose KV cache holds such a request."""
        if self.shape is None:
            return None
        for tensor in WIDER_TP:
            wider = replace(settings, tensor_parallel_size=tensor)
            if tensor <= settings.parallel.tensor or wider.parallel.obstacle(
                self.shape
            ):
                continue
            memory = self.memory(wider)
            if memory is not None and memory.kv_cache_tokens >= tokens:
                return tensor
        return None

    def _demand(self, complete: Settings, longest: int | None) -> MemoryDemand | None:
        """What complete settings ask of a GPU's memory; None if a size is not known."""
        shape, rules = self.shape, self.release.rules
        budget, seqs = complete.max_num_batched_tokens, complete.max_num_seqs
        share = complete.gpu_memory_utilization
        if shape is None or budget is None or seqs is None or share is None:
            return None
        runner = self.release.runner(shape.architecture, dense=shape.dense)
        graphs_in_budget = rules.v1_counts_graphs
        if runner is Runner.V2:
            graphs_in_budget = rules.v2_counts_graphs
        compiled_before = self.compiled_before
        if self.measured is not None:
            compiled_before = self.measured.compiled_before
        return MemoryDemand(
            step_tokens=budget,
            requests=seqs,
            context=complete.max_model_len or shape.limit or budget,
            prompt_tokens=min(complete.chunk_tokens, longest or budget) or budget,
            utilization=share,
            runner=runner,
            parallel=complete.parallel,
            cuda_graphs=self.cuda_graphs,
            graphed_tokens=complete.max_cudagraph_capture_size or self._graphed_tokens,
            graphs_in_budget=graphs_in_budget,
            compiles=not compiled_before,
            expert_tokens=rules.expert_tokens,
            logprobs=self.logprobs,
        )

    def _shifted(
        self, bill: Memory, complete: Settings, layout: KvLayout, fit: MeasuredFit
    ) -> Memory:
        """The bill, off by as much as it was off for the settings of the log."""
        tokens, logged = fit.kv_cache_tokens, fit.settings
        if tokens is None or logged.parallel != complete.parallel:
            return bill
        engine = replace(
            self,
            measured=None,
            cuda_graphs=fit.cuda_graphs,
            compiled_before=fit.compiled_before,
        )
        predicted = engine.memory(logged)
        if predicted is None:
            return bill
        blocks = layout.blocks_with(
            tokens, context=self._longest(logged), step=logged.step_tokens or 1
        )
        off_bytes = predicted.kv_cache_bytes - blocks * layout.block_bytes
        kv_bytes = bill.kv_cache_bytes - off_bytes
        line = MemoryLine(
            name="correction",
            gib=off_bytes / GIB,
            label=Label.MEASURED,
            note=note("memory_correction", log=fit.log, tokens=tokens),
        )
        label = None
        same_sizes = all(getattr(complete, n) == getattr(logged, n) for n in SIZES)
        if same_sizes and self.cuda_graphs == fit.cuda_graphs:
            label = Label.MEASURED
        return replace(
            bill,
            lines=(*bill.lines, line),
            kv_cache_bytes=kv_bytes,
            kv_cache_blocks=layout.blocks(kv_bytes),
            kv_cache_tokens=layout.tokens(
                layout.blocks(kv_bytes),
                context=self._longest(complete),
                step=complete.step_tokens or 1,
            ),
            kv_cache_label=label,
        )

    def _longest(self, complete: Settings) -> int:
        """The longest request that vLLM lets in."""
        limit = self.shape.limit if self.shape else None
        return complete.max_model_len or limit or complete.step_tokens or 1

    # -- step times --------------------------------------------------------------------

    def step_model(self, settings: Settings = OWN) -> StepModel | None:
        """How long steps take; None without a model or the speed of a GPU."""
        shape, gpu = self.shape, self.gpu
        if shape is None or gpu is None:
            return None
        runner = self.release.runner(shape.architecture, dense=shape.dense)
        model = step_model(
            shape, gpu, settings.parallel, settings.kv_element_bytes, runner
        )
        if model is None:
            return None
        tokens = max(model.graphed_tokens, self._graphed_tokens)
        return replace(model, graphed_tokens=tokens)

    @property
    def _graphed_tokens(self) -> int:
        """The largest step for which vLLM captures a CUDA graph by itself."""
        is_blackwell = self.gpu is not None and self.gpu.architecture == "blackwell"
        if is_blackwell and self.release.rules.large_graphs_on_blackwell:
            return GRAPHED_TOKENS_OF_BLACKWELL
        return GRAPHED_TOKENS

    # -- what is worth saying ----------------------------------------------------------

    def notes(
        self, settings: Settings = OWN, *, simulated: bool = True
    ) -> Iterator[Note]:
        """What nobody has measured here, and what the simulator does otherwise."""
        complete = self.complete(settings)
        if self.compiled_before and not self.measured:
            yield note("second_start")
        is_volta = self.gpu is not None and self.gpu.architecture == "volta"
        if is_volta and self.release.rules.leaves_volta_out:
            yield note("volta", version=self.release.text)
        if self.shape is None:
            if complete.kv_cache_dtype != AUTO:
                yield note("unmeasured_kv_cache", dtype=complete.kv_cache_dtype)
            return
        yield from self._model_notes(self.shape, complete, simulated)

    def _model_notes(
        self, shape: ModelShape, complete: Settings, simulated: bool
    ) -> Iterator[Note]:
        parallel = complete.parallel
        if simulated:
            unlike = unlike_measured(shape, self.gpu, parallel.gpus)
            if unlike is not None:
                yield unlike
            if parallel.data > 1 and shape.experts:
                yield note("replicas_wait")
        if shape.original and complete.max_model_len == shape.original:
            yield note("unstretched", tokens=shape.original, limit=shape.limit)
        if complete.kv_cache_dtype != AUTO:
            yield note("unmeasured_kv_cache", dtype=complete.kv_cache_dtype)
        if self.gpu is None:
            return
        if simulated and complete.enable_prefix_caching:
            yield from self._prefix_notes()

    def _prefix_notes(self) -> Iterator[Note]:
        """Prefixes of layers that keep a state are simulated otherwise."""
        layout = self.kv_layout()
        if layout is None or layout.is_plain:
            return
        kinds = {group.kind for group in layout.groups}
        if KvKind.STATE in kinds:
            yield note("window_hits" if KvKind.FULL in kinds else "no_window_hits")
            yield note("states_not_aligned")

    # -- what vLLM refuses -------------------------------------------------------------

    def refusals(
        self, settings: Settings = OWN, bill: Memory | None = None
    ) -> tuple[Refusal, ...]:
        """vLLM's own checks, and one of ours where it would silently do otherwise.

        What is not known breaks no rule; a bill has to fit and to outlive the first
        prompts.
        """
        complete = self.complete(settings)
        refusals = [
            *self._refused_sizes(complete),
            *self._refused_shares(complete, bill),
            *self._refused_modes(complete),
            *self._unknown_arguments(settings),
        ]
        if bill is not None:
            refusals.extend(self._refused_memory(complete, bill))
        return tuple(refusals)

    def _refusal(
        self, complete: Settings, argument: str, fault: str, **values: Fact
    ) -> Refusal:
        limit = self.shape.limit if self.shape else None
        version = dotted(self.release.version)
        about: Values = {**complete.given(), **values}
        about |= {"limit": limit, "version": version}
        return Refusal(argument=argument, code=f"refused_{fault}", values=about)

    def _refused_sizes(self, complete: Settings) -> Iterator[Refusal]:
        context, budget = complete.max_model_len, complete.max_num_batched_tokens
        seqs, active = complete.max_num_seqs, complete.max_num_active_seqs
        threshold = complete.long_prefill_token_threshold or 0
        unchunked = complete.enable_chunked_prefill is False
        if unchunked and _over(context, budget):
            yield self._refusal(complete, "max_num_batched_tokens", "unchunked_budget")
        if _over(seqs, budget):
            yield self._refusal(complete, "max_num_batched_tokens", "budget_below_seqs")
        if _over(active, seqs):
            yield self._refusal(complete, "max_num_active_seqs", "active_over_seqs")
        too_long = self.release.rules.checks_threshold and _over(threshold, context)
        if threshold < 0 or too_long:
            yield self._refusal(complete, "long_prefill_token_threshold", "threshold")
        if self.shape is not None and _over(context, self.shape.limit):
            yield self._refusal(complete, "max_model_len", "context_over_limit")

    def _refused_shares(
        self, complete: Settings, bill: Memory | None
    ) -> Iterator[Refusal]:
        share = complete.gpu_memory_utilization or 0.0
        driver_has_none = bill is not None and not bill.starts
        if not 0 < share <= 1 or driver_has_none:
            yield self._refusal(complete, "gpu_memory_utilization", "utilization")
        for name in POSITIVE:
            if _over(1, getattr(complete, name)):
                yield self._refusal(complete, name, "below_one")

    def _refused_modes(self, complete: Settings) -> Iterator[Refusal]:
        if complete.parallel.data > 1 and self.entry is Entry.LLM:
            yield self._refusal(complete, "data_parallel_size", "replicas_need_serve")
        threshold = complete.long_prefill_token_threshold or 0
        if complete.enable_chunked_prefill is False and threshold > 0:
            yield self._refusal(
                complete, "enable_chunked_prefill", "off_with_threshold"
            )

    def _unknown_arguments(self, settings: Settings) -> Iterator[Refusal]:
        """What this version has no flag for, unless it does so anyway."""
        complete, flags = self.complete(settings), flags_of(self.release.version)
        for name in settings.given():
            if name in flags:
                continue
            without = self.complete(replace(settings, **{name: None}))
            if without != complete:
                yield self._refusal(complete, name, "unknown")

    def _refused_memory(self, complete: Settings, bill: Memory) -> Iterator[Refusal]:
        context = complete.max_model_len
        if _over(context, bill.kv_cache_tokens):
            values: dict[str, Fact] = {
                "tokens": bill.kv_cache_tokens,
                "missing_gib": max(-bill.kv_cache_gib, 0.01),
                "tp": self.fitting_tp(complete, 1),
                "full_tp": self.fitting_tp(complete, context or 1),
            }
            why = "kv_cache" if bill.kv_cache_tokens else "no_memory"
            yield self._refusal(complete, "max_model_len", why, **values)
        if not bill.survives_logprobs:
            yield self._refusal(
                complete,
                "gpu_memory_utilization",
                "logprobs",
                taken_gib=bill.unprofiled_gib,
                free_gib=max(0.0, bill.headroom_gib),
            )


def _over(size: float | None, limit: float | None) -> bool:
    """Is it over a limit, as far as both are known?"""
    return size is not None and limit is not None and size > limit
