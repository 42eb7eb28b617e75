"""What a dataset keeps of its beginnings, so that others can be compared with it later.

Datasets come out of the cache, or from profiles of other machines, without their tokens. The
chained hashes of the blocks that most prompts have are kept: enough to see a system prompt or the
head of a chat template that several datasets begin with.
"""

import base64

import numpy as np

from chunkscope.prefixes.prefixes import Hashes, PromptBlocks

MOST_BLOCKS = 512  # of a dataset: 8,192 tokens


def beginnings_of(prompts: PromptBlocks, hashes: Hashes) -> Hashes:
    """The hashes of the blocks that several prompts have; those of most prompts first.

    Of those that as many have the first of a prompt comes first, so that none is without those
    before it. The block with which the first prompt that has it ends is left out: it is computed.
    """
    if not len(prompts.blocks):
        return hashes[:0]
    members = np.bincount(prompts.blocks, minlength=prompts.distinct)
    rows = prompts.rows
    starts = np.cumsum(prompts.full) - prompts.full
    place = np.empty(prompts.distinct, np.int64)
    place[prompts.blocks[::-1]] = np.arange(len(prompts.blocks))[::-1]  # where each occurs first
    first = rows[place]
    depths = place - starts[first] + 1
    wanted = (members > 1) | (len(prompts.full) == 1)
    wanted &= depths * prompts.block_size < prompts.tokens[first]
    chosen = np.flatnonzero(wanted)
    order = np.lexsort((depths[chosen], -members[chosen]))[:MOST_BLOCKS]
    kept: Hashes = hashes[chosen[order]]
    return kept


def pack_beginnings(hashes: Hashes) -> str:
    return base64.b64encode(hashes.astype("<u8").tobytes()).decode()
