"""The model arguments of lighteval's vLLM backend (read in 0.13.0, which refuses other keys)."""

from chunkscope.engine.choices import Mode, Task
from chunkscope.planning.emit.emission import Emission, model_of, pairs
from chunkscope.planning.plan import Plan

NAMES = {
    "max_model_len": "max_model_length",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "tensor_parallel_size": "tensor_parallel_size",
}


def emit(plan: Plan) -> Emission:
    # lighteval passes defaults of its own (2048 tokens, 128 requests, 0.9), never vLLM's.
    known = {a.name: a.value for a in plan.arguments if a.value is not None}
    items = {theirs: known[ours] for ours, theirs in NAMES.items() if ours in known}
    threshold = plan.args.get("long_prefill_token_threshold")
    if threshold and plan.inputs.task is Task.LOGLIKELIHOOD:
        # Without the threshold only the budget keeps a prompt's logits in memory.
        items["max_num_batched_tokens"] = threshold
        items["max_num_seqs"] = min(int(items.get("max_num_seqs") or 128), int(threshold))
    model = model_of(plan)
    notes: tuple[str, ...] = ("lighteval runs vLLM without CUDA graphs (enforce_eager)",)
    if "max_num_batched_tokens" not in items:
        notes = ("without a budget here lighteval takes 2048 tokens and 128 requests", *notes)
    named = {"model_name": model, **items} if model else items
    if not model:
        notes = ("put `model_name=MODEL,` in front", *notes)
    return Emission(text=pairs(named), lost=(*plan.lost, *_lost(plan)), notes=notes)


def _lost(plan: Plan) -> list[str]:
    lost = []
    if plan.mode is Mode.OFF and plan.args.get("enable_chunked_prefill") is False:
        lost.append("lighteval cannot switch chunked prefill off: it stays on")
    if "long_prefill_token_threshold" in plan.args:
        lost.append("lighteval cannot set long_prefill_token_threshold")
    return lost
