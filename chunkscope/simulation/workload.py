"""Requests to send, what their prompts share, and when each of them arrives.

The same workload is sent to a real engine by `verify` and to the scheduler's twin by `simulate`.
"""

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile, together
from chunkscope.prefixes.sharing import (
    NOTHING,
    RUN,
    Stretch,
    check_stretches,
    shared_by_neighbours,
    stretches_together,
)
from chunkscope.prompts.harness.log import LONGEST_FIRST
from chunkscope.vllm.enums import SendOrder, Task

BATCH, GIVEN = "batch", "given"
VERIFY_SCHEMA = "chunkscope/verify/3"  # the artefact that holds a workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    prompt_tokens: int
    output_tokens: int
    arrival_s: float = 0.0
    stretch: int = NOTHING  # the last that its prompt shares with others


def with_shared_prefix(
    requests: Iterable[Request], tokens: int
) -> tuple[tuple[Request, ...], tuple[Stretch, ...]]:
    """All prompts begin with the same tokens: one stretch, as far as each of them goes."""
    stretches = (Stretch(parent=NOTHING, tokens=tokens),) if tokens else ()
    stretch = 0 if stretches else NOTHING
    return tuple(replace(request, stretch=stretch) for request in requests), stretches


def read_together(requests: Sequence[Request], stretches: Sequence[Stretch]) -> float:
    """The share of the context of decoding requests that the one beside them reads, too.

    Requests run beside those that were sent just before and after them.
    """
    if not stretches:
        return 0.0
    shared = shared_by_neighbours([request.stretch for request in requests], stretches)
    context = sum(request.prompt_tokens + request.output_tokens / 2 for request in requests)
    return min(1.0, shared / context)


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
    long_over: int
    shared_prefix: int = 0
    left_out: int = 0  # prompts of the profile that no engine would take at this length
    stretches: tuple[Stretch, ...] = ()
    order: SendOrder | None = None  # None where nobody wrote it down
    concurrency: int | None = None  # requests that the client keeps under way; None: all

    def __post_init__(self) -> None:
        check_stretches(self.stretches, (request.stretch for request in self.requests))

    @property
    def input_tokens(self) -> int:
        return sum(request.prompt_tokens for request in self.requests)

    @property
    def output_tokens(self) -> int:
        return sum(request.output_tokens for request in self.requests)

    @property
    def longest(self) -> int:
        return max(request.prompt_tokens for request in self.requests)


def arrival_times(arrivals: str, count: int, chance: random.Random) -> list[float]:
    """All at once, or as a Poisson process: "4/s" is four a second on average."""
    rate = arrival_rate(arrivals)
    if rate is None:
        return [0.0] * count
    times, now = [], 0.0
    for _ in range(count):
        times.append(round(now, 6))  # as it is written down, so that it can be sent again
        now += chance.expovariate(rate)
    return times


def arrival_rate(arrivals: str) -> float | None:
    """Requests a second; None when all come at once.

    >>> arrival_rate("4/s"), arrival_rate("90/min"), arrival_rate("batch")
    (4.0, 1.5, None)
    """
    if arrivals == BATCH:
        return None
    number, _, unit = arrivals.partition("/")
    per = {"s": 1.0, "min": 60.0}.get(unit.strip())
    try:
        rate = float(number) / per if per else 0.0
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise UsageError(
            f"--arrivals {arrivals!r} is neither batch nor a rate",
            hint="write `--arrivals batch`, `--arrivals 4/s` or `--arrivals 90/min`",
        )
    return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How to draw a workload. `count` None sends every prompt once; `room` is max_model_len.

    `shared_prefix` and `order` None: as the data has it.
    """

    count: int | None
    room: int
    output_if_unknown: int
    output: int | None = None
    seed: int = 0
    arrivals: str = BATCH
    task: Task = Task.GENERATE
    long_over: int = 2_048
    shared_prefix: int | None = None
    order: SendOrder | None = None


# -- drawing requests out of a profile ---------------------------------------------------------


class _Prompt(NamedTuple):
    """A prompt that stands for `weight` of its dataset's, or that many of one length."""

    tokens: int
    dataset: int
    place: float  # in its dataset: from 0 to 1; NOWHERE where not known
    stretch: int
    weight: float


_NOWHERE = -1.0
_MOST_PROMPTS = 60_000  # are drawn from: more take longer than what is done with them


def draw_workload(datasets: Sequence[DatasetProfile], how: Drawing) -> Workload:
    """A stratified sample of the prompts, with outputs as long as their dataset's.

    As the data has it, datasets are sent one after the other, as a harness runs its tasks; lm-eval
    sends those of all tasks together, longest first. At a rate they come mixed, each in its order.
    """
    if how.count is not None and how.count < 1:
        raise UsageError(f"--requests must be at least 1, not {how.count}")
    chance = random.Random(how.seed)  # noqa: S311  (a sample, not a secret)
    least = 1 if how.task is Task.LOGLIKELIHOOD else min(how.output or 1, how.room)
    served, left_out = _served(datasets, how.room, least)
    prompts, stretches = _prompts(datasets, how.room - least, all_of_them=how.count is None)
    places = parts([prompt.weight for prompt in prompts], how.count or served, chance)
    order = how.order or usual_order(datasets)
    chosen = _in_order([prompts[place] for place in places], order, how, chance)
    outputs = [_known_outputs(dataset) for dataset in datasets]
    arrivals = arrival_times(how.arrivals, len(chosen), chance)
    requests = tuple(
        Request(
            prompt_tokens=max(1, prompt.tokens),
            output_tokens=max(
                1,
                min(
                    _output(outputs[prompt.dataset], how, chance),
                    how.room - prompt.tokens,
                ),
            ),
            arrival_s=arrival,
            stretch=prompt.stretch,
        )
        for prompt, arrival in zip(chosen, arrivals, strict=True)
    )
    if how.shared_prefix is not None:
        requests, stretches = with_shared_prefix(requests, how.shared_prefix)
    return Workload(
        requests=requests,
        stretches=stretches,
        seed=how.seed,
        arrivals=how.arrivals,
        task=how.task,
        long_over=how.long_over,
        shared_prefix=how.shared_prefix or 0,
        left_out=left_out,
        order=order,
    )


def usual_order(datasets: Sequence[DatasetProfile]) -> SendOrder:
    """As it is sent if nobody says otherwise. A profile that has only lengths has no order."""
    if all(dataset.log and dataset.log.order == LONGEST_FIRST for dataset in datasets):
        return SendOrder.LONGEST
    known = any(dataset.sharing for dataset in datasets)
    return SendOrder.DATA if known else SendOrder.SHUFFLED


def _served(datasets: Sequence[DatasetProfile], room: int, least: int) -> tuple[int, int]:
    """How many prompts leave room for their output, and how many do not."""
    lengths = together(datasets)
    left_out = lengths.over(room - least)
    if left_out == lengths.count:
        raise InputError(
            f"no prompt fits: the shortest has {lengths.min or 0:,} tokens, "
            f"max_model_len is {room:,}",
            hint="choose a model with a longer context, or lower --max-output",
        )
    return lengths.count - left_out, left_out


def _prompts(
    datasets: Sequence[DatasetProfile], most: int, *, all_of_them: bool
) -> tuple[list[_Prompt], tuple[Stretch, ...]]:
    """Those that have at most so many tokens, sorted by them; and the stretches of all datasets."""
    known = sum(len(dataset.sharing.lengths) for dataset in datasets if dataset.sharing)
    every = 1 if all_of_them else -(-known // _MOST_PROMPTS) or 1
    prompts: list[_Prompt] = []
    stretches, starts = stretches_together([dataset.sharing for dataset in datasets])
    for number, (dataset, start) in enumerate(zip(datasets, starts, strict=True)):
        kept = [*_one_by_one(dataset, number, start, most, every)]
        prompts += kept or _by_length(dataset, number, most)
    return sorted(prompts), stretches


def _one_by_one(
    dataset: DatasetProfile, number: int, start: int, most: int, every: int
) -> Iterator[_Prompt]:
    """Of a dataset that is known prompt by prompt; of `every` so many runs of neighbours one."""
    if dataset.sharing is None or not dataset.sharing.lengths:
        return
    lengths, ends = dataset.sharing.lengths, dataset.sharing.ends
    kept = [place for place in range(len(lengths)) if place // RUN % every == 0]
    weight = 1 if len(kept) == dataset.rows else dataset.rows / len(kept)
    # vLLM does not read its cache for a prompt whose likelihood is asked for.
    reads = not dataset.scored
    for place in kept:
        if lengths[place] <= most:
            stretch = start + ends[place] if reads and ends[place] != NOTHING else NOTHING
            yield _Prompt(lengths[place], number, (place + 0.5) / len(lengths), stretch, weight)


def _by_length(dataset: DatasetProfile, number: int, most: int) -> Iterator[_Prompt]:
    for tokens, count in dataset.lengths.counts.items():
        if tokens <= most and count:
            yield _Prompt(tokens, number, _NOWHERE, NOTHING, count)


def parts(weights: Sequence[float], count: int, chance: random.Random) -> list[int]:
    """One place out of each of `count` equally large parts of the weights, in order.

    >>> parts([2, 1, 1], 4, random.Random(0))
    [0, 0, 1, 2]
    """
    up_to = list(accumulate(weights))
    if count == up_to[-1] and all(isinstance(weight, int) for weight in weights):
        return [place for place, weight in enumerate(weights) for _ in range(int(weight))]
    drawn = ((part + chance.random()) / count * up_to[-1] for part in range(count))
    return [min(bisect_right(up_to, rank), len(up_to) - 1) for rank in drawn]


def stratified(lengths: LengthHistogram, count: int, chance: random.Random) -> list[int]:
    """One length out of each of `count` equally large parts of the sorted prompts, in order."""
    ordered = sorted(length for length, held in lengths.counts.items() if held)
    places = parts([lengths.counts[length] for length in ordered], count, chance)
    return [ordered[place] for place in places]


def _in_order(
    prompts: list[_Prompt],
    order: SendOrder,
    how: Drawing,
    chance: random.Random,
) -> list[_Prompt]:
    if order is SendOrder.SHUFFLED:
        chance.shuffle(prompts)
        return prompts
    if order is SendOrder.LONGEST:
        return sorted(prompts, key=lambda p: (-p.tokens, p.stretch, p.dataset, p.place))
    placed = [p if p.place >= 0 else p._replace(place=chance.random()) for p in prompts]
    if how.arrivals == BATCH:
        return sorted(placed, key=lambda p: (p.dataset, p.place))
    return sorted(placed, key=lambda p: (p.place, p.dataset))


def _output(known: Sequence[int], how: Drawing, chance: random.Random) -> int:
    """As long as asked for, else one of those of the prompt's dataset."""
    if how.task is Task.LOGLIKELIHOOD:
        return 1
    if how.output is not None:
        return how.output
    return chance.choice(known) if known else how.output_if_unknown


def _known_outputs(dataset: DatasetProfile) -> list[int]:
    """A thousand lengths that stand for all: enough to draw from, whatever the size."""
    if dataset.scored:
        return [1]  # which vLLM asks for
    lengths = dataset.output_lengths
    if lengths is None or not lengths.count:
        return []
    return stratified(lengths, min(lengths.count, 1_000), random.Random(0))  # noqa: S311
