"""Prompts -> blocks -> the tree: from token ids, or from the blocks that a trace names."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chunkscope.prefixes.reuse import BLOCK_SIZE
from chunkscope.prefixes.tree import Ints, PromptTree, tree_of_blocks

ID_BYTES = 4  # of a token id, as the tokenizers give it
_BLOCK_BYTES = BLOCK_SIZE * ID_BYTES
_USUAL_SIZES = (512, BLOCK_SIZE)  # of a trace's blocks: Mooncake's, and vLLM's own
_FACTORS = np.random.default_rng(7).integers(1 << 63, size=BLOCK_SIZE, dtype=np.uint64) * 2 + 1

Hashes = NDArray[np.uint64]


def tree_of_prompts(prompts: Sequence[bytes], reads: Sequence[bool]) -> PromptTree:
    """The tree of prompts given as token ids; of each full block 64 bits are compared.

    A hash is the sum of what a block and its place are mixed into and the hash before it: the sums
    of all prompts are made at once.
    """
    tokens = np.fromiter(map(len, prompts), np.int64, len(prompts)) // ID_BYTES
    full = tokens // BLOCK_SIZE
    sizes = (full * _BLOCK_BYTES).tolist()
    whole = b"".join([prompt[:size] for prompt, size in zip(prompts, sizes, strict=True)])
    ids = np.frombuffer(whole, "<u4").reshape(-1, BLOCK_SIZE)
    starts = np.cumsum(full) - full
    places = np.arange(len(ids)) - np.repeat(starts, full)
    sums = ids.astype(np.uint64) @ _FACTORS
    running = np.cumsum(_mixed(sums + _mixed(places.astype(np.uint64))), dtype=np.uint64)
    before = np.concatenate((np.zeros(1, np.uint64), running))[starts]
    _, blocks = np.unique(running - np.repeat(before, full), return_inverse=True)
    return tree_of_blocks(blocks, full, tokens, reads)


def _mixed(values: Hashes) -> Hashes:
    """Each bit of the result depends on all of a value (splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def block_size_of(tokens: Ints, counts: Ints) -> int | None:
    """The block size with which each prompt has as many blocks as it names; None if none does.

    >>> block_size_of(np.array([6758, 2290]), np.array([14, 5]))
    512
    """
    if not counts.any():
        return None
    tokens, counts = tokens[counts > 0], counts[counts > 0]
    several = counts > 1
    least = int((-(-tokens // counts)).max())
    most = int((-(-tokens[several] // (counts[several] - 1)) - 1).min(initial=np.iinfo(int).max))
    powers = (1 << power for power in range(40))
    sizes = (*_USUAL_SIZES, *powers, least)
    return next((size for size in sizes if 0 < least <= size <= most), None)


def tree_of_trace(tokens: Ints, counts: Ints, ids: Ints) -> PromptTree | None:
    """Prompts by their tokens, how many blocks each names, and all of those, one after the other.

    How large a block is follows from the lengths. None where the blocks do not fit the lengths, or
    where a number does not stand for all before it, too.
    """
    size = block_size_of(tokens, counts)
    if size is None:
        return None
    # A shorter block at the end is another than a whole one of the same number.
    sizes = np.full(len(ids), size)
    sizes[(np.cumsum(counts) - 1)[counts > 0]] = (tokens - (counts - 1) * size)[counts > 0]
    _, numbers = np.unique(ids, return_inverse=True)
    _, blocks = np.unique(numbers * (size + 1) + sizes, return_inverse=True)
    before = np.concatenate(([-1], blocks))[:-1]
    before[(np.cumsum(counts) - counts)[counts > 0]] = -1
    parents = np.empty(int(blocks.max(initial=-1)) + 1, np.int64)
    parents[blocks] = before
    if (parents[blocks] != before).any():
        return None
    return tree_of_blocks(blocks, counts, tokens, [True] * len(counts), size)
