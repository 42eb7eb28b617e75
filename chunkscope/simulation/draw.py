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
from chunkscope.lengths.sessions import Sessions
from chunkscope.prefixes.sharing import (
    NOTHING,
    RUN,
    Sharing,
    Stretch,
    depths,
    not_compared,
    stretches_together,
)
from chunkscope.prompts.harness.log import LONGEST_FIRST
from chunkscope.simulation.outputs import DatasetOutput
from chunkscope.simulation.workload import (
    BATCH,
    Phase,
    Session,
    Turn,
    Workload,
    arrival_times,
    single,
)
from chunkscope.vllm.enums import SendOrder, Task


class _Prompt(NamedTuple):
    """A prompt that stands for `weight` of its dataset's, or that many of one length;
    or the first prompt of a session.

    Prompts are sorted by these fields.
    """

    tokens: int
    dataset: int
    place: float  # in its dataset: from 0 to 1; NOWHERE where not known
    stretch: int
    weight: float
    found: int  # the stretch that it finds: all that others share which it stands for
    session: int = NOTHING  # its number in the dataset's


_NOWHERE = -1.0
MOST_PROMPTS = 60_000  # that are drawn from: with more it takes longer than the rest


def draw_workload(  # noqa: PLR0913  (all by name)
    datasets: Sequence[DatasetProfile],
    outputs: Sequence[DatasetOutput],
    *,
    room: int,
    count: int | None = None,
    samples: int = 1,
    seed: int = 0,
    arrivals: str = BATCH,
    shared_prefix: int | None = None,
    order: SendOrder | None = None,
    prompt_times: float = 1.0,
    assumed_times: float = 1.0,
) -> Workload:
    """A stratified sample of the prompts and sessions, with outputs as their dataset's;
    `room` is max_model_len.

    `count` None sends every one of them `samples` times, else so many in all;
    `shared_prefix` and `order` None are the data's own: then datasets follow each
    other; lm-eval sends the requests of all tasks together, longest first. At a rate
    they come mixed, each in its order. Prompts are `prompt_times` as long, outputs that
    are assumed `assumed_times`.
    """
    chance = random.Random(seed)  # noqa: S311  (a sample, no secret)
    served = served_sessions(datasets, outputs, room)
    if not served:
        raise _nothing_fits(datasets, room)
    if count is not None:
        # Of fewer, each prompt is sent less often before any is left out.
        samples = min(samples, max(1, round(count / served)))
        count = max(1, round(count / samples))
    prompts, stretches = _prompts(datasets, outputs, room, all_of_them=count is None)
    weights = [prompt.weight for prompt in prompts]
    chosen = _chosen(prompts, parts(weights, count or served, chance))
    order = order or usual_order(datasets)
    chosen = _in_order(chosen, order, chance, mixed=arrivals != BATCH)
    if samples > 1:
        chosen, stretches = _several_times(chosen, stretches, samples)
    sender = _Sender(datasets, outputs, room, chance, prompt_times, assumed_times)
    arrivals_s = arrival_times(arrivals, len(chosen), chance)
    sessions = []
    for prompt, arrival_s in zip(chosen, arrivals_s, strict=True):
        sessions.append(sender.session(prompt, arrival_s))
    is_scored = [outputs[prompt.dataset].is_scored for prompt in chosen]
    workload = Workload(
        sessions=tuple(sessions),
        stretches=stretches,
        seed=seed,
        arrivals=arrivals,
        task=Task.LOGLIKELIHOOD if all(is_scored) else Task.GENERATE,
        scored=_scored_places(sessions, is_scored),
        left_out=_rows(datasets) - served_prompts(datasets, outputs, room),
        outgrown=outgrown_sessions(datasets, outputs, room),
        order=order,
    )
    if shared_prefix is not None:
        return _with_shared_prefix(workload, shared_prefix)
    return workload


def _nothing_fits(datasets: Sequence[DatasetProfile], room: int) -> InputError:
    shortest = min(dataset.lengths.min or 0 for dataset in datasets)
    return InputError(
        f"no prompt fits: the shortest has {shortest:,} tokens, max_model_len is "
        f"{room:,}",
        hint="choose a model with a longer context, or shorter answers",
    )


def _scored_places(sessions: Sequence[Session], is_scored: Sequence[bool]) -> Numbers:
    """The places of requests that ask for likelihoods; none where all of them do."""
    if all(is_scored):
        return NO_NUMBERS
    places = []
    place = 0
    for session, scored in zip(sessions, is_scored, strict=True):
        if scored:
            places.append(place)
        place += len(session.turns)
    return Numbers(places)


def _rows(datasets: Sequence[DatasetProfile]) -> int:
    return sum(dataset.rows for dataset in datasets)


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


def _several_times(
    prompts: Sequence[_Prompt], stretches: tuple[Stretch, ...], samples: int
) -> tuple[list[_Prompt], tuple[Stretch, ...]]:
    """Each prompt so often, one after the other: all of it is shared then."""
    known = depths(stretches)
    all_stretches = list(stretches)
    repeated = []
    for prompt in prompts:
        shared = known[prompt.stretch] if prompt.stretch != NOTHING else 0
        if prompt.tokens > shared:
            tokens = prompt.tokens - shared
            all_stretches.append(Stretch(parent=prompt.stretch, tokens=tokens))
            prompt = prompt._replace(stretch=len(all_stretches) - 1)
        repeated += [prompt] * samples
    return repeated, tuple(all_stretches)


class _Sender:
    """Makes sessions of the prompts that were drawn, with answers."""

    def __init__(  # noqa: PLR0913  (all by name)
        self,
        datasets: Sequence[DatasetProfile],
        outputs: Sequence[DatasetOutput],
        room: int,
        chance: random.Random,
        prompt_times: float,
        assumed_times: float,
    ) -> None:
        self._room, self._chance, self._times = room, chance, prompt_times
        self._outputs = outputs
        self._sessions = [dataset.sessions for dataset in datasets]
        self._starts = []
        self._answers = []
        for output, dataset in zip(outputs, datasets, strict=True):
            sessions = dataset.sessions
            self._starts.append(sessions.first_turns if sessions else [])
            self._answers.append(output.lengths(dataset, assumed_times))

    def session(self, prompt: _Prompt, arrival_s: float) -> Session:
        if prompt.session == NOTHING:
            tokens = self._prompt_tokens(prompt.tokens)
            answer = min(self._answer(prompt.dataset), self._room - tokens)
            return single(tokens, max(1, answer), arrival_s, prompt.stretch)
        turns = tuple(self._turns(prompt))
        return Session(turns=turns, arrival_s=arrival_s, stretch=prompt.stretch)

    def _prompt_tokens(self, tokens: int) -> int:
        return max(1, min(round(tokens * self._times), self._room - 1))

    def _answer(self, dataset: int) -> int:
        return self._chance.choice(self._answers[dataset])

    def _turns(self, prompt: _Prompt) -> Iterator[Turn]:
        """Until vLLM refuses one, which ends the session."""
        sessions = self._sessions[prompt.dataset]
        if sessions is None:
            raise AssertionError("a session of a dataset that has none")
        start = self._starts[prompt.dataset][prompt.session]
        output = self._outputs[prompt.dataset]
        before: Turn | None = None
        for place in range(start, start + sessions.turns[prompt.session]):
            if before is not None and not fits(sessions, place, output, self._room):
                return
            tokens = self._prompt_tokens(sessions.prompt_tokens[place])
            answer = logged_answer(sessions, place, output)
            if answer is None:
                answer = self._answer(prompt.dataset)
            turn = Turn(
                prompt_tokens=tokens,
                output_tokens=max(1, min(answer, self._room - tokens)),
                kept_tokens=self._kept_tokens(sessions, place, before, tokens),
                think_s=think_s(sessions, place),
            )
            yield turn
            before = turn

    def _kept_tokens(
        self, sessions: Sessions, place: int, before: Turn | None, tokens: int
    ) -> int:
        """All that was said, where the client kept all of it, else a part."""
        if before is None:
            return 0
        said = sessions.prompt_tokens[place - 1]
        if sessions.output_tokens:
            said += sessions.output_tokens[place - 1]
        kept = before.prompt_tokens + before.output_tokens
        if sessions.kept_tokens[place] < said:
            kept = min(kept, round(sessions.kept_tokens[place] * self._times))
        return min(kept, tokens)


def logged_answer(sessions: Sessions, place: int, output: DatasetOutput) -> int | None:
    """None where other answers are asked for, or nobody knows."""
    if output.asked is not None or not sessions.output_tokens:
        return None
    return sessions.output_tokens[place]


def think_s(sessions: Sessions, place: int) -> float:
    """Seconds from the answer before until a turn is sent; 0 where not known."""
    return sessions.think_ms[place] / 1_000 if sessions.think_ms else 0.0


def fits(sessions: Sessions, place: int, output: DatasetOutput, room: int) -> bool:
    """Does a turn leave room for its answer?"""
    answer = logged_answer(sessions, place, output)
    if answer is None:
        return sessions.prompt_tokens[place] <= output.longest_prompt(room)
    return sessions.prompt_tokens[place] + answer <= room


def served_turns(
    dataset: DatasetProfile, output: DatasetOutput, room: int
) -> list[int]:
    """By session, how many turns are served: a refused one ends it."""
    served: list[int] = []
    sessions = dataset.sessions
    if sessions is None:
        return served
    for start, turns in zip(sessions.first_turns, sessions.turns, strict=True):
        count = 0
        while count < turns and fits(sessions, start + count, output, room):
            count += 1
        served.append(count)
    return served


def _with_shared_prefix(workload: Workload, tokens: int) -> Workload:
    """All prompts begin with the same tokens, and share nothing else."""
    stretches: tuple[Stretch, ...] = ()
    if tokens:
        stretches = (Stretch(parent=NOTHING, tokens=tokens),)
    stretch = 0 if tokens else NOTHING
    sessions = tuple(replace(session, stretch=stretch) for session in workload.sessions)
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
        if dataset.sessions is not None:
            served += sum(served_turns(dataset, output, room))
        else:
            too_long = dataset.lengths.over(output.longest_prompt(room))
            served += dataset.rows - too_long
    return served


def served_sessions(
    datasets: Sequence[DatasetProfile], outputs: Sequence[DatasetOutput], room: int
) -> int:
    """How many prompts, or sessions with at least one turn, are served."""
    served = 0
    for dataset, output in zip(datasets, outputs, strict=True):
        if dataset.sessions is not None:
            served += sum(count > 0 for count in served_turns(dataset, output, room))
        else:
            served += served_prompts([dataset], [output], room)
    return served


def outgrown_sessions(
    datasets: Sequence[DatasetProfile], outputs: Sequence[DatasetOutput], room: int
) -> int:
    """How many sessions have a turn that is refused, and end with it."""
    outgrown = 0
    for dataset, output in zip(datasets, outputs, strict=True):
        if dataset.sessions is not None:
            served = served_turns(dataset, output, room)
            for turns, count in zip(dataset.sessions.turns, served, strict=True):
                outgrown += count < turns
    return outgrown


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
        known = _compared_prompts(datasets)
        one_of = max(1, -(-known // MOST_PROMPTS))
    stretches, starts = stretches_together([_sharing(dataset) for dataset in datasets])
    prompts: list[_Prompt] = []
    for number, (dataset, output) in enumerate(zip(datasets, outputs, strict=True)):
        # vLLM does not read its cache for a prompt whose likelihood is asked for.
        first_stretch = None if output.is_scored else starts[number]
        longest = output.longest_prompt(room)
        if dataset.sessions is not None:
            prompts += _first_prompts(dataset, number, starts[number], output, room)
            continue
        for prompt in _dataset_prompts(dataset, number, first_stretch, one_of):
            if prompt.tokens <= longest:
                prompts.append(prompt)
    return sorted(prompts), stretches


def _compared_prompts(datasets: Sequence[DatasetProfile]) -> int:
    """How many prompts are known one by one."""
    compared = 0
    for dataset in datasets:
        if dataset.sharing is not None:
            compared += len(dataset.sharing.lengths)
    return compared


def _first_prompts(
    dataset: DatasetProfile,
    number: int,
    first_stretch: int,
    output: DatasetOutput,
    room: int,
) -> Iterator[_Prompt]:
    """The beginnings of its sessions that are served."""
    sessions = dataset.sessions
    if sessions is None:
        return
    served = served_turns(dataset, output, room)
    for session, start in enumerate(sessions.first_turns):
        if not served[session]:
            continue
        stretch = NOTHING
        if sessions.stretches:
            stretch = _together(sessions.stretches[session], first_stretch)
        elif sessions.system_tokens:
            stretch = first_stretch
        yield _Prompt(
            tokens=sessions.prompt_tokens[start],
            dataset=number,
            place=session / len(served),
            stretch=stretch,
            weight=1,
            found=stretch,
            session=session,
        )


def _sharing(dataset: DatasetProfile) -> Sharing | None:
    """Of sessions of which only the common beginning is known, that as a stretch."""
    sessions = dataset.sessions
    if sessions is None or sessions.stretches or not sessions.system_tokens:
        return dataset.sharing
    return Sharing(parents=Numbers([NOTHING]), tokens=Numbers([sessions.system_tokens]))


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


# -- datasets one after the other --------------------------------------------------


def one_after_the_other(
    workloads: Sequence[Workload], phases: Sequence[Phase]
) -> Workload:
    """All of them as one, in which each is sent when the one before has ended."""
    sessions: list[Session] = []
    stretches: list[Stretch] = []
    scored: list[int] = []
    requests = 0
    for workload in workloads:
        first = len(stretches)
        for stretch in workload.stretches:
            parent = _together(stretch.parent, first)
            stretches.append(Stretch(parent=parent, tokens=stretch.tokens))
        for session in workload.sessions:
            stretch_of_all = _together(session.stretch, first)
            sessions.append(replace(session, stretch=stretch_of_all))
        scored += [requests + place for place in sorted(workload.likelihoods)]
        requests += len(workload.requests)
    all_scored = len(scored) == requests
    return replace(
        workloads[0],
        sessions=tuple(sessions),
        stretches=tuple(stretches),
        scored=NO_NUMBERS if all_scored else Numbers(scored),
        task=Task.LOGLIKELIHOOD if all_scored else Task.GENERATE,
        left_out=sum(workload.left_out for workload in workloads),
        outgrown=sum(workload.outgrown for workload in workloads),
        phases=tuple(phases),
    )
