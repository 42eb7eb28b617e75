"""What all datasets share, one sent after the other, from what each keeps of its beginnings."""

import base64
import struct
from collections.abc import Iterator, Sequence
from itertools import takewhile

from chunkscope.errors import InputError
from chunkscope.prefixes.reuse import CachedAt, PrefixReuse


def reuse_together(datasets: Sequence[PrefixReuse]) -> PrefixReuse:
    """The sums, and what a dataset finds of those before it: at least so much, in full blocks.

    Likelihood requests find nothing, but others find what they left.
    """
    if len(datasets) == 1:
        return datasets[0]
    known: set[int] = set()
    across = also_there = 0
    for reuse in datasets:
        mine = {*_hashes(reuse.beginnings)}
        again = len(mine & known) * reuse.block_size
        also_there += again
        across += 0 if reuse.unread_tokens else again
        known |= mine
    return PrefixReuse(
        prompts=sum(reuse.prompts for reuse in datasets),
        tokens=sum(reuse.tokens for reuse in datasets),
        common_tokens=_common_tokens(datasets),
        cached_tokens=across + sum(reuse.cached_tokens for reuse in datasets),
        best_order_cached_tokens=across + sum(r.best_order_cached_tokens for r in datasets),
        working_set_tokens=sum(reuse.working_set_tokens for reuse in datasets) - also_there,
        unread_tokens=sum(reuse.unread_tokens for reuse in datasets),
        capacities=tuple(_capacities(datasets, across)),
        running=max((reuse.running or 0 for reuse in datasets), default=0) or None,
    )


def _hashes(beginnings: str) -> list[int]:
    """As beginnings.py packed them.

    >>> _hashes("BQAAAAAAAAA=")
    [5]
    """
    try:
        return [value for (value,) in struct.iter_unpack("<Q", base64.b64decode(beginnings))]
    except (ValueError, struct.error):
        raise InputError(
            "the profile is damaged: what prompts begin with cannot be read",
            hint="make it again: `chunkscope analyze data/`",
        ) from None


def heads(reuse: PrefixReuse) -> list[int]:
    """The hashes of the blocks that all prompts of a dataset begin with."""
    return _hashes(reuse.beginnings)[: reuse.common_tokens // reuse.block_size]


def _common_tokens(datasets: Sequence[PrefixReuse]) -> int:
    """What all prompts of all datasets begin with, in full blocks."""
    all_heads = map(heads, datasets)
    same = takewhile(lambda blocks: len({*blocks}) == 1, zip(*all_heads, strict=False))
    return sum(1 for _ in same) * min((reuse.block_size for reuse in datasets), default=0)


def _capacities(datasets: Sequence[PrefixReuse], across: int) -> Iterator[CachedAt]:
    """Where it is known of each: between its least and where it is flat, and beyond."""
    if any(reuse.cached_tokens and not reuse.capacities for reuse in datasets):
        return
    for size in sorted({at.kv_tokens for reuse in datasets for at in reuse.capacities}):
        found = [_at(reuse, size) for reuse in datasets]
        if all(at is not None for at in found):
            known = [at for at in found if at is not None]
            yield CachedAt(
                kv_tokens=size,
                cached_tokens=across + sum(at.cached_tokens for at in known),
                best_order_cached_tokens=across + sum(_best(at) for at in known),
            )


def _at(reuse: PrefixReuse, size: int) -> CachedAt | None:
    if not reuse.cached_tokens:
        return CachedAt(kv_tokens=size, cached_tokens=0, best_order_cached_tokens=0)
    return next((at for at in reversed(reuse.capacities) if at.kv_tokens <= size), None)


def _best(at: CachedAt) -> int:
    return at.cached_tokens if at.best_order_cached_tokens is None else at.best_order_cached_tokens
