"""What every emitted form has: the text, what is said beside it, the model and the client."""

from dataclasses import dataclass

from chunkscope.console import printable
from chunkscope.errors import InputError
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
    name = plan.model.load_name if plan.model else NO_MODEL
    if name != printable(name):
        raise InputError(
            f"the model is called {printable(name)}: no command is written with such a name",
            hint="is plan.json what `chunkscope recommend` wrote?",
        )
    return name


def for_clients(plan: Plan) -> tuple[str, ...]:
    """What whoever sends requests to a server has to set."""
    n = plan.requests_in_flight
    if n is None:
        return ()
    return (
        f"keep {n:,} requests in flight to fill a server: lm-eval's num_concurrent={n} with "
        f"local-completions, lighteval's concurrent_requests={n} with litellm, Inspect's "
        f"--max-connections {n}, vllm bench's --max-concurrency {n}",
    )
