"""A model on a GPU under one vLLM version: what settings come to there, and what they leave."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from chunkscope.artefacts.note import Note, Values, note
from chunkscope.hardware.accuracy import unlike_measured
from chunkscope.hardware.gpus import Gpu
from chunkscope.hardware.memory import Memory, MemoryModel
from chunkscope.hardware.step_time import GRAPHED_TOKENS, Runner, StepModel, step_model
from chunkscope.models.layers import KvKind
from chunkscope.models.shape import ModelShape
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import Release, dotted, flags_of
from chunkscope.vllm.measured import MeasuredFit
from chunkscope.vllm.settings import NAMES, OWN, UNUSUAL, KvPool, Settings

THRESHOLD = "long_prefill_token_threshold"
POSITIVE = [
    name for name in NAMES if name.endswith(("_len", "_tokens", "_seqs", "_size"))
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Note):
    """Why vLLM would not start with an argument, or not do what it says."""

    argument: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Without a GPU nobody knows vLLM's batch sizes; without a model, too, no memory."""

    release: Release
    entry: Entry = Entry.SERVE
    shape: ModelShape | None = None
    gpu: Gpu | None = None
    logprobs: bool = False
    cuda_graphs: bool = True
    compiled_before: bool = (
        False  # vLLM finds this model with these settings in its cache
    )
    measured: MeasuredFit | None = None  # of an engine here, by its log

    def effective(self, settings: Settings = OWN) -> Settings:
        """What the engine ends up with: what is set, else what vLLM takes by itself; None where
        that is not known. The order is vLLM's: the budget holds a prompt whole where chunking is
        off, is no larger than the running requests can fill, and bounds them."""
        shape, rules = self.shape, self.release.rules
        own = self.release.batch_defaults(self.gpu, self.entry) if self.gpu else OWN
        original = shape.original if shape and rules.stays_unstretched else None
        context = settings.max_model_len or original or (shape.limit if shape else None)
        budget, seqs = (
            own.max_num_batched_tokens,
            settings.max_num_seqs or own.max_num_seqs,
        )
        if budget and context:
            budget = max(
                budget, context if settings.enable_chunked_prefill is False else 0
            )
            budget = min(budget, (seqs or 1) * context)
        budget = settings.max_num_batched_tokens or budget
        if settings.max_num_seqs is None and seqs and budget:
            seqs = min(seqs, budget)
        usual = Settings(
            max_model_len=context,
            max_num_batched_tokens=budget,
            max_num_seqs=seqs,
            long_prefill_token_threshold=0,
            enable_chunked_prefill=True,
            enable_prefix_caching=not (shape and shape.hybrid)
            or rules.hybrid_caches_prefixes,
            gpu_memory_utilization=rules.gpu_memory_utilization,
            tensor_parallel_size=1,
            kv_cache_dtype=shape.quantization.kv_cache
            if shape and rules.own_kv_cache
            else None,
        )
        full = settings.over(usual)
        without = (
            False,
            full.max_num_seqs,
            1,
            False,
            "auto",
        )  # is to do without: not said
        unsaid = [
            n for n, v in zip(UNUSUAL, without, strict=True) if getattr(full, n) == v
        ]
        return replace(full, **{n: getattr(usual, n) for n in unsaid})

    def memory_model(self, settings: Settings = OWN) -> MemoryModel | None:
        """None without a model or a GPU."""
        shape, s, rules = self.shape, self.effective(settings), self.release.rules
        if shape is None or self.gpu is None:
            return None
        if shape.architecture.startswith("Llama4") and not rules.chunks_are_windows:
            shape = replace(shape, attention=replace(shape.attention, sliding_layers=0))
        runner = self.release.runner(shape.architecture, dense=shape.dense)
        return MemoryModel(
            shape=shape,
            gpu=self.gpu,
            runner=runner,
            counts_graphs=rules.v2_counts_graphs
            if runner is Runner.V2
            else rules.v1_counts_graphs,
            parallel=s.parallel,
            logprobs=self.logprobs,
            cuda_graphs=self.cuda_graphs,
            tries_kernels=rules.tries_kernels
            and not (self.measured or self).compiled_before,
            expert_tokens=rules.expert_tokens,
            kv_element_bytes=s.kv_element_bytes,
            caches_prefixes=s.enable_prefix_caching is not False,
            in_flight=1
            + (rules.async_scheduling and rules.keeps_window_of_running_step),
        )

    def step_model(self, settings: Settings) -> StepModel | None:
        """How long steps take; None without a model or the speed of a GPU."""
        shape, gpu = self.shape, self.gpu
        if shape is None or gpu is None:
            return None
        runner = self.release.runner(shape.architecture, dense=shape.dense)
        return step_model(
            shape, gpu, settings.parallel, settings.kv_element_bytes, runner
        )

    def memory(
        self, settings: Settings = OWN, *, longest: int | None = None
    ) -> Memory | None:
        """Where every GiB goes under these settings; no prompt has more than `longest` tokens."""
        s = self.effective(settings)
        model = self.memory_model(s)
        budget, seqs, share = (
            s.max_num_batched_tokens,
            s.max_num_seqs,
            s.gpu_memory_utilization,
        )
        if model is None or budget is None or seqs is None or share is None:
            return None
        chunk = min(
            filter(None, (s.long_prefill_token_threshold, budget, longest)), default=0
        )
        bill = model.memory(
            budget=budget,
            seqs=seqs,
            utilization=share,
            chunk=chunk,
            context=s.max_model_len or 0,
            graphed=s.max_cudagraph_capture_size or GRAPHED_TOKENS,
        )
        fit = self.measured
        if fit is None or fit.settings.parallel != s.parallel:
            return bill
        known = {
            name: getattr(fit, name) for name in ("cuda_graphs", "compiled_before")
        }
        at_log = replace(self, measured=None, **known).memory(fit.settings)
        return fit.applied(bill, s, at_log=at_log, model=model) if at_log else bill

    def fitting_tp(self, settings: Settings, tokens: int) -> int | None:
        """The fewest GPUs, more than these, whose KV cache holds a request of so many tokens."""
        for tp in (n for n in (2, 4, 8, 16) if n > settings.parallel.tensor):
            wider = replace(settings, tensor_parallel_size=tp)
            loads = self.shape and not wider.parallel.obstacle(self.shape)
            if (
                loads
                and (memory := self.memory(wider))
                and memory.kv_cache_tokens >= tokens
            ):
                return tp
        return None

    def requests_of(self, tokens: int, memory: Memory, settings: Settings = OWN) -> int:
        """How many decoding requests of that many tokens the KV cache of a GPU holds at once."""
        model = self.memory_model(settings)
        return (
            memory.kv_cache_blocks // max(1, model.kv_layout.blocks_of(tokens))
            if model
            else 0
        )

    def kv_pool(self, settings: Settings, tokens: int) -> KvPool:
        """A KV cache of so many tokens; in groups where layers keep different parts of them."""
        full = self.effective(settings)
        model, context = self.memory_model(full), full.max_model_len
        if model is None or context is None or model.kv_layout.is_plain:
            return KvPool(tokens=tokens)
        layout, step = model.kv_layout, full.max_num_batched_tokens or 1
        return KvPool(
            tokens=tokens,
            block_size=layout.block_tokens,
            blocks=layout.blocks_with(tokens, context=context, step=step),
            groups=layout.groups,
        )

    def notes(
        self, settings: Settings = OWN, *, simulated: bool = True
    ) -> Iterator[Note]:
        """What of these settings nobody has measured, and what the simulator does otherwise."""
        s = self.effective(settings)
        if self.compiled_before and not self.measured:
            yield note("second_start")
        if self.gpu and self.gpu.name == "v100" and self.release.rules.leaves_volta_out:
            yield note("volta", version=self.release.text)
        if simulated and self.shape:
            yield from filter(
                None, [unlike_measured(self.shape, self.gpu, s.parallel.gpus)]
            )
        if simulated and s.parallel.data > 1 and self.shape and self.shape.experts:
            yield note("replicas_wait")
        if (
            (shape := self.shape)
            and shape.original
            and s.max_model_len == shape.original
        ):
            yield note("unstretched", tokens=shape.original, limit=shape.limit)
        if s.kv_cache_dtype:
            yield note("unmeasured_kv_cache", dtype=s.kv_cache_dtype)
        model = self.memory_model()
        if shape and model and model.shape != shape:
            yield note("chunks_kept", layers=shape.attention.sliding_layers)
        if (
            simulated
            and model
            and not model.kv_layout.is_plain
            and s.enable_prefix_caching
        ):
            kinds = {group.kind for group in model.kv_layout.groups}
            if KvKind.STATE in kinds:
                yield note("window_hits" if KvKind.FULL in kinds else "no_window_hits")
                yield note("states_not_aligned")

    def shortest(self, full: Settings) -> Settings:
        """The fewest arguments with which vLLM ends up with `full`: its defaults are left out."""
        short = full
        for name in NAMES:
            without = replace(short, **{name: None})
            if self.effective(without) == self.effective(full):
                short = without
        return short

    def refusals(
        self, settings: Settings = OWN, bill: Memory | None = None
    ) -> tuple[Refusal, ...]:
        """vLLM's own start-up checks, and two of ours where it would silently do something else.
        What is not known breaks no rule; a bill has to fit and to outlive the first prompts."""
        s = self.effective(settings)
        version, rules = self.release.version, self.release.rules
        off = s.enable_chunked_prefill is False
        context, budget, seqs = (
            s.max_model_len,
            s.max_num_batched_tokens,
            s.max_num_seqs,
        )
        threshold, share = (
            s.long_prefill_token_threshold or 0,
            s.gpu_memory_utilization or 0,
        )
        limit = self.shape.limit if self.shape else None
        long, several = _over(threshold, context), s.parallel.data > 1
        too_much = bill is not None and not bill.starts
        checks = (
            (
                "max_num_batched_tokens",
                "unchunked_budget",
                off and _over(context, budget),
            ),
            ("max_num_batched_tokens", "budget_below_seqs", _over(seqs, budget)),
            (
                "max_num_active_seqs",
                "active_over_seqs",
                _over(s.max_num_active_seqs, seqs),
            ),
            (
                THRESHOLD,
                "threshold",
                threshold < 0 or (long and rules.checks_threshold),
            ),
            ("max_model_len", "context_over_limit", _over(context, limit)),
            ("gpu_memory_utilization", "utilization", not 0 < share <= 1 or too_much),
            *((name, "below_one", _over(1, getattr(s, name))) for name in POSITIVE),
            (
                "data_parallel_size",
                "replicas_need_serve",
                several and self.entry is Entry.LLM,
            ),
            ("enable_chunked_prefill", "off_with_threshold", off and threshold > 0),
            ("enable_chunked_prefill", "off_ignored", off and rules.off_is_ignored),
            *((name, "unknown", name not in flags_of(version)) for name in s.given()),
        )
        values: Values = {**s.given()}
        values |= {"limit": limit, "version": dotted(version)}
        broken = [(argument, code) for argument, code, is_broken in checks if is_broken]
        if bill and _over(context, bill.kv_cache_tokens):
            held = bill.kv_cache_tokens
            values |= {"tokens": held, "missing_gib": max(-bill.kv_cache_gib, 0.01)}
            values |= {
                "tp": self.fitting_tp(s, 1),
                "full_tp": self.fitting_tp(s, context or 1),
            }
            broken.append(("max_model_len", "kv_cache" if held else "no_memory"))
        if bill and not bill.survives_logprobs:
            values |= {
                "taken_gib": bill.unprofiled_gib,
                "free_gib": max(0.0, bill.headroom_gib),
            }
            broken.append(("gpu_memory_utilization", "logprobs"))
        return tuple(
            Refusal(argument=a, code=f"refused_{c}", values=values) for a, c in broken
        )


def _over(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one > other
