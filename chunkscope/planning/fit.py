"""What vLLM needs to start: the smallest changes to its defaults, or why none do."""

from collections.abc import Iterator
from dataclasses import replace

from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.memory import Memory
from chunkscope.planning.case import Case, round_up
from chunkscope.vllm.enums import Mode
from chunkscope.vllm.settings import Settings

STEP_TOKENS = (512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
FEWEST_REQUESTS = 8
# The settings that need the least memory.
LEAST = Settings(
    max_num_batched_tokens=STEP_TOKENS[0],
    max_num_seqs=FEWEST_REQUESTS,
    long_prefill_token_threshold=1,
)
CONTEXT_STEP = 256  # tokens: contexts are multiples of it
SURE = 0.95  # of a predicted KV cache; the rest is room for error
# Tokens of a prompt whose logits are computed at once, from many to few.
LOGITS_CHUNKS = tuple(256 << power for power in reversed(range(16)))
USUAL_STEP = 2_048  # tokens
LOWEST_PERCENT = 50  # of the GPU's memory that vLLM is given
LARGER = "take a larger GPU, more of them with --tp, or a quantized checkpoint"


def fit(case: Case) -> Case:
    """The case with what is needed for vLLM to start.

    InputError where nothing would do, UsageError where `--mode off` cannot be.
    """
    case = with_context(case)
    case = with_room_for_logits(case)
    case = with_smaller_steps(case)
    if case.request.mode is Mode.OFF:
        case = without_chunks(case)
    return case


# -- a context that fits -------------------------------------------------------------


def with_context(case: Case) -> Case:
    """With a context that the KV cache holds.

    A shorter one comes first, as that costs nothing; then fewer requests at once.
    """
    usual = case.default.max_num_seqs
    if case.memory() is None or usual is None or case.default.max_model_len is None:
        return case
    requests = usual
    while not holds_longest(case, requests):
        if requests == FEWEST_REQUESTS:
            raise does_not_fit(case)
        requests = max(FEWEST_REQUESTS, requests // 2)
    if requests < usual:
        case = replace(case, needed=Settings(max_num_seqs=requests))
    if case.request.settings.max_model_len is not None:
        return case
    return with_shorter_context(case)


def holds_longest(case: Case, requests: int) -> bool:
    """Can the KV cache hold the longest request, with so many places for others?"""
    memory = case.memory(replace(LEAST, max_num_seqs=requests))
    return memory is None or memory.kv_cache_tokens >= case.need


def with_shorter_context(case: Case) -> Case:
    """With the longest context that surely fits, if the model's own does not."""
    # A shorter request changes what the KV cache holds where layers have windows: of it
    # they keep a larger part. So this goes on until nothing changes.
    while case.need < case.context:
        memory = case.memory()
        if memory is None or memory.kv_cache_tokens >= case.context:
            break
        held = int(SURE * memory.kv_cache_tokens) // CONTEXT_STEP * CONTEXT_STEP
        needed = replace(case.needed, max_model_len=max(held, case.need))
        case = replace(case, needed=needed)
    return case


def does_not_fit(case: Case) -> InputError:
    """Not even with the least settings: what is missing, and what would help."""
    shape = case.engine.shape
    gpu = case.engine.gpu
    memory = case.memory(LEAST)
    if shape is None or gpu is None or memory is None:
        raise AssertionError("memory is known only with a model and a GPU")
    machine = gpu.title
    if case.base.parallel.gpus > 1:
        machine = f"{case.base.parallel.gpus} x {gpu.title}"
    hint = (
        "take a larger GPU, a quantized checkpoint or a smaller model; or shorten the "
        "prompts"
    )
    tp = case.engine.fitting_tp(LEAST.over(case.base), case.need)
    if tp:
        hint = f"--tp {tp} would fit; or take a larger GPU, or a quantized checkpoint"
    return InputError(
        f"{shape.name} does not fit {machine}: the weights need "
        f"{memory.line('weights').gib:,.1f} GiB per GPU of "
        f"{memory.requested_gib:,.1f}, and {max(0.0, memory.kv_cache_gib):,.1f} GiB of "
        f"KV cache are too small for a request of {case.need:,} tokens",
        hint=hint,
    )


# -- steps that fit ------------------------------------------------------------------


def with_smaller_steps(case: Case) -> Case:
    """With the largest steps that fit, vLLM's own if they do."""
    sizes: list[int | None] = [None]
    for tokens in reversed(STEP_TOKENS):
        if tokens < case.default.step_tokens:
            sizes.append(tokens)
    for size in sizes:
        needed = replace(case.needed, max_num_batched_tokens=size)
        smaller = replace(case, needed=needed)
        if smaller.fits():
            return smaller
    context = longest_context(case)
    hint = LARGER
    if 0 < context < case.context:
        hint = f"lower --max-model-len to {context}, or {LARGER}"
    raise InputError(f"no setting fits a request of {case.context:,} tokens", hint=hint)


def longest_context(case: Case) -> int:
    """The longest context that fits with the smallest steps; 0 where none does."""
    smallest = Settings(max_num_batched_tokens=STEP_TOKENS[0])
    context = case.context
    while context > 0:
        memory = case.memory(replace(smallest, max_model_len=context))
        if memory is None or memory.kv_cache_tokens >= context:
            break
        context = memory.kv_cache_tokens // CONTEXT_STEP * CONTEXT_STEP
    return context


def without_chunks(case: Case) -> Case:
    """With a context no longer than it must be: a step has to hold it whole."""
    limit = case.default.max_model_len
    context = round_up(case.need)
    if limit:
        context = min(context, limit)
    case = replace(case, needed=replace(case.needed, max_model_len=context))
    obstacle = whole_prompts_obstacle(case, context)
    if obstacle is not None:
        raise UsageError(
            f"--mode off is not possible: {obstacle}",
            hint="leave --mode out, or shorten the data",
        )
    return case


def whole_prompts_obstacle(case: Case, context: int) -> str | None:
    """Why vLLM cannot compute every prompt whole; None where it can."""
    shape = case.engine.shape
    release = case.engine.release
    if shape is not None and shape.hybrid and release.rules.hybrid_refuses_off:
        return (
            f"vLLM {release.text} requires chunked prefill for models with mamba-like "
            "layers"
        )
    whole = Settings(max_num_batched_tokens=context, long_prefill_token_threshold=0)
    memory = case.memory(whole)
    if memory is not None and not memory.holds(context):
        return (
            f"a step of {context:,} tokens leaves no room for the KV cache (predicted)"
        )
    return None


# -- prompt_logprobs -----------------------------------------------------------------


def with_room_for_logits(case: Case) -> Case:
    """With memory for the logits of prompts, which vLLM does not set aside."""
    if not case.engine.logprobs or case.memory() is None or case.fits():
        return case
    own = case.default.gpu_memory_utilization or 0.0
    for settings in smaller_logits(case, own):
        # A larger step sets more memory aside to reuse: both ends have to survive.
        chunk = settings.long_prefill_token_threshold or 0
        small = survives(case, settings, min(USUAL_STEP, chunk))
        large = survives(case, settings, max(USUAL_STEP, chunk))
        if not small or not large:
            continue
        needed = case.needed
        if settings.gpu_memory_utilization != own:
            share = settings.gpu_memory_utilization
            needed = replace(needed, gpu_memory_utilization=share)
        if chunk < min(case.default.step_tokens, case.longest):
            needed = replace(needed, long_prefill_token_threshold=chunk)
        return replace(case, needed=needed)
    raise InputError(
        "prompt_logprobs would need more memory than this GPU can spare", hint=LARGER
    )


def smaller_logits(case: Case, own: float) -> Iterator[Settings]:
    """Shares of the memory from vLLM's own down, with chunks from large to small."""
    chunks = [case.longest]
    for tokens in LOGITS_CHUNKS:
        if tokens < case.longest:
            chunks.append(tokens)
    for percent in range(round(own * 100), LOWEST_PERCENT - 1, -1):
        for chunk in chunks:
            yield Settings(
                gpu_memory_utilization=percent / 100,
                long_prefill_token_threshold=chunk,
            )


def survives(case: Case, settings: Settings, step_tokens: int) -> bool:
    """Is there memory for the logits in steps of this size?"""
    size = max(LOGITS_CHUNKS[-1], step_tokens)
    memory: Memory | None = case.memory(replace(settings, max_num_batched_tokens=size))
    return memory is None or memory.survives_logprobs
