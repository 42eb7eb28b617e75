"""A transformers model that reads long prompts in chunks, with the same results."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from chunkscope.artefacts.files import Name
from chunkscope.errors import UsageError
from chunkscope.planning.plan import Plan
from chunkscope.reference.model import require_torch
from chunkscope.simulation.policies import chunk_by_length

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel
    from transformers.utils import ModelOutput

Model = TypeVar("Model")

PER_TOKEN = ("input_ids", "position_ids", "cache_position")
# From where a warning is given to who called the model, past torch's own two calls.
CALLER = 6
# Layers of other types keep a state instead of keys and values, so that a later chunk
# could not look at the tokens of an earlier one.
LAYER_TYPES = {"full_attention", "sliding_attention"}
# By the length of the prompt (the first two), or by its pictures.
ROPE_OF_THE_WHOLE = ("dynamic", "longrope", "mrope_section")
CHUNKABLE = {
    *PER_TOKEN,
    "attention_mask",
    "past_key_values",
    "use_cache",
    "logits_to_keep",
    "return_dict",
}


def chunked(
    model: Model,
    threshold: int | None = None,
    chunk: int | None = None,
    *,
    plan: Plan | Name | None = None,
) -> Model:
    """Let a transformers model prefill prompts over `threshold` tokens in chunks.

    The model is changed and returned; its calls and results stay the same. Instead of a
    threshold, a plan gives that of the length rule; its mode "off" leaves prompts
    whole. `chunk` is a number of tokens; without one it is 512, 1,024 or 2,048
    by the prompt's length and never more than the threshold. What cannot be cut is left
    whole, with one warning. `model.chunking` has `stats` and `undo`.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> import torch
    >>> size = dict(hidden_size=32, intermediate_size=64, vocab_size=99)
    >>> heads = dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    >>> model = LlamaForCausalLM(LlamaConfig(**size, **heads)).eval()
    >>> prompt = torch.arange(90)[None]
    >>> whole = model(prompt, logits_to_keep=1).logits
    >>> model = chunked(model, threshold=64, chunk=32)
    >>> torch.allclose(model(prompt, logits_to_keep=1).logits, whole, atol=1e-5)
    True
    >>> model.chunking.stats.chunks_processed
    3
    """
    require_torch("chunkscope.chunked")
    transformers_model: Any = model
    if not hasattr(getattr(model, "config", None), "get_text_config"):
        kind = type(model).__name__
        raise UsageError(f"chunkscope.chunked takes a transformers model, not a {kind}")
    if (threshold is None) == (plan is None):
        raise UsageError(
            "give either a threshold or a plan",
            hint='such as threshold=2048 or plan="reports/plan.json"',
        )
    if plan is not None:
        threshold = Plan.load(plan).decision.threshold
    check_tokens("threshold", threshold)
    check_tokens("chunk", chunk)
    if hasattr(model, "chunking"):
        model.chunking.undo()
    transformers_model.chunking = Chunking(transformers_model, threshold, chunk)
    return model


def check_tokens(name: str, value: object) -> None:
    if value is None:
        return
    if type(value) is not int or value < 1:
        raise UsageError(f"{name} is {value!r}, not a number of tokens")


@dataclass(slots=True, kw_only=True)
class ChunkingStats:
    """What was read so far, decodes left out. A chunk is one forward pass."""

    total_sequences: int = 0
    chunked_sequences: int = 0
    chunks_processed: int = 0
    seconds: float = 0.0  # of all chunks


class Chunking:
    """Which prompts of a model are chunked and how, and its statistics.

    `generate` needs no change of its own: it reads a prompt by one forward call.
    """

    def __init__(
        self, model: "PreTrainedModel", threshold: int | None, chunk: int | None
    ) -> None:
        self.threshold = threshold
        self.chunk = chunk
        self.stats = ChunkingStats()
        self._model = model
        self._whole: Callable[..., ModelOutput] = model.forward
        self._parameters = list(signature(model.forward).parameters)
        self._warnings: set[str] = set()

        @wraps(model.forward)  # generate looks at the parameters
        def forward(*args: object, **kwargs: object) -> "ModelOutput":
            inputs = dict(zip(self._parameters, args, strict=False)) | kwargs
            return self._forward(inputs)

        model.forward = forward

    def undo(self) -> None:
        """Restore the model."""
        self._model.forward = self._whole
        del self._model.chunking

    def _forward(self, inputs: dict[str, Any]) -> "ModelOutput":
        sequences, length = shape_of(inputs.get("input_ids"))
        if length > 1:
            self.stats.total_sequences += sequences
        chunk = self._chunk_tokens(length)
        if chunk is None:
            return self._whole(**inputs)
        reasons = chain(model_obstacles(self._model), call_obstacles(inputs))
        obstacle = next(reasons, None)
        if obstacle is not None:
            self._warn(obstacle)
            return self._whole(**inputs)
        began = time.perf_counter()
        output = in_chunks(self._whole, inputs, length, chunk)
        self._wait_for_gpu()
        self.stats.seconds += time.perf_counter() - began
        self.stats.chunked_sequences += sequences
        self.stats.chunks_processed += -(-length // chunk)
        return output

    def _chunk_tokens(self, length: int) -> int | None:
        """Tokens of a chunk for a prompt of this length; None leaves it whole."""
        if self.threshold is None or length <= self.threshold:
            return None
        chunk = min(self.threshold, self.chunk or chunk_by_length(length))
        if chunk >= length:
            return None
        return chunk

    def _warn(self, obstacle: str) -> None:
        if obstacle not in self._warnings:
            self._warnings.add(obstacle)
            message = f"chunkscope.chunked leaves a prompt whole: {obstacle}"
            warnings.warn(message, stacklevel=CALLER)

    def _wait_for_gpu(self) -> None:
        """A GPU computes in the background, so a clock read earlier would be early."""
        if self._model.device.type == "cuda":
            import torch

            torch.cuda.synchronize()


def shape_of(tokens: "torch.Tensor | None") -> tuple[int, int]:
    """Sequences and tokens of each; none where the call has no token ids."""
    if tokens is None or tokens.ndim != 2:
        return 0, 0
    return int(tokens.shape[0]), int(tokens.shape[1])


def in_chunks(
    forward: "Callable[..., ModelOutput]",
    inputs: Mapping[str, Any],
    length: int,
    chunk: int,
) -> "ModelOutput":
    """The same output as `forward(**inputs)`, computed `chunk` tokens at a time."""
    mask = inputs.get("attention_mask")
    cache = inputs.get("past_key_values")
    first_row = length - min(inputs.get("logits_to_keep") or length, length)
    logits: torch.Tensor | None = None
    for start in range(0, length, chunk):
        end = min(start + chunk, length)
        part = dict(inputs)
        for name in PER_TOKEN:
            if inputs.get(name) is not None:
                part[name] = inputs[name][..., start:end]
        if mask is not None:  # it also covers what the cache holds
            part["attention_mask"] = mask[:, : mask.shape[1] - length + end]
        rows = max(0, end - max(start, first_row))
        part["logits_to_keep"] = max(1, rows)  # 0 would compute those of every token
        part["past_key_values"] = cache
        part["use_cache"] = True
        output = forward(**part)
        cache = output.past_key_values
        if cache is None:  # no chunk would see the ones before it
            return forward(**inputs)
        if rows == 0:
            continue
        # Filling one tensor takes half the memory of joining parts at the end.
        if logits is None:
            sequences, _, vocabulary = output.logits.shape
            logits = output.logits.new_empty(
                (sequences, length - first_row, vocabulary)
            )
        logits[:, end - rows - first_row : end - first_row] = output.logits
    output.logits = logits
    return output


def model_obstacles(model: "PreTrainedModel") -> Iterator[str]:
    """Reasons why prompts of this model cannot be read in chunks."""
    config = model.config
    text_config = config.get_text_config()
    layer_types = set(getattr(text_config, "layer_types", None) or ())
    if config.output_attentions or config.output_hidden_states:
        yield "it returns attentions or hidden states of the whole prompt"
    if config.is_encoder_decoder:
        yield "it is an encoder-decoder"
    if layer_types - LAYER_TYPES or getattr(model, "_is_stateful", False):
        yield "it has layers that keep a state"
    if getattr(text_config, "use_bidirectional_attention", None) in (True, "all"):
        yield "its tokens look ahead"
    if not model.can_generate():
        yield f"{type(model).__name__} does not generate text"
    parameters = getattr(text_config, "rope_parameters", None) or {}
    if any(word in str(parameters) for word in ROPE_OF_THE_WHOLE):
        yield "its rotary embedding depends on the whole prompt"


def call_obstacles(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Reasons why the prompt of this call cannot be read in chunks."""
    if inputs.get("use_cache") is False:
        yield "the call uses no KV cache (use_cache=False)"
    if inputs.get("return_dict") is False:
        yield "the call has return_dict=False"
    for name, value in inputs.items():
        if name not in CHUNKABLE and value is not None and value is not False:
            yield f"the call has {name}"
    if not isinstance(inputs.get("logits_to_keep") or 0, int):
        yield "logits_to_keep is not a number"
    mask = inputs.get("attention_mask")
    tokens = inputs["input_ids"].shape[1] + cached_tokens(inputs)
    if mask is not None and (mask.ndim != 2 or mask.shape[1] != tokens):
        yield "the attention mask does not cover the prompt and what came before"


def cached_tokens(inputs: Mapping[str, Any]) -> int:
    cache = inputs.get("past_key_values")
    if cache is None:
        return 0
    tokens: int = cache.get_seq_length()
    return tokens
