"""The requests that settings are tried on: drawn from the profile, or somewhat other."""

from dataclasses import dataclass, replace

from chunkscope.artefacts.numbers import share
from chunkscope.lengths.profile import DatasetProfile, together
from chunkscope.planning.plan import ASKED, Output
from chunkscope.prefixes.reuse_together import reuse_together
from chunkscope.simulation.workload import (
    BATCH,
    Drawing,
    Request,
    Workload,
    draw_workload,
    usual_order,
)
from chunkscope.vllm.choices import SendOrder, Task

# A profile may hold millions of prompts; so many show what a setting does.
MOST_REQUESTS = 20_000
# Settings are searched on a part of them, which takes no more than a moment.
SEARCH_TOKENS = 1_000_000
FEWEST_SEARCHED = 256
# At a rate, more would only come later.
OPEN_REQUESTS = 1_000
_WORTH_SAYING = 0.05  # of the prompts' tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What is assumed may turn out otherwise: another draw, longer prompts, longer outputs."""

    title: str
    seed: int = 0
    prompts: float = 1.0
    outputs: float = 1.0


AS_DRAWN = Variation(title="as they are")
ANOTHER_HOST = Variation(title="a host that takes no time")  # every variation tries both hosts
OTHER_DRAWS = (Variation(title="another draw", seed=1), Variation(title="a third draw", seed=2))
OTHER_LENGTHS = (
    Variation(title="prompts 10 % longer", prompts=1.1),
    Variation(title="prompts 10 % shorter", prompts=0.9),
)
OTHER_OUTPUTS = (
    Variation(title="outputs half as long", outputs=0.5),
    Variation(title="outputs twice as long", outputs=2.0),
)


def shared_sentence(
    datasets: tuple[DatasetProfile, ...], shared_prefix: int | None, task: Task
) -> str | None:
    """What prompts share and what the simulation makes of it; None if that is little."""
    found = reuse_together([dataset.prefixes for dataset in datasets if dataset.prefixes])
    tokens = max(1, sum(dataset.lengths.total for dataset in datasets))
    read, unread = found.cached_tokens / tokens, found.unread_tokens / tokens
    what = f"{share(read or unread)} of the prompts' tokens are those of an earlier prompt"
    if shared_prefix is not None:
        what = f"all prompts are taken to begin with the same {shared_prefix:,} tokens"
        read, unread = float(shared_prefix > 0), 0.0
    if max(read, unread) < _WORTH_SAYING:
        return None
    if task is Task.LOGLIKELIHOOD or not read:
        return f"{what}; vLLM reads them again, for likelihoods do not come from its prefix cache"
    return f"{what}: the simulation finds them in vLLM's prefix cache as long as it keeps them"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSource:
    """Where requests come from. `shared_prefix` and `order` None: as the data has it."""

    datasets: tuple[DatasetProfile, ...]
    output: Output
    task: Task
    shared_prefix: int | None = None
    order: SendOrder | None = None
    arrivals: str = BATCH

    @property
    def sent_in(self) -> SendOrder:
        return self.order or usual_order(self.datasets)

    def served(self, room: int) -> int:
        """How many prompts leave room for an output: as long as asked for, or one token."""
        asked = self._asked if self.task is Task.GENERATE else None
        lengths = together(self.datasets)
        return lengths.count - lengths.over(room - min(asked or 1, room))

    @property
    def _asked(self) -> int | None:
        return self.output.tokens if self.output.origin == ASKED else None

    @property
    def variations(self) -> tuple[Variation, ...]:
        """An output length that was given or is in the data is not varied."""
        outputs = OTHER_OUTPUTS if self.output.assumed else ()
        return (ANOTHER_HOST, *OTHER_DRAWS, *OTHER_LENGTHS, *outputs)

    def draw(self, room: int, *, count: int | None = None, how: Variation = AS_DRAWN) -> Workload:
        """So many (None: all, up to a limit), none longer than `room` with its output."""
        most = min(MOST_REQUESTS, self.served(room)) if self.arrivals == BATCH else OPEN_REQUESTS
        drawing = Drawing(
            count=min(count or most, most),
            room=room,
            output=self._asked,
            output_if_unknown=self.output.tokens,
            seed=how.seed,
            task=self.task,
            shared_prefix=self.shared_prefix,
            order=self.order,
            arrivals=self.arrivals,
        )
        drawn = draw_workload(self.datasets, drawing)
        if (how.prompts, how.outputs) == (1.0, 1.0):
            return drawn
        return replace(
            drawn,
            requests=tuple(_varied(request, room, how) for request in drawn.requests),
            stretches=tuple(
                replace(one, tokens=round(one.tokens * how.prompts)) for one in drawn.stretches
            ),
        )


def _varied(request: Request, room: int, how: Variation) -> Request:
    prompt = max(1, min(round(request.prompt_tokens * how.prompts), room - 1))
    output = max(1, min(round(request.output_tokens * how.outputs), room - prompt))
    return replace(request, prompt_tokens=prompt, output_tokens=output)
