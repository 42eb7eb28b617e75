"""What a dataset's prompts share, as vLLM's prefix cache would find it: figures, no
arithmetic.

Where there are very many prompts, the first ones are compared. Every figure here is of
these; `out_of_prompts` and `out_of_tokens` are of the whole dataset.
"""

from collections.abc import Sequence
from dataclasses import dataclass

BLOCK_SIZE = 16  # tokens; vLLM's own for most models


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """Prompts that go on alike after an early difference; figures estimated from a
    sample.

    Of two of them the text around the first difference, which comes after `same_before`
    characters.
    """

    prompts: int
    lost_tokens: int  # that would be found if the difference were gone
    position: int
    other_position: int
    text: str
    other_text: str
    same_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Likelihood requests: each context is read once for every choice that is scored
    after it."""

    requests: int
    contexts: int  # that differ
    single_token: bool  # whether every choice is one token

    @property
    def reads(self) -> float:
        return self.requests / self.contexts


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixReuse:
    """Prefix reuse by vLLM's rule: full blocks, chained, and never a prompt's last
    token.

    `cached_tokens` are those that need no prefill in a cache that never forgets, in the
    order in which they are sent: the file's, or a harness's own.
    """

    prompts: int  # that were compared
    tokens: int
    out_of_prompts: int
    out_of_tokens: int
    common_tokens: (
        int | None
    )  # that every prompt begins with; None: of several datasets
    cached_tokens: int = 0
    unread_tokens: int = (
        0  # that likelihood requests would find, if they read the cache
    )
    # That prompts which were not compared are taken to find, if they read the cache.
    rest_found_tokens: int = 0
    block_size: int = BLOCK_SIZE
    near_misses: tuple[NearMiss, ...] = ()
    scoring: Scoring | None = None  # of likelihood requests

    @property
    def is_partial(self) -> bool:
        """Whether only some prompts were compared: whoever prints a figure has to say
        so."""
        return self.prompts < self.out_of_prompts

    @property
    def hit_rate(self) -> float | None:
        """Of the whole dataset."""
        if not self.out_of_tokens:
            return None
        return self.scaled(self.cached_tokens) / self.out_of_tokens

    def scaled(self, tokens: int) -> int:
        """Of cached or unread tokens, those of the whole dataset."""
        found = self.cached_tokens + self.unread_tokens
        if not found:
            return tokens
        return tokens + round(self.rest_found_tokens * tokens / found)


def reuse_together(datasets: Sequence[PrefixReuse]) -> PrefixReuse:
    """Datasets one after the other, each by all its tokens; what they share is not
    looked for."""
    if len(datasets) == 1 and not datasets[0].is_partial:
        return datasets[0]
    tokens = sum(reuse.out_of_tokens for reuse in datasets)
    return PrefixReuse(
        prompts=sum(reuse.prompts for reuse in datasets),
        tokens=tokens,
        out_of_prompts=sum(reuse.out_of_prompts for reuse in datasets),
        out_of_tokens=tokens,
        common_tokens=datasets[0].common_tokens if len(datasets) == 1 else None,
        cached_tokens=sum(reuse.scaled(reuse.cached_tokens) for reuse in datasets),
        unread_tokens=sum(reuse.scaled(reuse.unread_tokens) for reuse in datasets),
        block_size=max((reuse.block_size for reuse in datasets), default=BLOCK_SIZE),
    )
