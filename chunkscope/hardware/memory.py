"""ModelShape x what an engine is asked to hold x GPU -> where every GiB goes.

The numbers in constants.csv were fitted on one H200 (vLLM 0.24.0); what they say of
other models there is compared in tests/hardware/test_measured.py. vLLM's profile, and
so the KV cache, is linear in the tokens of a step.
"""

from dataclasses import dataclass

from chunkscope.artefacts.note import Fact, Label, Note, note
from chunkscope.hardware.constants import constant, whole
from chunkscope.hardware.gpus import ALONE, GIB, Gpu, Parallel
from chunkscope.hardware.kv_groups import KvLayout
from chunkscope.hardware.step_time import GRAPHED_TOKENS, Runner
from chunkscope.models.shape import BLOCK_TOKENS, BYTES, ModelShape

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDemand:
    """What an engine asks of each GPU: its settings as one vLLM version takes them."""

    step_tokens: int  # the most of one step, with which vLLM profiles
    requests: int  # that run at once
    context: int  # tokens of the longest request that vLLM lets in
    prompt_tokens: int  # the most of one prompt in a step
    utilization: float
    runner: Runner
    parallel: Parallel = ALONE
    cuda_graphs: bool = True
    graphed_tokens: int = GRAPHED_TOKENS  # of the largest step that has a CUDA graph
    graphs_in_budget: bool = False  # vLLM takes their memory off the KV cache
    compiles: bool = False  # it finds nothing that an earlier start has compiled
    expert_tokens: int | None = None  # that the experts' kernel takes at once
    logprobs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """One item of a GPU's bill; if not `profiled`, it is on top of vLLM's budget."""

    name: str
    gib: float
    label: Label
    note: Note  # what it is made of
    profiled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The bill of one GPU; `kv_cache_bytes` is negative where a model does not fit."""

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
        usable_gib = constant("usable_headroom") * self.headroom_gib
        return self.unprofiled_gib <= max(0.0, usable_gib)

    @property
    def starts(self) -> bool:
        """vLLM looks for all that it may use when CUDA has already taken some."""
        return self.requested_gib + self.line("overhead").gib <= self.total_gib

    def holds(self, tokens: int) -> bool:
        """vLLM starts only when one request of `max_model_len` fits the KV cache.

        CUDA graphs that it does not reckon with need room beside it.
        """
        has_room = self.survives_logprobs and self.headroom_gib >= 0
        return has_room and self.kv_cache_tokens >= tokens

    def line(self, name: str) -> MemoryLine:
        return next(line for line in self.lines if line.name == name)


def memory_bill(
    shape: ModelShape, gpu: Gpu, layout: KvLayout, demand: MemoryDemand
) -> Memory:
    """Where the memory of one GPU goes, and what is left for the KV cache."""
    lines = _lines(shape, gpu, demand)
    total_bytes = round(gpu.memory_gib * GIB)
    requested_bytes = round(total_bytes * demand.utilization)
    headroom_gib = (total_bytes - requested_bytes) / GIB
    kv_bytes = requested_bytes
    unprofiled_gib = 0.0
    for line in lines:
        if line.profiled:
            kv_bytes -= round(line.gib * GIB)
        elif line.name == "cuda_graphs":
            headroom_gib -= line.gib
    for line in lines:
        if line.name == "logprobs":
            # That pass follows the forward pass and may reuse what it was given.
            reusable_gib = next(x.gib for x in lines if x.name == "activation")
            unprofiled_gib = max(0.0, line.gib - reusable_gib)
    blocks = layout.blocks(kv_bytes)
    return Memory(
        lines=lines,
        total_gib=total_bytes / GIB,
        requested_gib=requested_bytes / GIB,
        kv_cache_bytes=kv_bytes,
        kv_cache_tokens=layout.tokens(
            blocks, context=demand.context, step=demand.step_tokens
        ),
        headroom_gib=headroom_gib,
        unprofiled_gib=unprofiled_gib,
        kv_cache_blocks=blocks,
    )


def _lines(shape: ModelShape, gpu: Gpu, demand: MemoryDemand) -> tuple[MemoryLine, ...]:
    computed = gpu.computed(shape)
    forward_bytes = demand.step_tokens * computed.activation_bytes_per_token(
        demand.parallel.tensor
    )
    activation_bytes = max(forward_bytes, _profiled_latent_bytes(shape, demand))
    expert_tokens = _expert_tokens(demand)
    expert_bytes = expert_tokens * _workspace_bytes_per_token(shape, demand)
    # The sampler's tensors are not held together with the activations.
    sampler_bytes = max(0, _sampler_bytes(shape, demand) - activation_bytes)
    held_bytes = activation_bytes + expert_bytes + sampler_bytes
    compiling_bytes = _compiling_bytes(shape, demand) - held_bytes

    lines = [_weights(shape, demand)]
    per_token = computed.activation_bytes_per_token(demand.parallel.tensor)
    lines.append(
        _line(
            "activation",
            activation_bytes,
            tokens=demand.step_tokens,
            kib=per_token / 1024,
            expands=activation_bytes > forward_bytes,
        )
    )
    if shape.experts:
        lines.append(_experts(shape, demand, expert_bytes, expert_tokens))
    lines.append(
        _line(
            "sampler",
            sampler_bytes,
            Label.ASSUMED,
            requests=_sampled_requests(demand),
            vocab=shape.vocab,
        )
    )
    if compiling_bytes > 0:
        lines.append(_line("compiling", compiling_bytes))
    lines.append(_overhead(demand))
    lines.append(_cuda_graphs(shape, demand))
    if demand.logprobs:
        lines.append(_logprobs(shape, demand))
    return tuple(lines)


# -- each line of the bill -------------------------------------------------------------


def _weights(shape: ModelShape, demand: MemoryDemand) -> MemoryLine:
    parallel, quantization = demand.parallel, shape.quantization
    shares_experts = parallel.data > 1 and shape.experts is not None
    kind = "files"
    if not shape.file_bytes:
        kind = f"{quantization.method} {quantization.bits:g}-bit".strip()
    return _line(
        "weights",
        parallel.weight_bytes(shape),
        billions=shape.parameters.total / 1e9,
        kind=kind,
        gpus=parallel.gpus if shares_experts else parallel.tensor,
        shares_experts=shares_experts,
    )


def _profiled_latent_bytes(shape: ModelShape, demand: MemoryDemand) -> int:
    """While vLLM profiles, latent attention expands as much as it ever does at once."""
    wanted = max(8 * demand.context, 4 * demand.requests * BLOCK_TOKENS)
    expanded = min(wanted, whole("latent_expanded_tokens"))
    expanded = max(expanded, demand.requests * BLOCK_TOKENS)
    return shape.latent_bytes(demand.step_tokens, expanded, demand.parallel.tensor)


def _expert_tokens(demand: MemoryDemand) -> int:
    """The tokens of all replicas, which are gathered, as far as a kernel takes them."""
    gathered = demand.step_tokens * demand.parallel.data
    return min(gathered, demand.expert_tokens or gathered)


def _workspace_bytes_per_token(shape: ModelShape, demand: MemoryDemand) -> int:
    parallel = demand.parallel
    return shape.workspace_bytes_per_token(1 if parallel.by_expert else parallel.gpus)


def _experts(
    shape: ModelShape, demand: MemoryDemand, size: int, tokens: int
) -> MemoryLine:
    label = Label.PREDICTED if demand.parallel.gpus == 1 else Label.ASSUMED
    kib = _workspace_bytes_per_token(shape, demand) / 1024
    return _line("experts", size, label, tokens=tokens, kib=kib)


def _sampled_requests(demand: MemoryDemand) -> int:
    return min(demand.step_tokens, demand.requests)


def _sampler_bytes(shape: ModelShape, demand: MemoryDemand) -> int:
    entries = _sampled_requests(demand) * shape.vocab
    if demand.runner is Runner.V1:
        return entries * whole("sampler_bytes_v1")
    return entries * whole("sampler_bytes_v2")


def _compiling_bytes(shape: ModelShape, demand: MemoryDemand) -> int:
    """A first start tries kernels on a copy of the embedding and two results.

    A model with towers embeds its tokens outside of what is compiled.
    """
    if not demand.compiles or not demand.cuda_graphs or shape.parameters.vision:
        return 0
    rows = shape.vocab // demand.parallel.tensor + 2 * demand.step_tokens
    return BYTES * shape.hidden * rows


def _overhead(demand: MemoryDemand) -> MemoryLine:
    several = demand.parallel.gpus > 1
    size = round(constant("overhead_gib") * GIB)
    if several:
        size += round(constant("parallel_overhead_gib") * GIB)
    return _line("overhead", size, Label.ASSUMED, several=several)


def _cuda_graphs(shape: ModelShape, demand: MemoryDemand) -> MemoryLine:
    size = 0.0
    if demand.cuda_graphs:
        usual = captured_sizes(GRAPHED_TOKENS)
        times = max(1.0, captured_sizes(demand.graphed_tokens) / usual)
        layer_bytes = constant("layer_graph_mib") * MIB
        size = round(constant("graph_gib") * GIB)
        size += round(shape.layers * layer_bytes * times)
        if shape.attention.latent:
            heads = shape.attention.heads // demand.parallel.tensor
            heads = min(heads, whole("latent_graph_heads"))
            size += heads**2 * round(constant("latent_graph_mib") * MIB)
    return _line(
        "cuda_graphs",
        size,
        Label.ASSUMED,
        profiled=demand.graphs_in_budget,
        layers=shape.layers,
        counted=demand.graphs_in_budget,
    )


def captured_sizes(largest: int) -> int:
    """How many CUDA graphs vLLM captures up to a step of so many tokens.

    Of 1, 2 and 4 tokens, of every 8th number up to 256 and of every 16th after that
    (`config/vllm.py`).
    """
    small = min(largest, 256) // 8
    large = max(0, largest - 256) // 16
    return 3 + small + large


def _logprobs(shape: ModelShape, demand: MemoryDemand) -> MemoryLine:
    tokens = min(demand.prompt_tokens, demand.step_tokens)
    rows, entry_bytes = tokens, whole("logprob_bytes_v1")
    if demand.runner is Runner.V2:
        rows = min(tokens, whole("logprob_slice_tokens"))
        entry_bytes = whole("logprob_bytes_v2")
    size = rows * shape.vocab * entry_bytes + tokens * shape.hidden * BYTES
    return _line("logprobs", size, profiled=False, tokens=rows, vocab=shape.vocab)


def _line(
    name: str,
    size: float,
    label: Label = Label.PREDICTED,
    *,
    profiled: bool = True,
    **values: Fact,
) -> MemoryLine:
    return MemoryLine(
        name=name,
        gib=size / GIB,
        label=label,
        note=note(f"memory_{name}", **values),
        profiled=profiled,
    )
