"""The layers of a model in groups, as vLLM gives them KV cache.

Layers that keep the same part of a request (all of it, a window, a state) share a block
table. All groups take blocks from one pool: a block is a page in each layer of a group,
so pages are made one size, by longer blocks or by padding. Read in vLLM 0.24
(`v1/core/kv_cache_utils.py`) and compared with the code of 0.28 by
tests/hardware/test_kv_groups.py.
"""

from dataclasses import dataclass

from chunkscope.hardware.constants import constant
from chunkscope.models.layers import KvKind
from chunkscope.models.shape import BLOCK_TOKENS, ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """Layers with one block table. A block holds `block_tokens` tokens in each."""

    kind: KvKind
    layers: int
    block_tokens: int
    window: int | None = None
    state_blocks: int = 1  # of one request, however long: two where states are cached

    def blocks_of(self, tokens: int, step: int = 1) -> int:
        """The most that a request holds, if a step computes `step` of its tokens.

        What leaves the window is given back before a step takes blocks for its tokens.
        """
        reserved = self.reserved(tokens, step)
        if self.window is None:
            return reserved
        return min(self._whole(tokens), reserved)

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
    """All groups; a block of any of them is a page in each layer of the largest."""

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
        """The most that a request of so many tokens holds in all groups."""
        return sum(group.blocks_of(tokens, step) for group in self.groups)

    def reserved(self, tokens: int, step: int) -> int:
        """What vLLM reckons with for a request of so many tokens."""
        steps = step * self.in_flight
        return sum(group.reserved(tokens, steps) for group in self.groups)

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
    shape: ModelShape,
    tp: int = 1,
    element_bytes: int = 2,
    caches_states: bool = False,
    in_flight: int = 1,
) -> KvLayout:
    """How vLLM lays out the KV cache of a model on each of `tp` GPUs.

    `caches_states`: prefixes are cached, so a state is kept beside the one at work.
    """
    counts = _layers_by_kind(shape)
    pages = _pages(shape, tp, element_bytes, counts)
    size = _group_size(counts)
    groups = []
    for kind, count in counts.items():
        parts = -(-count // size)
        for part in range(parts):
            group = KvGroup(
                kind=kind,
                layers=len(range(part, count, parts)),  # dealt in turn
                block_tokens=pages.block_tokens[kind],
                window=_window(shape, kind),
                state_blocks=2 if caches_states else 1,
            )
            groups.append(group)
    largest = max(group.layers for group in groups)
    return KvLayout(
        groups=tuple(groups),
        block_bytes=pages.page_bytes * largest,
        in_flight=in_flight,
    )


def _layers_by_kind(shape: ModelShape) -> dict[KvKind, int]:
    """How many layers keep what; a model without a KV cache has one full layer."""
    attention = shape.attention
    kinds = {
        KvKind.FULL: max(0, shape.kv_layers - attention.sliding_layers),
        KvKind.SLIDING: attention.sliding_layers,
        KvKind.STATE: attention.state.layers if attention.state else 0,
    }
    counts = {kind: layers for kind, layers in kinds.items() if layers}
    return counts or {KvKind.FULL: 1}


def _group_size(counts: dict[KvKind, int]) -> int:
    """Layers of a group: as many as the rarest kind has, or all if nearly as many."""
    fewest, most = min(counts.values()), max(counts.values())
    return most if most < constant("nearly_equal_groups") * fewest else fewest


def _window(shape: ModelShape, kind: KvKind) -> int | None:
    return shape.attention.sliding_window if kind is KvKind.SLIDING else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pages:
    """Bytes of a page, and how many tokens of each kind fill it."""

    page_bytes: int
    block_tokens: dict[KvKind, int]


def _pages(
    shape: ModelShape, tp: int, element_bytes: int, counts: dict[KvKind, int]
) -> _Pages:
    """The widest tokens come in usual blocks, unless a state needs a longer page."""
    token_bytes = {}
    for kind in counts:
        if kind is not KvKind.STATE:
            sliding = kind is KvKind.SLIDING
            size = shape.kv_bytes_per_layer(tp, element_bytes, sliding=sliding)
            token_bytes[kind] = max(1, size)
    if not token_bytes:  # a model of states alone
        size = shape.kv_bytes_per_layer(tp, element_bytes)
        token_bytes[KvKind.FULL] = max(1, size)
    widest = max(token_bytes.values())
    block = BLOCK_TOKENS
    state = shape.attention.state
    if state is not None:
        usual_page = BLOCK_TOKENS * widest
        block *= max(1, -(-state.bytes(tp) // usual_page))
    page_bytes = block * widest
    block_tokens = dict.fromkeys(counts, block)
    for kind, size in token_bytes.items():
        block_tokens[kind] = page_bytes // size
    return _Pages(page_bytes=page_bytes, block_tokens=block_tokens)
