"""What each layer of a model keeps of a request, and what it feeds tokens through."""

from dataclasses import dataclass
from enum import StrEnum

from chunkscope.errors import InputError
from chunkscope.models.fields import Fields


class KvKind(StrEnum):
    """What a layer keeps of a request."""

    FULL = "all tokens"
    SLIDING = "a window"
    STATE = "a state"


class Feed(StrEnum):
    DENSE = "one MLP for all tokens"
    EXPERTS = "the experts that the router chooses"
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Layer:
    keeps: frozenset[KvKind]
    feed: Feed
    borrows: bool = False  # it looks at what an earlier layer keeps

    @property
    def attends(self) -> bool:
        return KvKind.FULL in self.keeps or KvKind.SLIDING in self.keeps

    @property
    def has_own_window(self) -> bool:
        return KvKind.SLIDING in self.keeps and not self.borrows


NOTHING: frozenset[KvKind] = frozenset()
FULL = frozenset({KvKind.FULL})
SLIDING = frozenset({KvKind.SLIDING})
STATE = frozenset({KvKind.STATE})
# A word of `layer_types` or `layers_block_type`, or a letter of Nemotron-H's pattern.
KEEPS = {
    "full_attention": FULL,
    "attention": FULL,
    "indexed_attention": FULL,
    "*": FULL,
    "sliding_attention": SLIDING,
    "chunked_attention": SLIDING,
    "linear_attention": STATE,
    "mamba": STATE,
    "conv": STATE,
    "M": STATE,
    "mlp": NOTHING,
    "-": NOTHING,
    "moe": NOTHING,
    "E": NOTHING,
}
# Where these are among the words, each layer does one thing.
FEEDS = {"mlp": Feed.DENSE, "-": Feed.DENSE, "moe": Feed.EXPERTS, "E": Feed.EXPERTS}


def read_layers(fields: Fields, *, windows_known: bool) -> list[Layer]:
    """Each layer's kind. `windows_known`: a window that is stated is used in all layers
    where nothing else is said; of a model type that nobody knows this is not so."""
    words = _layer_words(fields, windows_known=windows_known)
    if any(word in FEEDS for word in words):
        return [Layer(KEEPS[word], FEEDS.get(word, Feed.NONE)) for word in words]
    sparse = _sparse_layers(fields)
    borrowing = fields.maybe("num_kv_shared_layers") or 0  # the last ones
    layers = []
    for number, word in enumerate(words):
        feed = Feed.EXPERTS if number in sparse else Feed.DENSE
        borrows = 0 < len(words) - borrowing <= number
        layers.append(Layer(KEEPS[word], feed, borrows))
    return layers


def _layer_words(fields: Fields, *, windows_known: bool) -> list[str]:
    """A word of KEEPS for each layer."""
    count = fields.layers
    words = _stated_words(fields)
    if words is None:
        words = _words_of_a_pattern(fields, count, windows_known=windows_known)
    for word in words:
        if word not in KEEPS:
            raise InputError(
                f"the config.json of {fields.name} has layers of a kind that is not "
                f"known, and neither is their memory: {word}"
            )
    if len(words) < count:
        raise InputError(
            f"the config.json of {fields.name} names the kind of {len(words)} of its "
            f"{count} layers"
        )
    return words[:count]  # layers that predict further tokens may follow


def _stated_words(fields: Fields) -> list[str] | None:
    """A list of words, in one of the ways that config.json files say it."""
    pattern = fields.config.get("hybrid_override_pattern")
    if isinstance(pattern, str):  # Nemotron-H
        return list(pattern)
    return fields.words("layer_types") or fields.words("layers_block_type")


def _words_of_a_pattern(
    fields: Fields, count: int, *, windows_known: bool
) -> list[str]:
    """Every so many-th layer has full attention, where a number says so; else all have,
    or a window."""
    usual = "full_attention"
    full_every = fields.maybe("full_attention_interval")  # Qwen3-Next
    if full_every:
        usual = "linear_attention"
    elif windows_known and fields.maybe("window"):
        usual = "sliding_attention"
        full_every = fields.maybe("sliding_window_pattern")  # Gemma 2 and 3
    words = [usual] * count
    if full_every:
        for number in range(full_every - 1, count, full_every):
            words[number] = "full_attention"
    return words


def _sparse_layers(fields: Fields) -> set[int]:
    """The numbers of layers that have experts."""
    count = fields.layers
    if (fields.maybe("experts") or 0) <= 1:
        return set()
    words = fields.words("mlp_layer_types") or fields.words("moe_layer_freq")
    if words:
        return {i for i, word in enumerate(words[:count]) if word in ("sparse", "1")}
    every = fields.maybe("sparse_every") or 1
    sparse = set(range(every - 1, count, every))
    sparse.difference_update(range(fields.maybe("dense_first") or 0))
    dense = fields.config.get("mlp_only_layers")
    return sparse.difference(dense) if isinstance(dense, list) else sparse
