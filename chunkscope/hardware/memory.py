"""ModelShape x arguments x GPU -> where every GiB goes.

The constants were fitted on one H200 (vLLM 0.24.0); what they say of other models there is compared
in tests/hardware/test_measured.py. vLLM's profile, and so the KV cache, is linear in the budget;
while generating, a step of many short prompts takes more: attention's partial results.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from chunkscope.artefacts.note import Fact, Label, Note, note
from chunkscope.hardware.gpus import ALONE, GIB, Gpu, Parallel
from chunkscope.hardware.kv_groups import KvLayout, kv_layout
from chunkscope.hardware.step_time import GRAPHED_TOKENS, Runner
from chunkscope.models.shape import BLOCK_TOKENS, BYTES, ModelShape

# CUDA context and libraries (0.23 GiB in vLLM's profile on an H200), rotary tables, input buffers.
OVERHEAD_BYTES = round(0.30 * GIB)  # closes the books of the Llama-3.1-8B run there
PARALLEL_OVERHEAD_BYTES = round(
    0.70 * GIB
)  # to communicate with other GPUs: not measured
# vLLM's estimate on an H200: 0.46 GiB (Qwen2.5-7B, 28 layers), 0.54 (Gemma-2-9B, 42), 0.64 (48).
GRAPH_BYTES, LAYER_GRAPH_BYTES = round(0.20 * GIB), 9 << 20
# With a latent attention 0.3 to 0.45 GiB more with 16 heads (Youtu-LLM-2B, Moonlight), 1.9 with 32
# (20 layers of DeepSeek-V3's build); as much is taken for more.
LATENT_GRAPH_BYTES, LATENT_HEADS = round(1.8 * 2**20), 32
# Bytes per (request x vocabulary entry) of the sampler's dummy run, read in vLLM 0.24. V1: 16-bit
# logits, a 32-bit copy, probabilities and noise; V2: 16-bit logits and a 32-bit copy.
SAMPLER_BYTES = {Runner.V1: 14, Runner.V2: 6}
# The same while greedy requests run: 16-bit logits and a 32-bit copy, on both runners. Measured on
# an H200 with 1,024 and 1,319 running requests of a 151,936 vocabulary: 0.88 and 1.15 GiB.
GREEDY_BYTES = 6
# Bytes per (token x vocabulary entry) of prompt_logprobs, once on an H200: V1, on the whole chunk,
# 2.91 GiB for 2048 x 152,064 (its code reads like 6); V2, on slices, 0.51 for 1024 x 128,256.
LOGPROB_BYTES = {Runner.V1: 10, Runner.V2: 4}
V2_SLICE_TOKENS = 1024
MOST_EXPANDED = (
    64 * 1024
)  # tokens that latent attention expands at once (`mla_attention.py`)
KEYS_PER_BLOCK = (
    128  # that FlashAttention 3 reads at once, causal and with heads of 128
)
GRAPH_SPLITS = (
    32  # of keys, where a step is small enough for CUDA graphs (`flash_attn.py`)
)
USABLE_HEADROOM = 0.9  # of what vLLM leaves free, by what it did not profile: fragments


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """One item of the bill, per GPU. What is not `profiled` comes on top of vLLM's budget."""

    name: str
    gib: float
    label: Label
    note: Note  # what it is made of
    profiled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The bill of one GPU. `kv_cache_bytes` may be negative: then the model does not fit."""

    lines: tuple[MemoryLine, ...]
    total_gib: float
    requested_gib: float
    kv_cache_bytes: int
    kv_cache_tokens: int
    headroom_gib: float
    unprofiled_gib: float
    kv_cache_blocks: int
    kv_cache_label: Label | None = None  # None: predicted

    @property
    def kv_cache_gib(self) -> float:
        return self.kv_cache_bytes / GIB

    @property
    def survives_logprobs(self) -> bool:
        return self.unprofiled_gib <= max(0.0, USABLE_HEADROOM * self.headroom_gib)

    @property
    def starts(self) -> bool:
        """vLLM looks for all that it may use when a CUDA context has already taken some."""
        return self.requested_gib + self.line("overhead").gib <= self.total_gib

    def holds(self, tokens: int) -> bool:
        """vLLM starts only when one request of `max_model_len` fits the KV cache, and CUDA
        graphs that it does not reckon with have room beside it."""
        has_room = self.survives_logprobs and self.headroom_gib >= 0
        return has_room and self.kv_cache_tokens >= tokens

    def line(self, name: str) -> MemoryLine:
        return next(line for line in self.lines if line.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """A model on a GPU. `counts_graphs`: are CUDA graphs part of the budget, or outside it?"""

    shape: ModelShape
    gpu: Gpu
    runner: Runner
    counts_graphs: bool
    parallel: Parallel = ALONE
    logprobs: bool = False
    cuda_graphs: bool = True
    tries_kernels: bool = (
        False  # while compiling, as it finds nothing that was compiled before
    )
    caches_prefixes: bool = True
    in_flight: int = (
        1  # steps that are scheduled at once, where windows reckon with them
    )
    kv_element_bytes: int = BYTES  # 1 where the KV cache is of 8 bits
    expert_tokens: int | None = (
        None  # that the experts' kernel takes at once; None: all
    )

    @property
    def kv_layout(self) -> KvLayout:
        tp = self.parallel.tensor
        layout = kv_layout(self.shape, tp, self.kv_element_bytes, self.caches_prefixes)
        return replace(layout, in_flight=self.in_flight)

    def memory(
        self,
        *,
        budget: int,
        seqs: int,
        utilization: float,
        chunk: int = 0,
        context: int = 0,
        graphed: int = GRAPHED_TOKENS,
    ) -> Memory:
        """Where it goes when a step holds `budget` tokens, up to `chunk` of one prompt; 0: as many.

        `context` is the longest request that vLLM lets in; 0: as long as the model takes.
        `graphed` is the largest step that has a CUDA graph.
        """
        total, longest = (
            round(self.gpu.memory_gib * GIB),
            context or self.shape.limit or budget,
        )
        requested = round(total * utilization)
        lines = tuple(self._lines(budget, seqs, chunk or budget, longest, graphed))
        kv_bytes = requested - sum(
            round(line.gib * GIB) for line in lines if line.profiled
        )
        # The logprobs pass follows the forward pass, so it may reuse what that was given.
        reusable = next(line.gib for line in lines if line.name == "activation")
        outside = {line.name: line.gib for line in lines if not line.profiled}
        blocks = (layout := self.kv_layout).blocks(kv_bytes)
        return Memory(
            lines=lines,
            total_gib=total / GIB,
            requested_gib=requested / GIB,
            kv_cache_bytes=kv_bytes,
            kv_cache_tokens=layout.tokens(blocks, context=longest, step=budget),
            headroom_gib=(total - requested) / GIB - outside.get("cuda_graphs", 0.0),
            unprofiled_gib=max(0.0, outside.get("logprobs", 0.0) - reusable),
            kv_cache_blocks=blocks,
        )

    def running_peak_gib(
        self, steps: Iterable[tuple[int, Sequence[tuple[int, int]]]], *, running: int
    ) -> float:
        """The most that steps allocate while requests run, beyond weights and KV cache.

        `steps` that read prompts: how many requests decode beside, where each piece of a prompt
        starts and ends. The forward pass of a step, the logits of all running requests or of
        prompt_logprobs: the largest, as they take turns.
        """
        sizes, keys = [running * self.shape.vocab * GREEDY_BYTES], 0
        for decoding, pieces in steps:
            keys = max(
                keys if decoding else 0, *(end for _, end in pieces)
            )  # of the longest there
            longest = max(end - start for start, end in pieces)
            tokens = decoding + sum(end - start for start, end in pieces)
            context = max(start for start, _ in pieces)
            sizes.append(self._reading_bytes(tokens, longest, context, keys))
            if self.logprobs:
                sizes.append(self._logprobs(longest)[1])
        return max(sizes) / GIB

    def _reading_bytes(self, tokens: int, longest: int, context: int, keys: int) -> int:
        """Of a step with so many tokens, by the longest piece of a prompt and sequence in it.

        Short pieces would leave SMs idle: FlashAttention splits each over several of them, and
        adds up their 32-bit results. A latent attention expands what is behind a piece.
        """
        shape, tp, a = self.shape, self.parallel.tensor, self.shape.attention
        splits, heads = (
            1 if a.latent else self._key_splits(longest, keys),
            a.heads // tp,
        )
        beside = shape.attending_bytes_per_token(tp)
        if self.cuda_graphs and tokens <= GRAPHED_TOKENS and not a.latent:
            splits, beside = GRAPH_SPLITS, 0  # the rest is in the graphs' memory
        partial = 4 * splits * heads * (a.head_dim + 1)
        return max(
            self._forward_bytes(tokens),
            tokens * (beside + partial) if splits > 1 else 0,
            shape.latent_bytes(tokens, min(context, MOST_EXPANDED), tp, copied=True),
        )

    def _key_splits(self, longest: int, keys: int) -> int:
        """Over how many SMs FlashAttention 3 spreads a block (as its `num_splits_heuristic`).

        Up to four blocks of keys are not worth it, and there is no more to spread than blocks.
        Where every head has keys of its own, one more was measured (OLMoE).
        """
        a, tp, sms = self.shape.attention, self.parallel.tensor, self.gpu.sms
        heads, kv_heads = a.heads // tp, max(1, a.kv_heads // tp)
        key_blocks = -(-keys // KEYS_PER_BLOCK)
        rows = 128 if a.head_dim > 96 else 192
        blocks = kv_heads * -(-longest * (heads // kv_heads) // rows)
        if blocks >= 0.8 * sms or key_blocks <= 4:
            return 1
        waves = [blocks * splits / sms for splits in range(1, min(128, key_blocks) + 1)]
        busy = [wave / math.ceil(wave) for wave in waves]
        fewest = next(n for n, share in enumerate(busy, 1) if share >= 0.85 * max(busy))
        return fewest + (heads == kv_heads)

    def _lines(
        self, budget: int, seqs: int, chunk: int, context: int, graphed: int
    ) -> Iterator[MemoryLine]:
        shape, parallel, q = self.shape, self.parallel, self.shape.quantization
        shares = parallel.data > 1 and shape.experts is not None
        yield _line(
            "weights",
            parallel.weight_bytes(shape),
            billions=shape.parameters.total / 1e9,
            kind="files" if shape.file_bytes else f"{q.method} {q.bits:g}-bit".strip(),
            gpus=parallel.gpus if shares else parallel.tensor,
            shares_experts=shares,
        )
        profiled = held = self._profiled_bytes(budget, seqs, context)
        yield _line(
            "activation",
            profiled,
            tokens=budget,
            kib=shape.activation_bytes_per_token(self.parallel.tensor) / 1024,
            expands=profiled > self._forward_bytes(budget),
        )
        if shape.experts:
            per_token = shape.workspace_bytes_per_token(
                1 if parallel.by_expert else parallel.gpus
            )
            every = budget * parallel.data  # the replicas' tokens are gathered
            tokens = min(every, self.expert_tokens or every)
            label = Label.PREDICTED if parallel.gpus == 1 else Label.ASSUMED
            yield _line(
                "experts",
                tokens * per_token,
                label,
                tokens=tokens,
                kib=per_token / 1024,
            )
            held += tokens * per_token
        # Only what the sampler needs beyond the activations: they are not held together.
        rows, vocab = min(budget, seqs), shape.vocab
        beyond = max(0, rows * vocab * SAMPLER_BYTES[self.runner] - profiled)
        yield _line("sampler", beyond, Label.ASSUMED, requests=rows, vocab=vocab)
        # On a copy of the embedding (which a model with towers is not asked for) and two results.
        tried = (
            self.tries_kernels
            * BYTES
            * shape.hidden
            * (vocab // parallel.tensor + 2 * budget)
        )
        if self.cuda_graphs and not shape.parameters.vision and tried > held + beyond:
            yield _line("compiling", tried - held - beyond)
        overhead = OVERHEAD_BYTES + (
            PARALLEL_OVERHEAD_BYTES if parallel.gpus > 1 else 0
        )
        yield _line("overhead", overhead, Label.ASSUMED, several=parallel.gpus > 1)
        graphs = 0
        if self.cuda_graphs:
            more = captured_sizes(graphed) / captured_sizes(GRAPHED_TOKENS)
            graphs = GRAPH_BYTES + round(
                shape.layers * LAYER_GRAPH_BYTES * max(1, more)
            )
        if graphs and shape.attention.latent:
            heads = min(shape.attention.heads // parallel.tensor, LATENT_HEADS)
            graphs += heads**2 * LATENT_GRAPH_BYTES
        values = {"layers": shape.layers, "counted": self.counts_graphs}
        yield _line(
            "cuda_graphs", graphs, Label.ASSUMED, profiled=self.counts_graphs, **values
        )
        if self.logprobs:
            rows, size = self._logprobs(min(chunk, budget))
            yield _line("logprobs", size, profiled=False, tokens=rows, vocab=vocab)

    def _forward_bytes(self, budget: int) -> int:
        return budget * self.shape.activation_bytes_per_token(self.parallel.tensor)

    def _profiled_bytes(self, budget: int, seqs: int, context: int) -> int:
        """While profiling, a latent attention expands as much context as it ever does at once."""
        wanted = min(max(8 * context, 4 * seqs * BLOCK_TOKENS), MOST_EXPANDED)
        expanded, tp = max(wanted, seqs * BLOCK_TOKENS), self.parallel.tensor
        return max(
            self._forward_bytes(budget), self.shape.latent_bytes(budget, expanded, tp)
        )

    def _logprobs(self, chunk: int) -> tuple[int, int]:
        """Rows of logits at once, and the bytes of all."""
        rows = min(chunk, V2_SLICE_TOKENS) if self.runner is Runner.V2 else chunk
        logits = rows * self.shape.vocab * LOGPROB_BYTES[self.runner]
        return rows, logits + chunk * self.shape.hidden * BYTES


def captured_sizes(most: int) -> int:
    """How many CUDA graphs vLLM captures: of 1, 2 and 4 tokens, of every 8th number up to 256
    and of every 16th after that (`config/vllm.py`)."""
    small = min(most, 256) // 8
    large = max(0, most - 256) // 16
    return 3 + small + large


def _line(
    name: str,
    size: float,
    label: Label = Label.PREDICTED,
    *,
    profiled: bool = True,
    **values: Fact,
) -> MemoryLine:
    made_of = note(f"memory_{name}", **values)
    return MemoryLine(
        name=name, gib=size / GIB, label=label, note=made_of, profiled=profiled
    )
