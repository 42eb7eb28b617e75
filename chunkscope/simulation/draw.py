"""Sessions drawn out of profiles, as a harness would send them."""

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers
from chunkscope.errors import InputError
from chunkscope.lengths.profile import DatasetProfile
from chunkscope.prefixes.sharing import (
    NOTHING,
    RUN,
    Stretch,
    not_compared,
    stretches_together,
)
from chunkscope.prompts.harness.log import LONGEST_FIRST
from chunkscope.simulation.outputs import DatasetOutput
from chunkscope.simulation.workload import BATCH, Workload, arrival_times, single
from chunkscope.vllm.enums import SendOrder, Task


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
