"""A prompt's forward pass in pieces: what each piece is given, and their results as one."""

from collections.abc import Callable, Mapping
from typing import Any

from chunkscope.reference.libraries import load_torch

# By position of the prompt; position ids may have a dimension more before it.
_BY_TOKEN = {"input_ids": 1, "inputs_embeds": 1, "position_ids": -1, "cache_position": -1}
_PASSED_ON = {
    *("attention_mask", "past_key_values", "use_cache"),
    *("logits_to_keep", "output_hidden_states", "return_dict"),
}
_WHOLE_ONLY = ("output_attentions", "output_router_logits")
# Layers that keep a state hold no keys and values that a later piece could look at.
_LAYERS = {"full_attention", "sliding_attention"}
# Their own code goes on from a cache by one token at a time alone, or not as from padded prompts.
_ONE_BY_ONE = {"cpmant", "git", "moshi", "prophetnet"}
_ROPE_BY_LENGTH = ("dynamic", "longrope")
_PER_TOKEN = ("logits", "last_hidden_state")


class NoCacheReturned(Exception):  # noqa: N818  (not a mishap: it is then run as a whole)
    """The first piece came back without a KV cache to go on from."""


def prompt_shape(tokens: Any) -> tuple[int, int]:
    """Sequences and tokens of each; none where these are no tokens."""
    shape: Any = getattr(tokens, "shape", ())
    return (shape[0], shape[1]) if len(shape) > 1 else (0, 0)


def _text_config(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _ropes(config: Any) -> list[dict[str, Any]]:
    """What is said of rotary embeddings; some models have one for each kind of layer."""
    text = _text_config(config)
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    return [part for part in (rope, *rope.values()) if isinstance(part, dict)]


def why_model_is_whole(config: Any) -> str | None:
    """What keeps prompts of this model from being cut; None: nothing does."""
    if config is None:
        return None
    text = _text_config(config)
    types = {part.get("rope_type") for part in _ropes(config)}
    layers = set(getattr(text, "layer_types", None) or ()) - _LAYERS
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder"
    if (kind := getattr(config, "model_type", None)) in _ONE_BY_ONE:
        return f"{kind} does not go on from its cache with several tokens at once"
    if getattr(text, "is_causal", True) is False or getattr(
        text, "use_bidirectional_attention", None
    ) in (True, "all"):
        return "its tokens look ahead"
    if layers:
        return f"it has layers of {', '.join(sorted(layers))}"
    if found := [word for word in _ROPE_BY_LENGTH if word in types]:
        return f"its {found[0]} rotary embedding depends on the length of the whole prompt"
    return None


def why_call_is_whole(inputs: Mapping[str, Any], config: Any) -> str | None:
    """Likewise what of one call does."""
    if is_lossy(inputs.get("past_key_values")):
        return "its cache is quantized: later chunks would see less of earlier ones"
    if inputs.get("input_ids") is None and inputs.get("inputs_embeds") is None:
        return "its tokens are not called input_ids"
    use_cache = inputs.get("use_cache")
    if use_cache is None:
        use_cache = getattr(_text_config(config), "use_cache", True)
    if not use_cache:
        return "the call wants no KV cache (use_cache=False)"
    for name in _WHOLE_ONLY:
        if inputs.get(name, getattr(config, name, False)):
            return f"the call wants {name}"
    if others := [n for n, v in inputs.items() if v is not None and not _is_known(n, v)]:
        return f"the call has {', '.join(sorted(others))}"
    return _why_mask_is_whole(inputs, config)


def _is_known(name: str, value: Any) -> bool:
    if name == "logits_to_keep":
        return isinstance(value, int)
    # Switches that are off ask for nothing.
    return name in _BY_TOKEN or name in _PASSED_ON or value is False


def _why_mask_is_whole(inputs: Mapping[str, Any], config: Any) -> str | None:
    mask = inputs.get("attention_mask")
    if mask is None:
        return None
    if getattr(mask, "ndim", None) != 2:
        return "the call has an attention mask of its own"
    if inputs.get("position_ids") is None and any("mrope_section" in one for one in _ropes(config)):
        return "it finds positions of text and images by the whole mask (give it position_ids)"
    before, length = tokens_before(inputs), _length(inputs)
    expected = (before if before is not None else mask.shape[1] - length) + length
    if mask.shape[1] != expected or mask.shape[1] < length:
        return "the attention mask is not as long as the prompt and what came before it"
    return None


def is_lossy(cache: Any) -> bool:
    """Does it give back other keys and values than were put in?"""
    kinds = (kind for layer in getattr(cache, "layers", ()) for kind in type(layer).__mro__)
    return any("Quantized" in kind.__name__ for kind in kinds)


def tokens_before(inputs: Mapping[str, Any]) -> int | None:
    """In the cache that was given; None where it cannot say."""
    cache = inputs.get("past_key_values")
    if cache is None:
        return 0
    return int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else None


def _length(inputs: Mapping[str, Any]) -> int:
    tokens = inputs.get("input_ids")
    return prompt_shape(inputs["inputs_embeds"] if tokens is None else tokens)[1]


def cut(inputs: Mapping[str, Any], start: int, end: int) -> dict[str, Any]:
    """What the piece from `start` to `end` is given: its tokens, and the mask up to its end."""
    piece = dict(inputs)
    for name, dimension in _BY_TOKEN.items():
        if piece.get(name) is not None:
            value = piece[name]
            piece[name] = value[:, start:end] if dimension == 1 else value[..., start:end]
    mask = piece.get("attention_mask")
    if mask is not None:
        piece["attention_mask"] = mask[:, : mask.shape[1] - _length(inputs) + end]
    return piece


def run_in_pieces(call: Callable[..., Any], inputs: Mapping[str, Any], size: int) -> Any:
    """The same as `call(**inputs)`, `size` tokens at a time, each seeing all before it."""
    length, keep = _length(inputs), inputs.get("logits_to_keep")
    results = Results(length, min(keep or length, length))
    given = dict(inputs)
    for start in range(0, length, size):
        end = min(start + size, length)
        piece = cut(given, start, end)
        if keep:
            piece["logits_to_keep"] = max(1, results.wanted(start, end))
        output = call(**piece)
        given["past_key_values"] = part_of(output, "past_key_values")
        if given["past_key_values"] is None:
            raise NoCacheReturned
        results.add(output, start, end)
    return results.joined()


def part_of(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


class Results:
    """Of a prompt's last `kept` tokens, in one tensor that is filled piece by piece.

    Putting the pieces together at the end would hold the logits twice.
    """

    def __init__(self, length: int, kept: int) -> None:
        self._first, self._kept = length - kept, kept
        self._whole: dict[str, Any] = {}
        self._hidden: list[tuple[Any, ...]] = []
        self._last: Any = None

    def wanted(self, start: int, end: int) -> int:
        return max(0, end - max(start, self._first))

    def add(self, output: Any, start: int, end: int) -> None:
        self._last = output
        if (hidden := part_of(output, "hidden_states")) is not None:
            self._hidden.append(hidden)
        wanted = self.wanted(start, end)
        for name in _PER_TOKEN:
            part = part_of(output, name)
            # Who gives one token's logits whatever is asked means the last token's.
            if not wanted or part is None or part.ndim < 3 or part.shape[1] < wanted:
                continue
            if name not in self._whole:
                self._whole[name] = part.new_empty((part.shape[0], self._kept, *part.shape[2:]))
            at = end - wanted - self._first
            self._whole[name][:, at : at + wanted] = part[:, -wanted:]

    def joined(self) -> Any:
        parts = dict(self._whole)
        if self._hidden:
            torch = load_torch("chunkscope.chunked")
            layers = zip(*self._hidden, strict=True)
            parts["hidden_states"] = tuple(torch.cat(layer, dim=1) for layer in layers)
        return _with(self._last, parts)


def _with(output: Any, parts: dict[str, Any]) -> Any:
    if type(output) is dict:
        return output | parts
    try:
        for name, value in parts.items():
            setattr(output, name, value)
    except AttributeError:  # it may not be changed, as a named tuple
        return output._replace(**parts)
    return output
