"""What every emitted form has: the text, what is said beside it, the model and the client."""

from dataclasses import dataclass

from chunkscope.planning.plan import Plan

NO_MODEL = "MODEL"
TASK = "TASK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """`lost`: what the plan holds and this form cannot say. `notes`: how to use the text."""

    text: str
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def model_of(plan: Plan) -> str:
    """What to load; a word to replace when the plan was made without a model."""
    return plan.model.load_name if plan.model else NO_MODEL


def requests_in_flight(plan: Plan) -> int | None:
    """How many requests a client must keep open to fill the engine; None if nobody knows.

    As many as run at once: what vLLM allows, and what the KV cache holds of the usual length.
    More only wait in the engine's queue; fewer leave it idle.
    """
    allowed = plan.deployment.effective(plan.settings).max_num_seqs
    if allowed is None or plan.capacity is None:
        return allowed
    return max(1, min(allowed, plan.capacity.p50))


def for_clients(plan: Plan) -> tuple[str, ...]:
    """What whoever sends requests to this server has to set."""
    n = requests_in_flight(plan)
    if n is None:
        return ()
    return (
        f"keep {n:,} requests in flight to fill it: lm-eval's num_concurrent={n} with "
        f"local-completions, Inspect's --max-connections {n}, vllm bench's --max-concurrency {n}",
    )
