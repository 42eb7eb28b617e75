"""What a dataset's prompts share, as vLLM's prefix cache would find it: figures, no arithmetic."""

from dataclasses import dataclass
from typing import Any

from chunkscope.artefacts.schema import Count, plain

BLOCK_SIZE = 16  # tokens; vLLM's own for most models
FLAT = 0.99  # of all that can be found: a larger cache is not worth it


@dataclass(frozen=True, slots=True, kw_only=True)
class HowSent:
    """In which order, and how long the answers are on average; None where it is not known."""

    longest_first: bool = False  # as lm-eval does
    output_tokens: int | None = None


AS_THEY_ARE = HowSent()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixGroup:
    """Prompts that begin with the same full blocks; `position` is the row of the first of them."""

    prompts: Count
    shared_tokens: Count
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """Prompts that go on alike after an early difference; figures estimated from a sample.

    Of two of them the text around the first difference, which comes after `same_before` characters.
    """

    prompts: Count
    lost_tokens: Count  # that would be found if the difference were gone
    position: int
    other_position: int
    text: str
    other_text: str
    same_before: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAt:
    """Tokens found in a KV cache of `kv_tokens`: in file order, and where known in other orders."""

    kv_tokens: Count
    cached_tokens: Count
    best_order_cached_tokens: Count | None = None
    sent_order_cached_tokens: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Likelihood requests: each context is read once for every choice that is scored after it."""

    requests: Count
    contexts: Count  # that differ
    tokens: Count
    repeated_tokens: Count  # of requests whose context was read before
    single_token: bool  # whether every choice is one token

    @property
    def reads(self) -> float:
        return self.requests / self.contexts


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixReuse:
    """Prefix reuse by vLLM's rule: full blocks, chained, and never a prompt's last token.

    `cached_tokens` are those that need no prefill in a cache that never forgets, in file order;
    `best_order_cached_tokens` when prompts that begin alike are sent one after the other;
    `sent_order_cached_tokens` in a harness's order where that is another than the file's.
    `working_set_tokens` is what never forgetting takes. In `capacities` up to `running` requests
    hold their prompts and answers of `output_tokens`, the first to come being the first to end;
    in profiles of old, where `running` is None, they ran one by one.
    """

    prompts: Count
    tokens: Count
    common_tokens: Count  # that every prompt begins with
    cached_tokens: Count
    best_order_cached_tokens: Count
    working_set_tokens: Count
    unread_tokens: Count = 0  # that likelihood requests would find too, if they read the cache
    block_size: Count = BLOCK_SIZE
    groups: tuple[PrefixGroup, ...] = ()
    capacities: tuple[CachedAt, ...] = ()
    sent_order_cached_tokens: Count | None = None
    near_misses: tuple[NearMiss, ...] = ()
    running: Count | None = None
    output_tokens: Count | None = None  # None where it is not known: an answer of one token
    last_half_tokens: Count | None = None  # of a trace: by then the cache is warm
    last_half_cached_tokens: Count | None = None
    beginnings: str = ""  # hashes of the blocks that most prompts have (beginnings.py)
    scoring: Scoring | None = None  # of likelihood requests

    def to_json(self) -> dict[str, Any]:
        return said(plain(self))

    @classmethod
    def of_json(cls, written: dict[str, Any]) -> "PrefixReuse":
        """From what was written of it, unchecked."""
        groups = tuple(PrefixGroup(**group) for group in written["groups"])
        capacities = tuple(CachedAt(**at) for at in written["capacities"])
        misses = tuple(NearMiss(**miss) for miss in written.get("near_misses", ()))
        scoring = Scoring(**written["scoring"]) if "scoring" in written else None
        made = {"groups": groups, "capacities": capacities, "near_misses": misses}
        return cls(**written | made | {"scoring": scoring})

    @property
    def hit_rate(self) -> float | None:
        return self.cached_tokens / self.tokens if self.tokens else None

    @property
    def last_half_hit_rate(self) -> float | None:
        found = self.last_half_cached_tokens
        return (
            found / self.last_half_tokens if found is not None and self.last_half_tokens else None
        )

    @property
    def common_block_tokens(self) -> int:
        """What of the beginning that all share lies in full blocks: the rest is lost."""
        return self.common_tokens // self.block_size * self.block_size


_ALWAYS_WRITTEN = {
    *("prompts", "tokens", "common_tokens", "cached_tokens", "best_order_cached_tokens"),
    *("working_set_tokens", "unread_tokens", "block_size", "groups", "capacities"),
}


def said(written: dict[str, Any]) -> dict[str, Any]:
    """What is written of it, without what came later and says nothing.

    A profile of an older version, read back, so gives the same bytes.
    """
    kept = {
        name: value
        for name, value in written.items()
        if name in _ALWAYS_WRITTEN or value not in (None, "", [])
    }
    sizes = [{n: v for n, v in at.items() if v is not None} for at in written["capacities"]]
    return kept | {"capacities": sizes}
