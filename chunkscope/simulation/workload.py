"""Requests to send, what their prompts share, and when each of them arrives.

The same workload is sent to a real engine by `verify` and to the scheduler's twin by `simulate`.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.profile import DEFAULT_OUTPUT, DatasetProfile
from chunkscope.prefixes.sharing import NOTHING, RUN, Stretch, stretches_together
from chunkscope.prompts.harness.log import LONGEST_FIRST
from chunkscope.vllm.enums import SendOrder, Task

BATCH, GIVEN, AS_IN_TRACE = "batch", "given", "trace"
VERIFY_SCHEMA = "chunkscope/verify/5"  # the artefact that holds a workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    prompt_tokens: int
    output_tokens: int
    arrival_s: float = 0.0
    stretch: int = NOTHING  # the last that its prompt shares with others


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is sent, in the order of arrival. Prompts over `long_over` tokens count as long.

    A prompt begins with its stretch and all before that, up to its own length. Where they are not
    the data's but one that was asked for, `shared_prefix` is its length.
    """

    requests: tuple[Request, ...]
    seed: int
    arrivals: str
    task: Task
    long_over: int = 2_048
    shared_prefix: int = 0
    left_out: int = 0  # prompts of the profile that no engine would take at this length
    stretches: tuple[Stretch, ...] = ()
    order: SendOrder | None = None  # None where nobody wrote it down
    concurrency: int | None = (
        None  # requests that the client keeps under way; None: all
    )
    scored: Numbers = (
        NO_NUMBERS  # places of those that ask for likelihoods, among others
    )

    @property
    def input_tokens(self) -> int:
        return sum(request.prompt_tokens for request in self.requests)

    @property
    def output_tokens(self) -> int:
        return sum(request.output_tokens for request in self.requests)

    @property
    def longest(self) -> int:
        return max(request.prompt_tokens for request in self.requests)

    @property
    def likelihoods(self) -> frozenset[int]:
        """Places of the requests that ask for the likelihood of their prompt."""
        every = self.task is Task.LOGLIKELIHOOD
        return frozenset(range(len(self.requests)) if every else self.scored)


def arrival_times(arrivals: str, count: int, chance: random.Random) -> list[float]:
    """All at once, or as a Poisson process: "4/s" is four a second on average."""
    rate = arrival_rate(arrivals)
    if rate is None:
        return [0.0] * count
    times = accumulate((chance.expovariate(rate) for _ in range(count)), initial=0.0)
    return [round(now, 6) for now in times][
        :-1
    ]  # as it is written down, to be sent again


def arrival_rate(arrivals: str) -> float | None:
    """Requests a second; None when all come at once."""
    if arrivals == BATCH:
        return None
    number, _, unit = str(arrivals).partition("/")
    with suppress(ValueError, KeyError):
        rate = float(number) / {"s": 1.0, "min": 60.0}[unit.strip()]
        if 0 < rate < float("inf"):
            return rate
    raise UsageError(
        f"--arrivals {arrivals!r} is neither batch nor a rate",
        hint="write `--arrivals batch`, `--arrivals 4/s` or `--arrivals 90/min`",
    )


# -- what a dataset's requests generate ----------------------------------------------------------


class OutputOrigin(StrEnum):
    """Where the length of an answer comes from."""

    ASKED = "asked"
    DATA = "data"
    SCORED = "scored"  # a likelihood request generates one token
    TASK = "task"  # the most that the harness's task or log lets it have
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOutput:
    """How many tokens an answer of a dataset may have: room is left for so many."""

    name: str
    tokens: int
    origin: OutputOrigin

    @property
    def is_scored(self) -> bool:
        return self.origin is OutputOrigin.SCORED

    @property
    def is_assumed(self) -> bool:
        """Nobody knows how long its answers are."""
        return self.origin in (OutputOrigin.TASK, OutputOrigin.ASSUMED)

    def longest_prompt(self, room: int) -> int:
        """That leaves room for the answer."""
        return max(0, room - self.tokens)

    def lengths(self, dataset: DatasetProfile, times: float = 1.0) -> list[int]:
        """To draw from, a thousand at most; what is assumed is taken `times` as long."""
        if self.origin is OutputOrigin.DATA and dataset.output_lengths:
            counts = {
                n: held
                for n, held in sorted(dataset.output_lengths.counts.items())
                if held
            }
            count, lengths = min(sum(counts.values()), 1_000), list(counts)
            places = parts(list(counts.values()), count, random.Random(0))  # noqa: S311
            return [lengths[place] for place in places]
        if not self.is_assumed:
            return [self.tokens]
        most = self.tokens if self.origin is OutputOrigin.TASK else 1 << 30
        return [min(most, round(DEFAULT_OUTPUT * times))]


def dataset_output(
    dataset: DatasetProfile, task: Task | None = None, asked: int | None = None
) -> DatasetOutput:
    """What a dataset is sent for, unless a `task` is given for all: as asked, else the longest
    answer in the data, else the most that its task allows, else 256 tokens."""
    if task is Task.LOGLIKELIHOOD or (dataset.scored and task is None):
        return DatasetOutput(name=dataset.name, tokens=1, origin=OutputOrigin.SCORED)
    tokens = {
        OutputOrigin.ASKED: asked,
        OutputOrigin.DATA: dataset.output_lengths.max
        if dataset.output_lengths
        else None,
        OutputOrigin.TASK: dataset.log.output_limit
        if dataset.log and not dataset.scored
        else None,
        OutputOrigin.ASSUMED: DEFAULT_OUTPUT,
    }
    origin = next(origin for origin, length in tokens.items() if length)
    return DatasetOutput(name=dataset.name, tokens=tokens[origin] or 0, origin=origin)


# -- drawing requests out of a profile -----------------------------------------------------------


class _Prompt(NamedTuple):
    """A prompt that stands for `weight` of its dataset's, or that many of one length."""

    tokens: int
    dataset: int
    place: float  # in its dataset: from 0 to 1; NOWHERE where not known
    stretch: int
    weight: float


_NOWHERE = -1.0
MOST_PROMPTS = 60_000  # are drawn from: more take longer than what is done with them


def draw_workload(
    datasets: Sequence[DatasetProfile],
    outputs: Sequence[DatasetOutput],
    *,
    room: int,
    count: int | None = None,
    seed: int = 0,
    arrivals: str = BATCH,
    shared_prefix: int | None = None,
    order: SendOrder | None = None,
    prompt_times: float = 1.0,
    assumed_times: float = 1.0,
) -> Workload:
    """A stratified sample of the prompts, with outputs as their dataset's; `room` is max_model_len.

    `count` None sends every prompt once; `shared_prefix` and `order` None are the data's own: then
    datasets are sent one after the other, as a harness runs its tasks; lm-eval sends those of all
    tasks together, longest first. At a rate they come mixed, each in its order. Prompts are
    `prompt_times` as long, outputs that are assumed `assumed_times`.
    """
    chance = random.Random(seed)  # noqa: S311  (a sample, not a secret)
    prompts, stretches = _prompts(datasets, outputs, room, all_of_them=count is None)
    served = served_prompts(datasets, outputs, room)
    if not served:
        shortest = min(dataset.lengths.min or 0 for dataset in datasets)
        raise InputError(
            f"no prompt fits: the shortest has {shortest:,} tokens, max_model_len is {room:,}",
            hint="choose a model with a longer context, or lower --max-output",
        )
    places = parts([prompt.weight for prompt in prompts], count or served, chance)
    order = order or usual_order(datasets)
    chosen = _in_order(
        [prompts[place] for place in places], order, chance, mixed=arrivals != BATCH
    )
    lengths = [
        o.lengths(d, assumed_times) for o, d in zip(outputs, datasets, strict=True)
    ]
    times = arrival_times(arrivals, len(chosen), chance)
    tokens = [
        max(1, min(round(prompt.tokens * prompt_times), room - 1)) for prompt in chosen
    ]
    requests = tuple(
        Request(
            prompt_tokens=size,
            output_tokens=max(
                1, min(chance.choice(lengths[prompt.dataset]), room - size)
            ),
            arrival_s=time,
            stretch=prompt.stretch,
        )
        for prompt, size, time in zip(chosen, tokens, times, strict=True)
    )
    if (
        shared_prefix is not None
    ):  # all begin with the same tokens: one stretch, or none
        stretches = (
            (Stretch(parent=NOTHING, tokens=shared_prefix),) if shared_prefix else ()
        )
        stretch = 0 if shared_prefix else NOTHING
        requests = tuple(replace(request, stretch=stretch) for request in requests)
    scored = [
        place
        for place, prompt in enumerate(chosen)
        if outputs[prompt.dataset].is_scored
    ]
    every = len(scored) == len(chosen)
    return Workload(
        requests=requests,
        stretches=stretches,
        seed=seed,
        arrivals=arrivals,
        task=Task.LOGLIKELIHOOD if every else Task.GENERATE,
        scored=NO_NUMBERS if every else Numbers(scored),
        shared_prefix=shared_prefix or 0,
        left_out=sum(dataset.rows for dataset in datasets) - served,
        order=order,
    )


def served_prompts(
    datasets: Sequence[DatasetProfile], outputs: Sequence[DatasetOutput], room: int
) -> int:
    """How many prompts leave room for the output of their dataset: others are too long."""
    pairs = zip(datasets, outputs, strict=True)
    return sum(d.rows - d.lengths.over(o.longest_prompt(room)) for d, o in pairs)


def usual_order(datasets: Sequence[DatasetProfile]) -> SendOrder:
    """As it is sent if nobody says otherwise. A profile that has only lengths has no order."""
    if all(dataset.log and dataset.log.order == LONGEST_FIRST for dataset in datasets):
        return SendOrder.LONGEST
    return SendOrder.DATA if any(d.sharing for d in datasets) else SendOrder.SHUFFLED


def _prompts(
    datasets: Sequence[DatasetProfile],
    outputs: Sequence[DatasetOutput],
    room: int,
    *,
    all_of_them: bool,
) -> tuple[list[_Prompt], tuple[Stretch, ...]]:
    """Those that leave room for an output, by length; and the stretches of all datasets."""
    known = sum(len(dataset.sharing.lengths) for dataset in datasets if dataset.sharing)
    every = 1 if all_of_them else -(-known // MOST_PROMPTS) or 1
    prompts: list[_Prompt] = []
    stretches, starts = stretches_together([dataset.sharing for dataset in datasets])
    for number, (dataset, output, start) in enumerate(
        zip(datasets, outputs, starts, strict=True)
    ):
        # vLLM does not read its cache for a prompt whose likelihood is asked for.
        offset = None if output.is_scored else start
        most = output.longest_prompt(room)
        prompts += [
            p
            for p in _dataset_prompts(dataset, number, offset, every)
            if p.tokens <= most
        ]
    return sorted(prompts), stretches


def _dataset_prompts(
    dataset: DatasetProfile, number: int, start: int | None, every: int
) -> Iterator[_Prompt]:
    """By length; one by one where they are known so, of `every` so many runs of neighbours one."""
    if dataset.sharing is None or not dataset.sharing.lengths:
        for tokens, count in dataset.lengths.counts.items():
            if count:
                yield _Prompt(tokens, number, _NOWHERE, NOTHING, count)
        return
    lengths, ends = dataset.sharing.lengths, dataset.sharing.ends
    places = [place for place in range(len(lengths)) if place // RUN % every == 0]
    weight = 1 if len(places) == dataset.rows else dataset.rows / len(places)
    for place in places:
        stretch = (
            NOTHING if ends[place] == NOTHING or start is None else start + ends[place]
        )
        yield _Prompt(
            lengths[place], number, (place + 0.5) / len(lengths), stretch, weight
        )


def parts(weights: Sequence[float], count: int, chance: random.Random) -> list[int]:
    """One place out of each of `count` equally large parts of the weights, in order."""
    up_to = list(accumulate(weights))
    if count == up_to[-1] and all(isinstance(weight, int) for weight in weights):
        return [
            place for place, weight in enumerate(weights) for _ in range(int(weight))
        ]
    drawn = ((part + chance.random()) / count * up_to[-1] for part in range(count))
    return [min(bisect_right(up_to, rank), len(up_to) - 1) for rank in drawn]


def _in_order(
    prompts: list[_Prompt], order: SendOrder, chance: random.Random, *, mixed: bool
) -> list[_Prompt]:
    if order is SendOrder.SHUFFLED:
        chance.shuffle(prompts)
        return prompts
    if order is SendOrder.LONGEST:
        return sorted(prompts, key=lambda p: (-p.tokens, p.stretch, p.dataset, p.place))
    placed = [p if p.place >= 0 else p._replace(place=chance.random()) for p in prompts]
    return sorted(
        placed, key=lambda p: (p.place, p.dataset) if mixed else (p.dataset, p.place)
    )
