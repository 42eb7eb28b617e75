"""Do the outputs stay the same? Greedy answers under two settings, or twice under the same one.

Batching alone changes floating-point sums, so each engine gets the sample twice: all at once, and
in the opposite order with half of the prompts under way. What differs between those is noise.
Likelihood tasks ask each prompt with several endings: the likeliest is what an eval would choose.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from chunkscope.simulation.workload import Workload
from chunkscope.vllm.enums import Task

PROMPTS = 64
OUTPUT_TOKENS = 32
QUESTIONS, ENDINGS, ENDING_TOKENS = 16, 4, 8
TOPS = 3  # the likeliest tokens whose log-probabilities are told

Spoken = tuple[tuple[int | str, float], ...]  # tokens and log-probabilities, the chosen one first


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSample:
    """Which requests of a workload are sent; `endings` of so many tokens, of likelihood tasks."""

    places: tuple[int, ...]
    tokens: int  # of an answer at most, or of an ending
    endings: int | None = None


def sample_of(workload: Workload) -> OutputSample | None:
    """Evenly over the lengths, the longest among them; None where no prompt can be asked so."""
    choosing = workload.task is Task.LOGLIKELIHOOD
    lengths = [request.prompt_tokens for request in workload.requests]
    usable = [n for n, tokens in enumerate(lengths) if tokens > 1 or not choosing]
    ranked = sorted(usable, key=lambda place: -lengths[place])
    count = min(len(ranked), QUESTIONS if choosing else PROMPTS)
    places = tuple(sorted(ranked[i * len(ranked) // count] for i in range(count)))
    if not places:
        return None
    if not choosing:
        return OutputSample(places=places, tokens=OUTPUT_TOKENS)
    shortest = min(lengths[place] for place in places)
    return OutputSample(places=places, tokens=min(ENDING_TOKENS, shortest // 2), endings=ENDINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenOutputs:
    """What one sending of the sample brought: answers token by token, or scores of endings."""

    answers: tuple[tuple[Spoken, ...], ...] = ()
    scores: tuple[tuple[float, ...], ...] = ()  # by question


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDifference:
    """One prompt of the sample whose outputs differ; the first token that does, counted from 1.

    The change is that of the log-probability of one and the same token, or of the ending that
    changed most; None where one answer simply ends.
    """

    prompt: int
    at: int | None
    logprob_change: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOutputs:
    """Two sendings of the same sample. Changes of log-probabilities are absolute."""

    prompts: int
    equal: float  # the share of prompts with the same answer, or the same choice
    different: tuple[OutputDifference, ...]
    first_difference: int | None  # of all answers, the earliest token that differs
    difference_logprob: float | None  # the largest change at a first difference
    mean_logprob_change: float | None  # of all tokens up to the first difference, or endings
    largest_logprob_change: float | None
    flipped_choices: int | None  # of likelihood tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutputs:
    """Of one setting: `again` is its own noise, `beside` how it compares with the run `against`."""

    tokens: int  # asked of each prompt at most, or of an ending
    again: ComparedOutputs
    against: str | None = None
    beside: ComparedOutputs | None = None


def compared(one: SpokenOutputs, other: SpokenOutputs) -> ComparedOutputs:
    """How the other's outputs differ from the one's.

    >>> said = SpokenOutputs(answers=((((7, -0.1), (8, -2.5)),), (((7, -0.7), (8, -0.71)),)))
    >>> near = SpokenOutputs(answers=((((7, -0.1), (8, -2.5)),), (((8, -0.7), (7, -0.72)),)))
    >>> found = compared(said, near)
    >>> found.equal, found.first_difference, round(found.difference_logprob, 3)
    (0.5, 1, 0.02)
    """
    choosing = bool(one.scores)
    pairs = (_choices if choosing else _answers)(one, other)
    different, changes = [], []
    for prompt, (difference, seen) in enumerate(pairs):
        changes += seen
        if difference is not None:
            at, change = difference
            different.append(OutputDifference(prompt=prompt, at=at, logprob_change=change))
    prompts = len(one.scores) or len(one.answers)
    return ComparedOutputs(
        prompts=prompts,
        equal=1 - len(different) / prompts,
        different=tuple(different),
        first_difference=min((d.at for d in different if d.at is not None), default=None),
        difference_logprob=_most(d.logprob_change for d in different),
        mean_logprob_change=fsum(changes) / len(changes) if changes else None,
        largest_logprob_change=max(changes, default=None),
        flipped_choices=len(different) if choosing else None,
    )


Difference = tuple[int | None, float | None]  # the token, and the change of its log-probability


def _answers(
    one: SpokenOutputs, other: SpokenOutputs
) -> Iterator[tuple[Difference | None, list[float]]]:
    """After the first difference two answers go on from other texts: nothing more is compared."""
    for first, second in zip(one.answers, other.answers, strict=True):
        changes: list[float] = []
        difference: Difference | None = None
        for at, (mine, theirs) in enumerate(zip(first, second, strict=False), start=1):
            changes.append(_change(mine, theirs))
            if mine[0][0] != theirs[0][0]:
                difference = at, changes[-1]
                break
        if difference is None and len(first) != len(second):
            difference = min(len(first), len(second)) + 1, None
        yield difference, changes


def _change(mine: Spoken, theirs: Spoken) -> float:
    """Of the token that was chosen first; at least so much, where the other does not tell it."""
    token, logprob = mine[0]
    told = dict(theirs)
    return abs(logprob - told.get(token, min(told.values())))


def _choices(
    one: SpokenOutputs, other: SpokenOutputs
) -> Iterator[tuple[Difference | None, list[float]]]:
    for first, second in zip(one.scores, other.scores, strict=True):
        changes = [abs(a - b) for a, b in zip(first, second, strict=True)]
        flipped = first.index(max(first)) != second.index(max(second))
        yield (None, max(changes)) if flipped else None, changes


def _most(values: Iterator[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


# -- can it be true? -----------------------------------------------------------------------------


def impossible(found: RunOutputs, workload: Workload) -> Iterator[str]:
    """What contradicts itself in the outputs of a run."""
    for part in filter(None, (found.again, found.beside)):
        yield from _impossible(part, found.tokens, workload)
    if found.beside is not None and found.beside.prompts != found.again.prompts:
        yield "other prompts were sent again than were compared"
    if (found.beside is None) is not (found.against is None):
        yield "outputs are compared with those of nobody"


def _impossible(found: ComparedOutputs, tokens: int, workload: Workload) -> Iterator[str]:
    different, choosing = found.different, workload.task is Task.LOGLIKELIHOOD
    if not 0 < found.prompts <= len(workload.requests):
        yield f"outputs of {found.prompts:,} of {len(workload.requests):,} prompts were compared"
    elif abs(found.equal - (1 - len(different) / found.prompts)) > 1e-9:
        yield "the share of equal outputs is not that of the prompts"
    prompts = [difference.prompt for difference in different]
    if prompts != sorted(set(prompts)) or not all(0 <= n < found.prompts for n in prompts):
        yield "a prompt differs twice, or is none that was sent"
    places = [difference.at for difference in different]
    known = [at for at in places if at is not None]
    asked_for = all(0 < at <= tokens for at in known)
    if any((at is None) is not choosing for at in places) or not asked_for:
        yield "outputs differ at a token that was not asked for"
    if found.first_difference != min(known, default=None):
        yield "the first difference of outputs is not that of the prompts"
    if found.flipped_choices != (len(different) if choosing else None):
        yield "the flipped choices are not those of the prompts"
    yield from _impossible_changes(found)


def _impossible_changes(found: ComparedOutputs) -> Iterator[str]:
    changes = [d.logprob_change for d in found.different]
    mean, largest = found.mean_logprob_change, found.largest_logprob_change
    if found.difference_logprob != _most(iter(changes)):
        yield "the change of log-probability is not that of the prompts"
    if mean is None or largest is None:
        if mean is not largest or any(change is not None for change in changes):
            yield "log-probabilities changed, and nobody says by how much"
    elif not 0 <= mean <= largest * (1 + 1e-9) or any(
        not 0 <= change <= largest for change in changes if change is not None
    ):
        yield "log-probabilities changed by more than they did at most"


def only_noise(found: RunOutputs, of: Sequence[RunOutputs]) -> bool:
    """Does sending again, under either of the settings, change at least as many outputs?"""
    least = min(one.again.equal for one in (found, *of))
    return found.beside is not None and found.beside.equal >= least
