"""All figures about what the prompts of a dataset share."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from chunkscope.lengths.kv_curve import Load, OrderedPrompts, curve
from chunkscope.lengths.prefixes import PrefixTree, PromptBlocks, ideal_cached_tokens
from chunkscope.lengths.reuse import AS_THEY_ARE, CachedAt, HowSent, PrefixReuse


def measure(
    prompts: PromptBlocks,
    *,
    positions: Sequence[int],
    common_tokens: int,
    sent: HowSent = AS_THEY_ARE,
) -> PrefixReuse:
    """`positions` are the rows in the file, by prompt."""
    tree = PrefixTree(prompts)
    orders = [np.arange(len(prompts.full)), tree.depth_first()]
    if sent.longest_first:
        orders.append(tree.longest_first())
    paths = tree.shared_paths()
    orderings = [OrderedPrompts.of(prompts, paths, order) for order in orders]
    in_file, best = orderings[:2]
    all_read = replace(prompts, reads=np.ones_like(prompts.reads))
    found_if_read = int(ideal_cached_tokens(all_read).sum())
    load = Load(output_tokens=max(1, sent.output_tokens or 1))
    return PrefixReuse(
        prompts=len(prompts.full),
        tokens=int(prompts.tokens.sum()),
        common_tokens=common_tokens,
        cached_tokens=in_file.ideal_tokens,
        best_order_cached_tokens=best.ideal_tokens,
        sent_order_cached_tokens=orderings[2].ideal_tokens if sent.longest_first else None,
        working_set_tokens=prompts.distinct_tokens,
        unread_tokens=found_if_read - in_file.ideal_tokens,
        block_size=prompts.block_size,
        groups=tree.groups(positions),
        capacities=tuple(_capacities(orderings, load)),
        running=load.running,
        output_tokens=sent.output_tokens,
    )


def _capacities(orderings: Sequence[OrderedPrompts], load: Load) -> Iterator[CachedAt]:
    for capacity, (in_file, best, *as_sent) in curve(orderings, load):
        yield CachedAt(
            kv_tokens=capacity,
            cached_tokens=in_file,
            best_order_cached_tokens=best,
            sent_order_cached_tokens=as_sent[0] if as_sent else None,
        )
