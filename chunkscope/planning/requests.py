"""The requests that settings are tried on: drawn from the profile, or somewhat other."""

from dataclasses import dataclass, replace

from chunkscope.engine.choices import Task
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.planning.plan import ASKED, Output
from chunkscope.simulation.workload import Drawing, Request, Workload, draw_workload

# A profile may hold millions of prompts; so many show what a setting does.
MOST_REQUESTS = 20_000
# Settings are searched on a part of them, which takes no more than a moment.
SEARCH_TOKENS = 1_000_000
FEWEST_SEARCHED = 256


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


def common_prefix(datasets: tuple[DatasetProfile, ...]) -> int:
    """Tokens that all prompts begin with, as far as it is known: of one dataset, its own."""
    return (datasets[0].shared_prefix_tokens or 0) if len(datasets) == 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSource:
    """Where requests come from. `shared_prefix`: tokens that all prompts begin with."""

    datasets: tuple[DatasetProfile, ...]
    output: Output
    task: Task
    shared_prefix: int = 0

    @property
    def prompts(self) -> int:
        return sum(dataset.rows for dataset in self.datasets)

    @property
    def most(self) -> int:
        """As many as are ever drawn."""
        return min(self.prompts, MOST_REQUESTS)

    @property
    def variations(self) -> tuple[Variation, ...]:
        """An output length that was given or is in the data is not varied."""
        outputs = OTHER_OUTPUTS if self.output.assumed else ()
        return (ANOTHER_HOST, *OTHER_DRAWS, *OTHER_LENGTHS, *outputs)

    def draw(self, room: int, *, count: int | None = None, how: Variation = AS_DRAWN) -> Workload:
        """So many (None: all, up to a limit), none longer than `room` with its output."""
        drawing = Drawing(
            count=min(count or self.most, self.most),
            room=room,
            output=self.output.tokens if self.output.origin == ASKED else None,
            output_if_unknown=self.output.tokens,
            seed=how.seed,
            task=self.task,
            shared_prefix=self.shared_prefix,
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
