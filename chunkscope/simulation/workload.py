"""What is sent to an engine: sessions of turns, what their prompts share, and when they
come.

The same workload is sent to a real engine by `verify` and to the scheduler's twin by
`simulate`.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.profile import DEFAULT_OUTPUT, DatasetProfile
from chunkscope.prefixes.sharing import (
    NOTHING,
    RUN,
    Stretch,
    not_compared,
    stretches_together,
)
from chunkscope.prompts.harness.log import LONGEST_FIRST
from chunkscope.vllm.enums import SendOrder, Task

BATCH, GIVEN, AS_IN_TRACE = "batch", "given", "trace"
VERIFY_SCHEMA = "chunkscope/verify/6"  # the artefact that holds a workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request of a session: its prompt is all that was said before, and
    `new_tokens`."""

    new_tokens: int
    output_tokens: int
    think_s: float = 0.0  # from its answer until the next turn is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Turns that follow each other. An ordinary prompt is a session of one turn."""

    turns: tuple[Turn, ...]
    arrival_s: float = 0.0
    stretch: int = NOTHING  # the last that its beginning shares with others

    @property
    def tokens(self) -> int:
        """All that is said in it."""
        tokens = 0
        for turn in self.turns:
            tokens += turn.new_tokens + turn.output_tokens
        return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One turn as the engine sees it: with the whole prompt."""

    prompt_tokens: int
    output_tokens: int
    arrival_s: float = 0.0  # of its session: when later turns come, only a run can say
    stretch: int = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is sent, in the order of arrival. Prompts over `long_over` tokens count as
    long.

    A session begins with its stretch and all before that, up to the length of its first
    prompt. Where they are not the data's but one that was asked for, `shared_prefix` is
    its length.
    """

    sessions: tuple[Session, ...]
    seed: int
    arrivals: str
    task: Task
    long_over: int = 2_048  # tokens
    shared_prefix: int = 0  # tokens
    left_out: int = 0  # prompts of the profile that no engine would take at this length
    stretches: tuple[Stretch, ...] = ()
    order: SendOrder | None = None  # None where nobody wrote it down
    concurrency: int | None = None  # sessions under way at a time; None: all
    scored: Numbers = NO_NUMBERS  # places of requests that ask for likelihoods, if some

    @property
    def requests(self) -> tuple[Request, ...]:
        """All turns of the first session, then those of the next."""
        requests = []
        for session in self.sessions:
            tokens = 0
            for turn in session.turns:
                tokens += turn.new_tokens
                requests.append(
                    Request(
                        prompt_tokens=tokens,
                        output_tokens=turn.output_tokens,
                        arrival_s=session.arrival_s,
                        stretch=session.stretch,
                    )
                )
                tokens += turn.output_tokens
        return tuple(requests)

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
        if self.task is Task.LOGLIKELIHOOD:
            return frozenset(range(len(self.requests)))
        return frozenset(self.scored)

    def times_as_fast(self, times: float) -> "Workload":
        """The same, with sessions that come so many times as fast after each other."""
        sessions = []
        for session in self.sessions:
            sessions.append(replace(session, arrival_s=session.arrival_s / times))
        return replace(self, sessions=tuple(sessions))

    def every_nth(self, step: int) -> "Workload":
        """Some of the sessions, which are scored as they are here."""
        scored, places, request = set(self.scored), [], 0
        kept = 0
        for number, session in enumerate(self.sessions):
            for _ in session.turns:
                if number % step == 0:
                    if request in scored:
                        places.append(kept)
                    kept += 1
                request += 1
        return replace(self, sessions=self.sessions[::step], scored=Numbers(places))


def single(
    prompt_tokens: int,
    output_tokens: int,
    arrival_s: float = 0.0,
    stretch: int = NOTHING,
) -> Session:
    """An ordinary prompt."""
    turn = Turn(new_tokens=prompt_tokens, output_tokens=output_tokens)
    return Session(turns=(turn,), arrival_s=arrival_s, stretch=stretch)


def arrival_times(arrivals: str, count: int, chance: random.Random) -> list[float]:
    """All at once, or as a Poisson process: "4/s" is four a second on average."""
    rate = arrival_rate(arrivals)
    if rate is None:
        return [0.0] * count
    pauses = [chance.expovariate(rate) for _ in range(count)]
    times = [0.0, *accumulate(pauses)][:count]
    return [round(time, 6) for time in times]  # as it is written down, to be sent again


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


# -- what a dataset's requests generate ----------------------------------------

MOST_LENGTHS = 1_000  # of answers, that are drawn from


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
        """To draw from; what is assumed is taken `times` as long."""
        if self.origin is OutputOrigin.DATA and dataset.output_lengths:
            return _spread(dataset.output_lengths.counts)
        if not self.is_assumed:
            return [self.tokens]
        tokens = round(DEFAULT_OUTPUT * times)
        if self.origin is OutputOrigin.TASK:
            tokens = min(self.tokens, tokens)
        return [tokens]


def _spread(counts: Mapping[int, int]) -> list[int]:
    """Lengths that stand for all that were counted."""
    lengths = sorted(length for length, count in counts.items() if count)
    weights = [counts[length] for length in lengths]
    count = min(sum(weights), MOST_LENGTHS)
    places = parts(weights, count, random.Random(0))  # noqa: S311  (a sample, no secret)
    return [lengths[place] for place in places]


def dataset_output(
    dataset: DatasetProfile, task: Task | None = None, asked: int | None = None
) -> DatasetOutput:
    """What a dataset is sent for, unless a `task` is given for all: as asked, else the
    longest answer in the data, else the most that its task allows, else 256 tokens."""
    name = dataset.name
    if task is Task.LOGLIKELIHOOD or (dataset.scored and task is None):
        return DatasetOutput(name=name, tokens=1, origin=OutputOrigin.SCORED)
    if asked:
        return DatasetOutput(name=name, tokens=asked, origin=OutputOrigin.ASKED)
    if dataset.output_lengths and dataset.output_lengths.max:
        tokens = dataset.output_lengths.max
        return DatasetOutput(name=name, tokens=tokens, origin=OutputOrigin.DATA)
    if dataset.log and not dataset.scored and dataset.log.output_limit:
        tokens = dataset.log.output_limit
        return DatasetOutput(name=name, tokens=tokens, origin=OutputOrigin.TASK)
    return DatasetOutput(name=name, tokens=DEFAULT_OUTPUT, origin=OutputOrigin.ASSUMED)


# -- drawing requests out of a profile -----------------------------------------


class _Prompt(NamedTuple):
    """A prompt that stands for `weight` of its dataset's, or that many of one length.

    Prompts are sorted by these fields.
    """

    tokens: int
    dataset: int
    place: float  # in its dataset: from 0 to 1; NOWHERE where not known
    stretch: int
    weight: float
    found: int  # the stretch that it finds: all that others share which it stands for


_NOWHERE = -1.0
MOST_PROMPTS = 60_000  # that are drawn from: with more it takes longer than the rest


def draw_workload(  # noqa: PLR0913  (all by name)
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
    """A stratified sample of the prompts, with outputs as their dataset's; `room` is
    max_model_len.

    `count` None sends every prompt once; `shared_prefix` and `order` None are the
    data's own: then datasets are sent one after the other, as a harness runs its tasks;
    lm-eval sends those of all tasks together, longest first. At a rate they come mixed,
    each in its order. Prompts are `prompt_times` as long, outputs that are assumed
    `assumed_times`.
    """
    chance = random.Random(seed)  # noqa: S311  (a sample, no secret)
    served = served_prompts(datasets, outputs, room)
    if not served:
        shortest = min(dataset.lengths.min or 0 for dataset in datasets)
        raise InputError(
            f"no prompt fits: the shortest has {shortest:,} tokens, max_model_len is "
            f"{room:,}",
            hint="choose a model with a longer context, or lower --max-output",
        )
    prompts, stretches = _prompts(datasets, outputs, room, all_of_them=count is None)
    weights = [prompt.weight for prompt in prompts]
    chosen = _chosen(prompts, parts(weights, count or served, chance))
    order = order or usual_order(datasets)
    chosen = _in_order(chosen, order, chance, mixed=arrivals != BATCH)
    arrivals_s = arrival_times(arrivals, len(chosen), chance)
    lengths = []
    for output, dataset in zip(outputs, datasets, strict=True):
        lengths.append(output.lengths(dataset, assumed_times))
    sessions = []
    for prompt, arrival_s in zip(chosen, arrivals_s, strict=True):
        tokens = max(1, min(round(prompt.tokens * prompt_times), room - 1))
        answer = min(chance.choice(lengths[prompt.dataset]), room - tokens)
        sessions.append(single(tokens, max(1, answer), arrival_s, prompt.stretch))
    scored = _scored(chosen, outputs)
    all_scored = len(scored) == len(chosen)
    workload = Workload(
        sessions=tuple(sessions),
        stretches=stretches,
        seed=seed,
        arrivals=arrivals,
        task=Task.LOGLIKELIHOOD if all_scored else Task.GENERATE,
        scored=NO_NUMBERS if all_scored else Numbers(scored),
        left_out=sum(dataset.rows for dataset in datasets) - served,
        order=order,
    )
    if shared_prefix is not None:
        return _with_shared_prefix(workload, shared_prefix)
    return workload


def _chosen(prompts: Sequence[_Prompt], places: Sequence[int]) -> list[_Prompt]:
    """These prompts. One that is there several times stands for others that share what
    it finds in a cache, and are not the same."""
    chosen = []
    before = None
    for place in places:
        prompt = prompts[place]
        if place == before:
            prompt = prompt._replace(stretch=prompt.found)
        chosen.append(prompt)
        before = place
    return chosen


def _scored(prompts: Sequence[_Prompt], outputs: Sequence[DatasetOutput]) -> list[int]:
    """Places of the prompts whose likelihood is asked for."""
    places = []
    for place, prompt in enumerate(prompts):
        if outputs[prompt.dataset].is_scored:
            places.append(place)
    return places


def _with_shared_prefix(workload: Workload, tokens: int) -> Workload:
    """All prompts begin with the same tokens, and share nothing else."""
    stretches: tuple[Stretch, ...] = ()
    if tokens:
        stretches = (Stretch(parent=NOTHING, tokens=tokens),)
    stretch = 0 if tokens else NOTHING
    sessions = tuple(replace(one, stretch=stretch) for one in workload.sessions)
    return replace(
        workload, sessions=sessions, stretches=stretches, shared_prefix=tokens
    )


def served_prompts(
    datasets: Sequence[DatasetProfile], outputs: Sequence[DatasetOutput], room: int
) -> int:
    """How many prompts leave room for the output of their dataset: others are too
    long."""
    served = 0
    for dataset, output in zip(datasets, outputs, strict=True):
        too_long = dataset.lengths.over(output.longest_prompt(room))
        served += dataset.rows - too_long
    return served


def usual_order(datasets: Sequence[DatasetProfile]) -> SendOrder:
    """As it is sent if nobody says otherwise. A profile that has only lengths has no
    order."""
    if all(dataset.log and dataset.log.order == LONGEST_FIRST for dataset in datasets):
        return SendOrder.LONGEST
    if any(dataset.sharing for dataset in datasets):
        return SendOrder.DATA
    return SendOrder.SHUFFLED


def _prompts(
    datasets: Sequence[DatasetProfile],
    outputs: Sequence[DatasetOutput],
    room: int,
    *,
    all_of_them: bool,
) -> tuple[list[_Prompt], tuple[Stretch, ...]]:
    """Those that leave room for an output, by length; and the stretches of all
    datasets."""
    one_of = 1
    if not all_of_them:
        known = sum(len(one.sharing.lengths) for one in datasets if one.sharing)
        one_of = max(1, -(-known // MOST_PROMPTS))
    sharings = [dataset.sharing for dataset in datasets]
    stretches, starts = stretches_together(sharings)
    prompts = []
    for number, (dataset, output) in enumerate(zip(datasets, outputs, strict=True)):
        # vLLM does not read its cache for a prompt whose likelihood is asked for.
        first_stretch = None if output.is_scored else starts[number]
        longest = output.longest_prompt(room)
        for prompt in _dataset_prompts(dataset, number, first_stretch, one_of):
            if prompt.tokens <= longest:
                prompts.append(prompt)
    return sorted(prompts), stretches


def _dataset_prompts(
    dataset: DatasetProfile, number: int, first_stretch: int | None, one_of: int
) -> Iterator[_Prompt]:
    """One by one where they are known so, else by length. Of runs of neighbours
    `one_of` so many is drawn from."""
    if dataset.sharing is None or not dataset.sharing.lengths:
        for tokens, count in dataset.lengths.counts.items():
            if count:
                yield _Prompt(tokens, number, _NOWHERE, NOTHING, count, NOTHING)
        return
    lengths = dataset.sharing.lengths
    ends, found = dataset.sharing.ends, dataset.sharing.found()
    places = [place for place in range(len(lengths)) if place // RUN % one_of == 0]
    # Weights that are whole numbers let every prompt be sent once.
    weight = 1 if len(places) == len(lengths) else len(lengths) / len(places)
    compared = len(lengths) / dataset.rows
    for place in places:
        middle = (place + 0.5) / dataset.rows
        end = _together(ends[place], first_stretch)
        alike = _together(found[place], first_stretch)
        yield _Prompt(lengths[place], number, middle, end, weight, alike)
    for rest in not_compared(dataset.lengths.counts, lengths):
        # They come after those that were compared, in an order like theirs.
        later = (rest.like + 0.5) / len(lengths) * (1 - compared)
        alike = _together(found[rest.like], first_stretch)
        yield _Prompt(rest.tokens, number, compared + later, alike, rest.prompts, alike)


def _together(stretch: int, first_stretch: int | None) -> int:
    """A stretch of a dataset among those of all datasets."""
    if stretch == NOTHING or first_stretch is None:
        return NOTHING
    return first_stretch + stretch


def parts(weights: Sequence[float], count: int, chance: random.Random) -> list[int]:
    """One place out of each of `count` equally large parts of the weights, in order."""
    up_to = list(accumulate(weights))
    places: list[int] = []
    if count == up_to[-1] and all(isinstance(weight, int) for weight in weights):
        for place, weight in enumerate(weights):
            places += [place] * int(weight)
        return places
    for part in range(count):
        rank = (part + chance.random()) / count * up_to[-1]
        places.append(min(bisect_right(up_to, rank), len(up_to) - 1))
    return places


def _in_order(
    prompts: list[_Prompt], order: SendOrder, chance: random.Random, *, mixed: bool
) -> list[_Prompt]:
    if order is SendOrder.SHUFFLED:
        chance.shuffle(prompts)
        return prompts
    if order is SendOrder.LONGEST:
        return sorted(prompts, key=_longest_first)
    placed = []
    for prompt in prompts:
        if prompt.place == _NOWHERE:
            prompt = prompt._replace(place=chance.random())
        placed.append(prompt)
    if mixed:
        return sorted(placed, key=lambda prompt: (prompt.place, prompt.dataset))
    return sorted(placed, key=lambda prompt: (prompt.dataset, prompt.place))


def _longest_first(prompt: _Prompt) -> tuple[int, int, int, float]:
    return -prompt.tokens, prompt.stretch, prompt.dataset, prompt.place
