"""The `--model_args` of lm-evaluation-harness (`lm_eval --model vllm`; read in 0.4.13)."""

from chunkscope.planning.emit.emission import Emission, model_of, pairs
from chunkscope.planning.plan import Plan


def emit(plan: Plan) -> Emission:
    # The harness has an idea of its own about the utilization, so it is always spelled out.
    utilization = plan.argument("gpu_memory_utilization").value
    model = model_of(plan)
    items = {
        **({"pretrained": model} if model else {}),
        **plan.llm_kwargs(),
        "gpu_memory_utilization": utilization,
    }
    notes: tuple[str, ...] = (
        "pass `--batch_size auto`: otherwise the harness sends one request at a time",
    )
    if not model:
        notes = ("put `pretrained=MODEL,` in front", *notes)
    return Emission(text=pairs(items), lost=plan.lost, notes=notes)
