"""A transformers model that reads long prompts in chunks: the same calls and results."""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, update_wrapper
from inspect import signature
from typing import Any

from chunkscope.artefacts.files import Name
from chunkscope.errors import MissingError, UsageError
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.rule import decide
from chunkscope.reference.models import load_torch, why_whole
from chunkscope.simulation.policies import chunk_by_length

BY_TOKEN = ("input_ids", "position_ids", "cache_position")
TAKEN = {*BY_TOKEN, "attention_mask", "past_key_values", "use_cache", "logits_to_keep"}
PER_TOKEN = ("logits", "last_hidden_state")
# Ways to generate that cut prompts otherwise, or not at all.
OTHER_WAYS = (
    "assistant_model",
    "custom_generate",
    "prefill_chunk_size",
    "cache_implementation",
)


def chunked(
    model: Any,
    threshold: int | None = None,
    chunk: int | None = None,
    *,
    plan: Plan | Name | None = None,
    profile: Profile | Name | None = None,
) -> Any:
    """Let a transformers model prefill prompts over `threshold` tokens in chunks.

    The model is changed and returned; its calls and results stay the same. Instead of a threshold,
    a plan or profile gives that of the length rule; its mode "off" leaves prompts whole.
    `chunk` is a number of tokens; without one it is 512, 1,024 or 2,048 by the prompt's length and
    never more than the threshold. What cannot be cut is left whole, with one warning.
    `model.chunking` has `stats`, `measure` (peak memory) and `undo`.

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
    load_torch("chunkscope.chunked")
    if not hasattr(getattr(model, "config", None), "get_text_config"):
        kind = type(model).__name__
        raise UsageError(f"chunkscope.chunked takes a transformers model, not a {kind}")
    given = [value for value in (threshold, plan, profile) if value is not None]
    if len(given) != 1:
        raise UsageError(
            "give exactly one of threshold, plan and profile",
            hint='such as threshold=2048, plan="reports/plan.json" or profile=...',
        )
    if plan is not None:
        threshold = Plan.load(plan).decision.threshold
    elif profile is not None:
        threshold = decide(Profile.load(profile).overall).threshold
    for name, value in {"threshold": threshold, "chunk": chunk}.items():
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"{name} is {value!r}, not a number of tokens")
    if hasattr(model, "chunking"):
        model.chunking.undo()
    model.chunking = Chunking(model, threshold, chunk)
    return model


@dataclass(slots=True, kw_only=True)
class ChunkingStats:
    """What was done so far, steps of one token left out. A chunk is one forward pass."""

    total_sequences: int = 0
    chunked_sequences: int = 0
    chunks_processed: int = 0
    seconds: float = 0.0  # of all chunks


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChunkedMemory:
    """Peak memory of one call beyond what was there before: read whole, and in chunks."""

    whole_bytes: int
    chunked_bytes: int

    @property
    def saved_bytes(self) -> int:
        """Negative where chunks cost memory: where the logits of every token are kept."""
        return self.whole_bytes - self.chunked_bytes

    def __repr__(self) -> str:
        peaks = f"{self.chunked_bytes / 1e6:,.0f} MB in chunks, {self.whole_bytes / 1e6:,.0f} whole"
        hint = (
            "; logits_to_keep=1 keeps one token's logits"
            if self.saved_bytes < 0
            else ""
        )
        return (
            f"<ChunkedMemory: {self.saved_bytes / 1e6:,.0f} MB saved ({peaks}{hint})>"
        )


class Chunking:
    """Which prompts of a model are chunked and how, and what came of it: `model.chunking`."""

    def __init__(self, model: Any, threshold: int | None, chunk: int | None) -> None:
        self.threshold, self.chunk, self.stats = threshold, chunk, ChunkingStats()
        self._model, self._why_whole = model, why_whole(model)
        self._forward: Callable[..., Any] = model.forward
        self._generate: Callable[..., Any] = getattr(model, "generate", model.forward)
        self._names = list(signature(model.forward).parameters)
        self._is_off = False  # while the whole prompt is measured
        self._to_come = 0  # chunks that `generate` cuts itself
        self._warned: set[str] = set()
        model.forward = update_wrapper(partial(self._call), self._forward)
        if hasattr(model, "generate"):
            model.generate = update_wrapper(
                partial(self._generate_call), self._generate
            )

    def undo(self) -> None:
        """Restore the model."""
        for name in ("forward", "generate", "chunking"):
            self._model.__dict__.pop(name, None)

    def measure(self, *args: Any, **kwargs: Any) -> ChunkedMemory:
        """The peak memory of this call, read whole and in chunks; both are run here."""
        import torch

        from chunkscope.verification.inside.chunkscope_probe import PeakMemory

        peaks = []
        try:
            for self._is_off in (True, False):
                memory = PeakMemory()
                with torch.inference_mode():
                    self._model(*args, **kwargs)
                peaks.append(memory.beyond_bytes())
        finally:
            self._is_off = False
        if peaks[0] is None or peaks[1] is None:
            raise MissingError(
                "peak memory is not known on this system: use CUDA or Linux"
            )
        return ChunkedMemory(whole_bytes=peaks[0], chunked_bytes=peaks[1])

    def _size(self, length: int) -> int | None:
        """Tokens of a chunk for a prompt of that length; None leaves it whole."""
        if self.threshold is None or length <= self.threshold:
            return None
        size = min(self.threshold, self.chunk or chunk_by_length(length))
        return size if size < length else None

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if self._to_come:
            self._to_come -= 1
            return self._timed(lambda: (self._forward(*args, **kwargs), 1))
        inputs = dict(zip(self._names, args, strict=False)) | kwargs
        sequences, length = _shape(inputs.get("input_ids"))
        size = None if self._is_off else self._size(length)
        if size is not None and (why := self._why_whole or why_call_is_whole(inputs)):
            if why not in self._warned:
                self._warned.add(why)
                warnings.warn(
                    f"chunkscope.chunked leaves a prompt whole: {why}", stacklevel=3
                )
            size = None
        self.stats.total_sequences += (
            sequences if length > 1 and not self._is_off else 0
        )
        if size is None:
            return self._forward(*args, **kwargs)
        self.stats.chunked_sequences += sequences
        return self._timed(lambda: in_chunks(self._forward, inputs, length, size))

    def _generate_call(self, *args: Any, **kwargs: Any) -> Any:
        """By transformers' own chunks where they do the same; else what it calls is cut."""
        tokens = args[0] if args else kwargs.get("inputs", kwargs.get("input_ids"))
        sequences, length = _shape(tokens)
        size = None if self._why_whole else self._size(length)
        others = {n for n in kwargs if n in self._names} - {
            "input_ids",
            "attention_mask",
        }
        config = kwargs.get("generation_config") or self._model.generation_config
        others |= {
            name
            for name in OTHER_WAYS
            if kwargs.get(name) or getattr(config, name, None)
        }
        if size is None or others or config.use_cache is False:
            return self._generate(*args, **kwargs)
        self.stats.total_sequences += sequences
        self.stats.chunked_sequences += sequences
        self._to_come = -(-length // size)
        try:
            return self._generate(*args, **kwargs, prefill_chunk_size=size)
        finally:
            self._to_come = 0

    def _timed(self, compute: Callable[[], tuple[Any, int]]) -> Any:
        """The output; its chunks and seconds are counted."""
        began = time.perf_counter()
        output, chunks = compute()
        if self._model.device.type == "cuda":  # a GPU answers before it has computed
            load_torch("chunkscope.chunked").cuda.synchronize()
        self.stats.seconds += time.perf_counter() - began
        self.stats.chunks_processed += chunks
        return output


def in_chunks(
    forward: Callable[..., Any], inputs: Mapping[str, Any], length: int, size: int
) -> tuple[Any, int]:
    """The same output as `forward(**inputs)`, and how many chunks of `size` tokens it took."""
    keep, starts = inputs.get("logits_to_keep") or 0, range(0, length, size)
    first = length - min(
        keep or length, length
    )  # of the tokens whose results are wanted
    given, joined = {**inputs, "use_cache": True}, dict[str, Any]()
    by_token = [name for name in BY_TOKEN if inputs.get(name) is not None]
    for start in starts:
        end = min(start + size, length)
        wanted = max(0, end - max(start, first))
        part = {n: v[..., start:end] if n in by_token else v for n, v in given.items()}
        if (mask := given.get("attention_mask")) is not None:
            part["attention_mask"] = mask[:, : mask.shape[1] - length + end]
        if keep:
            part["logits_to_keep"] = max(1, wanted)
        output = forward(**part)
        given["past_key_values"] = output.past_key_values
        if (
            output.past_key_values is None
        ):  # there is nothing that a next chunk could see
            return forward(**inputs), 1
        # One tensor that is filled: joining parts at the end would hold the logits twice.
        for name in PER_TOKEN if wanted else ():
            if (result := getattr(output, name, None)) is None:
                continue
            if name not in joined:
                joined[name] = result.new_empty(
                    (len(result), length - first, *result.shape[2:])
                )
            joined[name][:, end - wanted - first : end - first] = result[:, -wanted:]
    for name, result in joined.items():
        setattr(output, name, result)
    return output, len(starts)


def _shape(tokens: Any) -> tuple[int, int]:
    """Sequences and tokens of each; none where these are no tokens."""
    shape: Any = getattr(tokens, "shape", ())
    return (int(shape[0]), int(shape[1])) if len(shape) == 2 else (0, 0)


def why_call_is_whole(inputs: Mapping[str, Any]) -> str | None:
    """What keeps the prompt of this call from being read in chunks; None: nothing does."""
    if inputs.get("use_cache") is False:
        return "the call uses no KV cache (use_cache=False)"
    given = [
        name
        for name, value in inputs.items()
        if value is not None and value is not False
    ]
    if others := sorted(set(given) - TAKEN):
        return f"the call has {', '.join(others)}"
    keep, mask = inputs.get("logits_to_keep"), inputs.get("attention_mask")
    if keep is not None and not isinstance(keep, int):
        return "logits_to_keep is not a number"
    cache: Any = inputs.get("past_key_values")
    before = int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else 0
    expected = _shape(inputs["input_ids"])[1] + before
    if mask is not None and (mask.ndim != 2 or mask.shape[1] != expected):
        return "the attention mask does not cover the prompt and what came before"
    return None
