"""All figures about what the prompts of a dataset share."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chunkscope.prefixes.kv_curve import Load, OrderedPrompts, curve
from chunkscope.prefixes.prefixes import PrefixTree, PromptBlocks, ideal_cached_tokens
from chunkscope.prefixes.reuse import AS_THEY_ARE, BLOCK_SIZE, HowSent, PrefixReuse
from chunkscope.prefixes.sharing import NOTHING, Sharing


def measure(
    prompts: PromptBlocks,
    tree: PrefixTree,
    *,
    positions: Sequence[int],
    common_tokens: int,
    sent: HowSent = AS_THEY_ARE,
) -> PrefixReuse:
    """`positions` are the rows in the file, by prompt; `tree` is theirs."""
    paths = tree.shared_paths()
    in_file = OrderedPrompts.of(prompts, paths)
    best = in_file.in_order(tree.depth_first())
    as_sent = in_file.in_order(tree.longest_first()) if sent.longest_first else None
    found_if_read = in_file.ideal_tokens
    if not prompts.reads.all():
        all_read = replace(prompts, reads=np.ones_like(prompts.reads))
        found_if_read = int(ideal_cached_tokens(all_read).sum())
    load = Load(output_tokens=max(1, sent.output_tokens or 1))
    return PrefixReuse(
        prompts=len(prompts.full),
        tokens=int(prompts.tokens.sum()),
        common_tokens=common_tokens,
        cached_tokens=in_file.ideal_tokens,
        best_order_cached_tokens=best.ideal_tokens,
        sent_order_cached_tokens=as_sent.ideal_tokens if as_sent else None,
        working_set_tokens=prompts.distinct_tokens,
        unread_tokens=found_if_read - in_file.ideal_tokens,
        block_size=prompts.block_size,
        groups=tree.groups(positions),
        capacities=tuple(curve(in_file, best, as_sent, load)),
        running=load.running,
        output_tokens=sent.output_tokens,
    )


def nothing_shared(
    tokens: Sequence[int], *, common_tokens: int, sent: HowSent = AS_THEY_ARE
) -> tuple[PrefixReuse, Sharing]:
    """The same of prompts of which no two have the same first block, without looking at others."""
    reuse = PrefixReuse(
        prompts=len(tokens),
        tokens=sum(tokens),
        common_tokens=common_tokens,
        cached_tokens=0,
        best_order_cached_tokens=0,
        sent_order_cached_tokens=0 if sent.longest_first else None,
        working_set_tokens=sum(length // BLOCK_SIZE * BLOCK_SIZE for length in tokens),
        unread_tokens=0,
        groups=(),
        capacities=(),
        running=Load().running,
        output_tokens=sent.output_tokens,
    )
    sharing = Sharing(lengths=tuple(tokens), ends=(NOTHING,) * len(tokens), stretches=())
    return reuse, sharing.longest_first() if sent.longest_first else sharing
