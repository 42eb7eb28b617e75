"""What a dataset's prompts share, as vLLM's prefix cache would find it: figures, no arithmetic.

What prompts share is looked for in a sample where there are many. Every figure here is of the
prompts that were compared; `out_of_prompts` and `out_of_tokens` are of the whole dataset.
"""

from collections.abc import Sequence
from dataclasses import dataclass

BLOCK_SIZE = 16  # tokens; vLLM's own for most models
RUNNING = 256  # requests at once: vLLM's own max_num_seqs on most GPUs
FLAT = 0.99  # of all that can be found: a larger cache is not worth it


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """Prompts that go on alike after an early difference; figures estimated from a sample.

    Of two of them the text around the first difference, which comes after `same_before` characters.
    """

    prompts: int
    lost_tokens: int  # that would be found if the difference were gone
    position: int
    other_position: int
    text: str
    other_text: str
    same_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAt:
    """Tokens found in a KV cache of `kv_tokens`: as they are sent, and in the best order."""

    kv_tokens: int
    cached_tokens: int
    best_order_cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Likelihood requests: each context is read once for every choice that is scored after it."""

    requests: int
    contexts: int  # that differ
    single_token: bool  # whether every choice is one token

    @property
    def reads(self) -> float:
        return self.requests / self.contexts


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixReuse:
    """Prefix reuse by vLLM's rule: full blocks, chained, and never a prompt's last token.

    `cached_tokens` are those that need no prefill in a cache that never forgets, in the order in
    which they are sent: the file's, or a harness's own. In `capacities` up to RUNNING requests hold
    their prompts and answers of `output_tokens`, the first to come being the first to end.
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
        0  # that likelihood requests would find too, if they read the cache
    )
    block_size: int = BLOCK_SIZE
    capacities: tuple[CachedAt, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()
    output_tokens: int | None = (
        None  # None where it is not known: an answer of one token
    )
    scoring: Scoring | None = None  # of likelihood requests

    @property
    def is_partial(self) -> bool:
        """Whether only some prompts were compared: whoever prints a figure has to say so."""
        return self.prompts < self.out_of_prompts

    @property
    def hit_rate(self) -> float | None:
        return self.cached_tokens / self.tokens if self.tokens else None

    def scaled(self, tokens: int) -> int:
        """From the prompts that were compared to all of the dataset."""
        return (
            round(tokens * self.out_of_tokens / self.tokens)
            if self.is_partial
            else tokens
        )


def reuse_together(datasets: Sequence[PrefixReuse]) -> PrefixReuse:
    """Datasets one after the other, each by all its tokens; what they share is not looked for."""
    if len(datasets) == 1 and not datasets[0].is_partial:
        return datasets[0]
    tokens = sum(reuse.out_of_tokens for reuse in datasets)
    # Where it is known of each: between its least and where it is flat, and beyond.
    sharing = [reuse for reuse in datasets if reuse.cached_tokens]
    capacities = []
    for size in sorted({at.kv_tokens for reuse in sharing for at in reuse.capacities}):
        smaller = [
            [at for at in reuse.capacities if at.kv_tokens <= size] for reuse in sharing
        ]
        if all(smaller):
            pairs = [
                (reuse, sizes[-1])
                for reuse, sizes in zip(sharing, smaller, strict=True)
            ]
            as_sent = sum(reuse.scaled(at.cached_tokens) for reuse, at in pairs)
            best = sum(reuse.scaled(at.best_order_cached_tokens) for reuse, at in pairs)
            capacities.append(
                CachedAt(
                    kv_tokens=size, cached_tokens=as_sent, best_order_cached_tokens=best
                )
            )
    return PrefixReuse(
        prompts=sum(reuse.prompts for reuse in datasets),
        tokens=tokens,
        out_of_prompts=sum(reuse.out_of_prompts for reuse in datasets),
        out_of_tokens=tokens,
        common_tokens=datasets[0].common_tokens if len(datasets) == 1 else None,
        cached_tokens=sum(reuse.scaled(reuse.cached_tokens) for reuse in datasets),
        unread_tokens=sum(reuse.scaled(reuse.unread_tokens) for reuse in datasets),
        block_size=max((reuse.block_size for reuse in datasets), default=BLOCK_SIZE),
        capacities=tuple(capacities),
    )
