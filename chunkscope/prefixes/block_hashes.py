"""Prompts on their way through `analyze`, made into hashes of their blocks.

Of each full block 64 bits are kept, which stand for its tokens and all before it. Memory ends at
`MOST_BLOCKS`: what comes after is left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from chunkscope.lengths.trace_export import TraceRows
from chunkscope.prefixes.beginnings import beginnings_of, pack_beginnings
from chunkscope.prefixes.measured_reuse import measure, nothing_shared
from chunkscope.prefixes.prefixes import Hashes, Ints, PrefixTree, PromptBlocks, stretched
from chunkscope.prefixes.reuse import AS_THEY_ARE, BLOCK_SIZE, HowSent, PrefixReuse
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prefixes.stretches import MOST_PROMPTS as MOST_KEPT
from chunkscope.prefixes.stretches import sharing_of
from chunkscope.tokenizers.reference import ID_BYTES

MOST_BLOCKS = 3 << 20  # 50 million tokens
MOST_PROMPTS = 1 << 18

_BLOCK_BYTES = BLOCK_SIZE * ID_BYTES
_FEW_BYTES = 1 << 16  # of ids: a small dataset that shares nothing is never hashed
_SPECIAL = b"\xff" * ID_BYTES  # stands for a token that every prompt begins with
_FACTORS = np.random.default_rng(7).integers(1 << 63, size=BLOCK_SIZE, dtype=np.uint64) * 2 + 1


def hash_blocks(rows: Sequence[bytes]) -> tuple[Hashes, Ints]:
    """The hashes of all full blocks of all rows, and how many blocks each row has.

    A hash is the sum of what a block and its place are mixed into and the hash before it: sums of
    a whole batch are made at once.
    """
    sizes = np.fromiter(map(len, rows), np.int64, len(rows)) // ID_BYTES
    full = sizes // BLOCK_SIZE
    starts = np.cumsum(full) - full
    within = np.arange(int(full.sum())) - np.repeat(starts, full)
    first = np.repeat(np.cumsum(sizes) - sizes, full) + within * BLOCK_SIZE
    ids = np.frombuffer(b"".join(rows), "<u4")
    sums = ids[first[:, None] + np.arange(BLOCK_SIZE)].astype(np.uint64) @ _FACTORS
    running = np.cumsum(mixed(sums + mixed(within.astype(np.uint64))), dtype=np.uint64)
    before = np.concatenate((np.zeros(1, np.uint64), running))[starts]
    return running - np.repeat(before, full), full


def mixed(values: Hashes) -> Hashes:
    """Each bit of the result depends on all of a value (splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class BlockHashes:
    """The prompts of one dataset, as they come."""

    def __init__(self, trace: TraceRows | None = None) -> None:
        self._trace = trace  # gets every prompt
        self._hashes: list[Hashes] = []
        self._full: list[int] = []  # by prompt: its blocks
        self._tokens: list[int] = []
        self._reads: list[bool] = []
        self._positions: list[int] = []
        self._blocks = 0
        self._unhashed: list[bytes] = []  # the last ones
        self._unhashed_bytes = 0
        self._firsts: set[bytes] = set()  # the first blocks of all prompts
        self._any_alike = False  # two prompts have the same one
        self._common: bytes | None = None
        self._tree: PrefixTree | None = None

    @property
    def is_full(self) -> bool:
        return self._blocks >= MOST_BLOCKS or len(self._tokens) >= MOST_PROMPTS

    def add(
        self,
        positions: Sequence[int],
        ids: Sequence[bytes],
        *,
        special_tokens: int = 0,
        reads: bool = True,
        most_tokens: int | None = None,
    ) -> None:
        """Prompts by their ids, alike in what else is said.

        So many special tokens go before each; of all that, the last `most_tokens` were sent.
        """
        if (self.is_full and self._trace is None) or not ids:
            return
        prompts = [_SPECIAL * special_tokens + own for own in ids] if special_tokens else list(ids)
        if most_tokens is not None:
            prompts = [prompt[-most_tokens * ID_BYTES :] for prompt in prompts]
        if self._trace is not None:
            for position, prompt in zip(positions, prompts, strict=True):
                self._trace.prompt(position, prompt)
            if self.is_full:
                return
        for prompt in prompts:
            self._narrow(prompt)
            first = prompt[:_BLOCK_BYTES]
            if len(first) == _BLOCK_BYTES:
                self._any_alike = self._any_alike or first in self._firsts
                self._firsts.add(first)
        tokens = [len(prompt) // ID_BYTES for prompt in prompts]
        self._tokens += tokens
        self._blocks += sum(length // BLOCK_SIZE for length in tokens)
        self._reads += [reads] * len(prompts)
        self._positions += positions
        self._unhashed += prompts
        self._unhashed_bytes += sum(map(len, prompts))
        if self._unhashed_bytes > _FEW_BYTES:
            self._hash()

    def _hash(self) -> None:
        """Hash the blocks of the prompts that wait for it."""
        hashes, full = hash_blocks(self._unhashed)
        self._hashes.append(hashes)
        self._full += full.tolist()
        self._unhashed, self._unhashed_bytes = [], 0

    def _narrow(self, prompt: bytes) -> None:
        """Keep of the tokens that all prompts begin with those that this one has too."""
        if self._common is None:
            self._common = prompt
        elif not prompt.startswith(self._common):
            size = min(len(self._common), len(prompt))
            mine = np.frombuffer(prompt[:size], "<u4")
            others = np.frombuffer(self._common[:size], "<u4")
            differs = np.flatnonzero(mine != others)
            self._common = prompt[: int(differs[0]) * ID_BYTES if len(differs) else size]

    def measured(
        self, sent: HowSent = AS_THEY_ARE
    ) -> tuple[PrefixReuse, Sharing] | tuple[None, None]:
        """What they share, in figures and prompt for prompt; nothing if there are no prompts."""
        if not self._tokens:
            return None, None
        common = len(self._common or b"") // ID_BYTES
        if not self._any_alike and 1 < len(self._tokens) <= MOST_KEPT:
            return nothing_shared(self._tokens, common_tokens=common, sent=sent)
        self._hash()
        prompts, hashes = self._compared()
        self._tree = tree = PrefixTree(prompts)
        reuse = measure(prompts, tree, positions=self._positions, common_tokens=common, sent=sent)
        reuse = replace(reuse, beginnings=pack_beginnings(beginnings_of(prompts, hashes)))
        sharing = sharing_of(prompts, tree)
        return reuse, sharing.longest_first() if sent.longest_first else sharing

    def best_order(self) -> tuple[int, ...]:
        """The positions, those that begin alike one after the other; known once it was measured."""
        if self._tree is None:  # nothing is shared; those without a full block come first
            pairs = sorted(zip(self._tokens, self._positions, strict=True), key=_has_block)
            return tuple(position for _, position in pairs)
        return tuple(np.array(self._positions)[self._tree.depth_first()].tolist())

    def _compared(self) -> tuple[PromptBlocks, Hashes]:
        """The prompts by numbers of blocks, and the hash of each number."""
        full = np.array(self._full)
        all_hashes = np.concatenate(self._hashes)
        self._hashes.clear()
        starts = np.cumsum(full) - full
        listed = _to_list(full, lambda rows, place: all_hashes[starts[rows] + place])
        hashes, blocks = np.unique(all_hashes[stretched(starts, listed)], return_inverse=True)
        prompts = PromptBlocks(
            tokens=np.array(self._tokens),
            full=listed,
            reads=np.array(self._reads),
            blocks=blocks,
            left_out=full - listed,
        )
        return prompts, hashes


def _has_block(prompt: tuple[int, int]) -> bool:
    return prompt[0] >= BLOCK_SIZE


def _to_list(full: Ints, hash_at: Callable[[Ints, int], Hashes]) -> Ints:
    """By prompt, how many of its blocks have to be looked at: all behind them only it has.

    A block that no other prompt has is followed by such blocks only. To find one, the 1st, 2nd,
    4th, 8th and so on are looked at.
    """
    listed = full.copy()
    rows, place = np.arange(len(full)), 0
    while len(full) > 1 and len(rows := rows[full[rows] > place]):
        _, which, members = np.unique(hash_at(rows, place), return_inverse=True, return_counts=True)
        is_shared = members[which] > 1
        listed[rows[~is_shared]] = place + 1
        rows, place = rows[is_shared], 2 * place + 1
    return listed
