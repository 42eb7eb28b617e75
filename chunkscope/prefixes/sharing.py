"""What the prompts of a dataset share, and the order in which they are sent: values, no
arithmetic.

Made by `analyze` (tree.py), kept in the profile; the simulator's requests and the
prompts of `verify` come from it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers
from chunkscope.prefixes.reuse import BLOCK_SIZE

MOST_PROMPTS = 200_000  # that are compared and kept one by one: 2 MB of a profile
RUN = 50  # prompts that stay together in a sample: neighbours often share much
NOTHING = -1  # in place of a stretch: of a prompt that shares nothing, before the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Tokens that several prompts have, after all of the stretch before it (its
    `parent`)."""

    parent: int
    tokens: int


def depths(stretches: Sequence[Stretch]) -> list[int]:
    """By stretch, how many tokens of a prompt there are up to its end.

    >>> depths([Stretch(parent=-1, tokens=32), Stretch(parent=0, tokens=16)])
    [32, 48]
    """
    ends: list[int] = []
    for stretch in stretches:
        start = ends[stretch.parent] if stretch.parent != NOTHING else 0
        ends.append(start + stretch.tokens)
    return ends


class PathPart(NamedTuple):
    """Blocks `start` to `end` of a prompt, which all prompts of this stretch have."""

    stretch: int
    start: int
    end: int


Path = tuple[PathPart, ...]


def block_paths(stretches: Sequence[Stretch], block_size: int) -> list[Path]:
    """By stretch, the full blocks that a prompt which ends in it begins with.

    A block belongs to the stretch of its last token: with that, prompts share all
    before it.
    """
    paths: list[Path] = []
    for place, (stretch, depth) in enumerate(
        zip(stretches, depths(stretches), strict=True)
    ):
        before = paths[stretch.parent] if stretch.parent >= 0 else ()
        part = PathPart(
            place, (depth - stretch.tokens) // block_size, depth // block_size
        )
        paths.append((*before, part) if part.start < part.end else before)
    return paths


class Generating(Protocol):
    """A request whose prompt ends in a stretch, or NOTHING."""

    @property
    def stretch(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


def read_together(
    requests: Sequence[Generating], stretches: Sequence[Stretch]
) -> float:
    """The share of the context of decoding requests that the one beside them reads,
    too.

    Requests run beside those that were sent just before and after them.
    """
    if not stretches:
        return 0.0
    deep = depths(stretches)
    shared, context = 0, 0.0
    for request in requests:
        context += request.prompt_tokens + request.output_tokens / 2
    for request, following in pairwise(requests):
        one, other = request.stretch, following.stretch
        while one != other:  # a parent comes before its children
            if one > other:
                one = stretches[one].parent
            else:
                other = stretches[other].parent
        if one != NOTHING:
            shared += deep[one]
    return min(1.0, shared / context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The prompts of a dataset in the order in which they are sent, and what each
    begins with.

    Of a dataset with very many prompts, or blocks, these are the first ones.
    """

    lengths: Numbers = NO_NUMBERS  # by prompt, in tokens
    ends: Numbers = NO_NUMBERS  # by prompt, the last stretch it shares, or NOTHING
    parents: Numbers = NO_NUMBERS  # by stretch; parents before their children
    tokens: Numbers = NO_NUMBERS  # by stretch

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        pairs = zip(self.parents, self.tokens, strict=True)
        return tuple(Stretch(parent=parent, tokens=tokens) for parent, tokens in pairs)

    def found(self) -> list[int]:
        """By prompt, the last stretch that an earlier one has too, or NOTHING.

        It is what the prompt finds in a cache that never forgets, and so what a prompt
        that was not compared is taken to find.
        """
        seen = [False] * len(self.parents)
        found = []
        for end in self.ends:
            stretch = end
            while stretch != NOTHING and not seen[stretch]:
                seen[stretch] = True
                stretch = self.parents[stretch]
            found.append(stretch)
        return found


def stretches_together(
    sharings: Sequence[Sharing | None],
) -> tuple[tuple[Stretch, ...], list[int]]:
    """The stretches of several datasets as one tree, and where those of each begin in
    it."""
    stretches: list[Stretch] = []
    starts: list[int] = []
    for sharing in sharings:
        start = len(stretches)
        starts.append(start)
        if sharing is None:
            continue
        for stretch in sharing.stretches:
            parent = NOTHING if stretch.parent == NOTHING else start + stretch.parent
            stretches.append(Stretch(parent=parent, tokens=stretch.tokens))
    return tuple(stretches), starts


# -- prompts that were not compared ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rest:
    """Prompts of one length that were not compared, and the place of one like them."""

    tokens: int
    prompts: int
    like: int


def not_compared(counts: Mapping[int, int], lengths: Sequence[int]) -> Iterator[Rest]:
    """All prompts but those with these lengths, which were compared. Each of them is
    like the one that is as far up among those, by length."""
    rest = Counter(counts)
    rest.subtract(lengths)
    prompts = sum(rest.values())
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    before = 0
    for tokens in sorted(rest):
        count = rest[tokens]
        first = before * len(by_length) // prompts if prompts else 0
        end = (before + count) * len(by_length) // prompts if prompts else 0
        like = by_length[first : max(end, first + 1)]
        for number, place in enumerate(like):
            part = count * (number + 1) // len(like) - count * number // len(like)
            if part > 0:
                yield Rest(tokens, part, place)
        before += count


def served(known_tokens: int, tokens: int) -> int:
    """What vLLM takes from its cache: the last token of a prompt is computed."""
    most = max(0, min(known_tokens, tokens - 1))
    return most - most % BLOCK_SIZE


def found_by_rest(sharing: Sharing, counts: Mapping[int, int]) -> int:
    """Tokens that the prompts which were not compared are taken to find."""
    if len(sharing.lengths) == sum(counts.values()):
        return 0
    reach = depths(sharing.stretches)
    found = sharing.found()
    tokens = 0
    for rest in not_compared(counts, sharing.lengths):
        stretch = found[rest.like]
        if stretch != NOTHING:
            tokens += rest.prompts * served(reach[stretch], rest.tokens)
    return tokens
