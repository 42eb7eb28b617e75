"""What the prompts of a dataset share, and the order in which they are sent: values, no arithmetic.

Made by `analyze` (tree.py), kept in the profile; the simulator's requests and the prompts of
`verify` come from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers

MOST_PROMPTS = 20_000  # that are kept one by one
RUN = 50  # prompts that stay together in a sample: neighbours often share what others do not
NOTHING = (
    -1
)  # the stretch of a prompt that shares nothing, and before one that begins a prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Tokens that several prompts have, after all of the stretch before it (its `parent`)."""

    parent: int
    tokens: int


def depths(stretches: Sequence[Stretch]) -> list[int]:
    """By stretch, how many tokens of a prompt there are up to its end.

    >>> depths([Stretch(parent=-1, tokens=32), Stretch(parent=0, tokens=16)])
    [32, 48]
    """
    ends: list[int] = []
    for stretch in stretches:
        ends.append(
            (ends[stretch.parent] if stretch.parent >= 0 else 0) + stretch.tokens
        )
    return ends


class PathPart(NamedTuple):
    """Blocks `start` to `end` of a prompt, which all prompts of this stretch have."""

    stretch: int
    start: int
    end: int


Path = tuple[PathPart, ...]


def block_paths(stretches: Sequence[Stretch], block_size: int) -> list[Path]:
    """By stretch, the full blocks that a prompt which ends in it begins with.

    A block belongs to the stretch of its last token: with that, prompts share all before it.
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


def read_together(requests: Sequence[Any], stretches: Sequence[Stretch]) -> float:
    """The share of the context of decoding requests that the one beside them reads, too.

    Requests run beside those that were sent just before and after them.
    """
    if not stretches:
        return 0.0
    deep, shared = [*depths(stretches), 0], 0  # NOTHING is the last of them
    for one, other in pairwise(request.stretch for request in requests):
        while one != other:  # a parent comes before its children
            one, other = min(one, other), stretches[max(one, other)].parent
        shared += deep[one]
    context: float = sum(r.prompt_tokens + r.output_tokens / 2 for r in requests)
    return min(1.0, shared / context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The prompts of a dataset in the order in which they are sent, and what each begins with.

    Of a dataset with very many prompts only a part is kept: it has more `rows` than these.
    """

    lengths: Numbers  # by prompt, in tokens
    ends: Numbers  # by prompt, the last stretch that it shares with others, or NOTHING
    parents: Numbers = NO_NUMBERS  # by stretch; parents before their children
    tokens: Numbers = NO_NUMBERS  # by stretch

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        pairs = zip(self.parents, self.tokens, strict=True)
        return tuple(Stretch(parent=parent, tokens=tokens) for parent, tokens in pairs)


def stretches_together(
    sharings: Sequence[Sharing | None],
) -> tuple[tuple[Stretch, ...], list[int]]:
    """The stretches of several datasets as one tree, and where those of each begin in it."""
    stretches: list[Stretch] = []
    starts: list[int] = []
    for sharing in sharings:
        starts.append(start := len(stretches))
        for stretch in sharing.stretches if sharing else ():
            parent = NOTHING if stretch.parent == NOTHING else start + stretch.parent
            stretches.append(Stretch(parent=parent, tokens=stretch.tokens))
    return tuple(stretches), starts
