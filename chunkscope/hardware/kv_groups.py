"""The layers of a model in groups, as vLLM gives them KV cache.

Layers that keep the same part of a request (all of it, a window, a state) share a block table. All
groups take blocks from one pool: a block is a page in each layer of a group, so pages are made one
size, by longer blocks or by padding. Read in vLLM 0.24 (`v1/core/kv_cache_utils.py`) and compared
with the code of 0.28 by tests/hardware/test_kv_groups.py.
"""

from dataclasses import dataclass

from chunkscope.models.layers import KvKind
from chunkscope.models.shape import BLOCK_TOKENS, ModelShape

# Where groups differ by less, all get as many layers as the largest has.
NEARLY_EQUAL = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """Layers with one block table. A block holds `block_tokens` tokens in each of them."""

    kind: KvKind
    layers: int
    block_tokens: int
    window: int | None = None
    state_blocks: int = 1  # of one request, however long: two where states are cached

    def blocks_of(self, tokens: int, step: int = 1) -> int:
        """The most that a request of so many tokens holds, if a step computes `step` of them.

        What leaves the window is given back before a step takes blocks for its own tokens.
        """
        reserved = self.reserved(tokens, step)
        return min(self._whole(tokens), reserved) if self.window else reserved

    def reserved(self, tokens: int, step: int) -> int:
        """The same as vLLM reckons it at start-up and when it lets a request in.

        A window that does not begin with a block touches one more.
        """
        if self.kind is KvKind.STATE:
            return self.state_blocks
        if self.window is None:
            return self._whole(tokens)
        return self._whole(min(tokens, self.window - 1 + step)) + 1

    def _whole(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """All groups, and what a block of any of them takes: a page in each layer of the largest."""

    groups: tuple[KvGroup, ...]
    block_bytes: int
    in_flight: int = 1  # steps at once: a window keeps what all of them read

    @property
    def block_tokens(self) -> int:
        """Of the group that keeps all tokens, where there is one."""
        return self.groups[0].block_tokens

    def blocks(self, kv_bytes: int) -> int:
        """How many there are, vLLM's null block included."""
        return max(0, kv_bytes // self.block_bytes)

    def blocks_of(self, tokens: int, step: int = 1) -> int:
        return sum(group.blocks_of(tokens, step) for group in self.groups)

    def reserved(self, tokens: int, step: int) -> int:
        return sum(
            group.reserved(tokens, step * self.in_flight) for group in self.groups
        )

    def tokens(self, blocks: int, *, context: int, step: int) -> int:
        """What vLLM logs since 0.21: the tokens of as many longest requests as fit."""
        if self.is_plain:
            return blocks * self.block_tokens
        return int(blocks / self.reserved(context, step) * context)

    def blocks_with(self, tokens: int, *, context: int, step: int) -> int:
        """The reverse: the blocks of which vLLM logs so many tokens."""
        if self.is_plain:
            return tokens // self.block_tokens
        return -(-tokens * self.reserved(context, step) // context)

    @property
    def is_plain(self) -> bool:
        """Do all layers keep all tokens?"""
        return len(self.groups) == 1 and self.groups[0].kind is KvKind.FULL


def kv_layout(
    shape: ModelShape, tp: int = 1, element_bytes: int = 2, caches_states: bool = False
) -> KvLayout:
    """`caches_states`: prefixes are cached, so a state is kept beside the one at work."""
    a = shape.attention
    kinds = {
        KvKind.FULL: max(0, shape.kv_layers - a.sliding_layers),
        KvKind.SLIDING: a.sliding_layers,
        KvKind.STATE: a.state.layers if a.state else 0,
    }
    counts = {kind: layers for kind, layers in kinds.items() if layers} or {
        KvKind.FULL: 1
    }
    least, most = min(counts.values()), max(counts.values())
    size = most if most < NEARLY_EQUAL * least else least
    parts = {kind: -(-count // size) for kind, count in counts.items()}
    page, blocks = _page(shape, tp, element_bytes, set(counts))
    groups = tuple(
        KvGroup(
            kind=kind,
            layers=len(range(place, count, parts[kind])),  # dealt in turn
            block_tokens=blocks[kind],
            window=a.sliding_window if kind is KvKind.SLIDING else None,
            state_blocks=1 + caches_states,
        )
        for kind, count in counts.items()
        for place in range(parts[kind])
    )
    return KvLayout(
        groups=groups, block_bytes=page * max(group.layers for group in groups)
    )


def _page(
    shape: ModelShape, tp: int, element_bytes: int, kinds: set[KvKind]
) -> tuple[int, dict[KvKind, int]]:
    """Its bytes, and how many tokens of each kind fill it.

    The widest tokens come in the usual blocks, or the page of a state decides: blocks of tokens
    are made as long.
    """
    sized = {
        kind: max(
            1,
            shape.kv_bytes_per_layer(tp, element_bytes, sliding=kind is KvKind.SLIDING),
        )
        for kind in kinds - {KvKind.STATE} or {KvKind.FULL}
    }
    widest, state = BLOCK_TOKENS * max(sized.values()), shape.attention.state
    block = BLOCK_TOKENS * max(1, -(-state.bytes(tp) // widest) if state else 1)
    page = block * max(sized.values())
    tokens = {kind: page // bytes_ for kind, bytes_ in sized.items()}
    return page, {**dict.fromkeys(KvKind, block), **tokens}
