"""A model on a GPU under one vLLM version: what settings come to there, and what they leave."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from chunkscope.artefacts.note import Fact, Note
from chunkscope.hardware.accuracy import unlike_measured
from chunkscope.hardware.gpus import Gpu
from chunkscope.hardware.memory import Memory, MemoryModel, Runner
from chunkscope.models.layers import KvKind
from chunkscope.models.shape import ModelShape
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import Release, dotted, flags_of
from chunkscope.vllm.measured import MeasuredFit
from chunkscope.vllm.settings import NAMES, UNUSUAL, KvPool, Settings

OWN = Settings()  # everything left to vLLM
THRESHOLD = "long_prefill_token_threshold"
POSITIVE = ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "max_num_active_seqs")


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
    measured: MeasuredFit | None = None  # of an engine here, by its log

    def effective(self, settings: Settings = OWN) -> Settings:
        """What the engine ends up with: what is set, else what vLLM takes by itself.

        None is left where that is not known. The order is vLLM's: the budget holds a prompt whole
        where chunking is off, is no larger than the running requests can fill, and bounds them.
        """
        shape, rules = self.shape, self.release.rules
        own = self.release.batch_defaults(self.gpu, self.entry) if self.gpu else OWN
        context = settings.max_model_len or (shape.limit if shape else None)
        budget, seqs = own.max_num_batched_tokens, settings.max_num_seqs or own.max_num_seqs
        if budget and context:
            budget = max(budget, context if settings.enable_chunked_prefill is False else 0)
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
            enable_prefix_caching=not (shape and shape.hybrid) or rules.hybrid_caches_prefixes,
            gpu_memory_utilization=rules.gpu_memory_utilization,
            tensor_parallel_size=1,
        )
        full = settings.over(usual)
        without = (False, full.max_num_seqs, 1, False, "auto")  # is to do without: not said
        unsaid = [n for n, v in zip(UNUSUAL, without, strict=True) if getattr(full, n) == v]
        return replace(full, **dict.fromkeys(unsaid))

    def memory_model(self, settings: Settings = OWN) -> MemoryModel | None:
        """None without a model or a GPU."""
        if self.shape is None or self.gpu is None:
            return None
        runner = self.release.runner(self.shape.architecture, dense=self.shape.dense)
        rules = self.release.rules
        return MemoryModel(
            shape=self.shape,
            gpu=self.gpu,
            runner=runner,
            counts_graphs=rules.v2_counts_graphs if runner is Runner.V2 else rules.v1_counts_graphs,
            parallel=settings.parallel,
            logprobs=self.logprobs,
            cuda_graphs=self.cuda_graphs,
            expert_tokens=rules.expert_tokens,
            kv_element_bytes=settings.kv_element_bytes,
            caches_prefixes=self.effective(settings).enable_prefix_caching is not False,
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

    def notes(self, settings: Settings = OWN, *, simulated: bool = True) -> Iterator[Note]:
        """What of these settings nobody has measured, and what the simulator does otherwise."""
        s = self.effective(settings)
        parallel = s.parallel
        if self.shape and (unlike := unlike_measured(self.shape, self.gpu, parallel.gpus)):
            yield unlike
        if parallel.data > 1 and self.shape and self.shape.experts:
            yield Note(code="replicas_wait")
        if s.kv_cache_dtype:
            yield Note(code="unmeasured_kv_cache", values={"dtype": s.kv_cache_dtype})
        model = self.memory_model()
        if simulated and model and not model.kv_layout.is_plain and s.enable_prefix_caching:
            kinds = {group.kind for group in model.kv_layout.groups}
            yield Note(code="window_hits" if KvKind.FULL in kinds else "no_window_hits")
            if KvKind.STATE in kinds:
                yield Note(code="states_not_aligned")

    def started_as(self, entry: Entry, settings: Settings) -> Settings:
        """The same engine started another way: what it would take there is spelled out."""
        here = self.effective(settings).given()
        there = replace(self, entry=entry).effective(settings).given()
        differs = {name: value for name, value in here.items() if value != there[name]}
        return settings.over(Settings.of(differs))

    def shortest(self, full: Settings) -> Settings:
        """The fewest arguments with which vLLM ends up with `full`: its defaults are left out."""
        short = full
        for name in NAMES:
            without = replace(short, **{name: None})
            if self.effective(without) == self.effective(full):
                short = without
        return short

    def refusals(self, settings: Settings = OWN) -> tuple[Refusal, ...]:
        """vLLM's own start-up checks, and two of ours where it would silently do something else.

        What is not known breaks no rule.
        """
        s = self.effective(settings)
        version, rules = self.release.version, self.release.rules
        off = s.enable_chunked_prefill is False
        context, budget, seqs = s.max_model_len, s.max_num_batched_tokens, s.max_num_seqs
        threshold, share = s.long_prefill_token_threshold or 0, s.gpu_memory_utilization or 0
        limit = self.shape.limit if self.shape else None
        long, several = _over(threshold, context), s.parallel.data > 1
        checks = (
            ("max_num_batched_tokens", "unchunked_budget", off and _over(context, budget)),
            ("max_num_batched_tokens", "budget_below_seqs", _over(seqs, budget)),
            ("max_num_active_seqs", "active_over_seqs", _over(s.max_num_active_seqs, seqs)),
            (THRESHOLD, "threshold_over_context", long and rules.checks_threshold),
            (THRESHOLD, "negative_threshold", threshold < 0),
            ("max_model_len", "context_over_limit", _over(context, limit)),
            ("gpu_memory_utilization", "utilization", not 0 < share <= 1),
            *((name, "below_one", _over(1, getattr(s, name))) for name in POSITIVE),
            ("data_parallel_size", "replicas_need_serve", several and self.entry is Entry.LLM),
            ("enable_chunked_prefill", "off_with_threshold", off and threshold > 0),
            ("enable_chunked_prefill", "off_ignored", off and rules.off_is_ignored),
            *((name, "unknown", name not in flags_of(version)) for name in s.given()),
        )
        values: dict[str, Fact | list[Fact]] = {**s.given()}
        values |= {"limit": limit, "version": dotted(version)}
        broken = [(argument, code) for argument, code, is_broken in checks if is_broken]
        if self.measured and (failed := self.measured.failed_as(s)):
            values |= {"why": failed.why, "log": self.measured.log, "line": failed.line}
            broken.append(("gpu_memory_utilization", "failed"))
        return tuple(Refusal(argument=a, code=f"refused_{c}", values=values) for a, c in broken)


def _over(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one > other
