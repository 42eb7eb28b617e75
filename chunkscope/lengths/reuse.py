"""What a dataset's prompts share, as vLLM's prefix cache would find it: figures, no arithmetic."""

from dataclasses import dataclass
from typing import Any

from chunkscope.artefacts.schema import Count

BLOCK_SIZE = 16  # tokens; vLLM's own for most models


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixGroup:
    """Prompts that begin with the same full blocks; `position` is the row of the first of them."""

    prompts: Count
    shared_tokens: Count
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAt:
    """Tokens found in a KV cache of `kv_tokens`, one prompt after the other in file order."""

    kv_tokens: Count
    cached_tokens: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixReuse:
    """Prefix reuse by vLLM's rule: full blocks, chained, and never a prompt's last token.

    `cached_tokens` are those that need no prefill in a cache that never forgets, in file order;
    `best_order_cached_tokens` when prompts that begin alike are sent one after the other, for
    which a cache of two prompts is enough. `working_set_tokens` is what never forgetting takes.
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

    @classmethod
    def of_json(cls, written: dict[str, Any]) -> "PrefixReuse":
        """From what was written of it, unchecked."""
        groups = tuple(PrefixGroup(**group) for group in written["groups"])
        capacities = tuple(CachedAt(**at) for at in written["capacities"])
        return cls(**written | {"groups": groups, "capacities": capacities})

    @property
    def hit_rate(self) -> float | None:
        return self.cached_tokens / self.tokens if self.tokens else None

    @property
    def common_block_tokens(self) -> int:
        """What of the beginning that all share lies in full blocks: the rest is lost."""
        return self.common_tokens // self.block_size * self.block_size
