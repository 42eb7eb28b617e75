"""A model that takes long prompts in chunks: the same calls and results, less memory at once."""

import inspect
import threading
import time
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, update_wrapper
from math import ceil, inf
from typing import Any

from chunkscope.artefacts.words import Name, one_of
from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import GIB
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.rule import activation
from chunkscope.reference.libraries import load_torch
from chunkscope.reference.peak_memory import PeakMemory
from chunkscope.reference.pieces import (
    NoCacheReturned,
    part_of,
    prompt_shape,
    run_in_pieces,
    tokens_before,
    why_call_is_whole,
    why_model_is_whole,
)
from chunkscope.simulation.policies import chunk_by_length
from chunkscope.vllm.enums import ChunkPolicy

_WORDS = (ChunkPolicy.BY_LENGTH, ChunkPolicy.FIXED)
# What generate's own chunks are known to cut rightly; inputs_embeds they would leave out.
_GENERATE_CUTS = {"input_ids", "attention_mask", "past_key_values", "position_ids", "use_cache"}
_GENERATE_WHOLE = (
    *("assistant_model", "custom_generate", "prompt_lookup_num_tokens"),
    *("output_attentions", "output_hidden_states"),
)


_LIKE_INNER = ("__name__", "__qualname__", "__doc__")  # its annotations cannot be pickled


def chunked(
    model: Any,
    threshold: int | None = None,
    chunk: int | str = ChunkPolicy.BY_LENGTH,
    *,
    plan: Plan | Name | None = None,
    profile: Profile | Name | None = None,
) -> Any:
    """Let a model prefill prompts over `threshold` tokens in chunks; calls and results stay.

    The model is a transformers model, compiled or not, which is changed and returned, or any
    callable that takes `input_ids` and `past_key_values` and gives `logits` and
    `past_key_values`, which is wrapped. Without a threshold it is the plan's, or what
    `activation` says of the profile; a plan or profile that says "off" leaves prompts whole.
    `chunk` is a number of tokens, "by-length" (512, 1,024 or 2,048 by the prompt's, and never
    more than the threshold) or "fixed" (the threshold). `model.chunking` has the `stats`, can
    `measure` the memory saved, and `undo` it all.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> import torch
    >>> size = dict(hidden_size=32, intermediate_size=64, vocab_size=99)
    >>> heads = dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    >>> model = LlamaForCausalLM(LlamaConfig(**size, **heads)).eval()
    >>> prompt = torch.arange(90)[None]
    >>> whole = model(prompt).logits
    >>> model = chunked(model, threshold=64, chunk=32)
    >>> torch.allclose(model(prompt).logits, whole, atol=1e-5)
    True
    >>> model.chunking.stats
    <ChunkingStats: 1 of 1 sequences in 3 chunks of ... s, memory saved not measured>
    """
    load_torch("chunkscope.chunked")
    if not callable(model):
        raise UsageError(f"there is no model to chunk: {type(model).__name__} cannot be called")
    limit = _threshold(threshold, plan, profile)
    chunking = Chunking(limit, _chunk(chunk))
    return chunking.wrap(model)


def _threshold(
    threshold: int | None, plan: Plan | Name | None, profile: Profile | Name | None
) -> int | None:
    given = [value for value in (threshold, plan, profile) if value is not None]
    if len(given) != 1:
        said = "several of threshold, plan and profile are" if given else "no threshold is"
        raise UsageError(
            f"{said} given", hint='say threshold=2048, plan="reports/plan.json" or profile=...'
        )
    if plan is not None:
        return Plan.given(plan).decision.threshold
    if profile is not None:
        return activation(profile).threshold
    return _tokens("threshold", threshold)


def _chunk(chunk: int | str) -> int | ChunkPolicy:
    if not isinstance(chunk, str):
        return _tokens("chunk", chunk)
    hint = f"it can be a number of tokens, or one of: {', '.join(_WORDS)}"
    try:
        word = one_of(ChunkPolicy, chunk, "chunk")
    except UsageError as error:
        raise UsageError(error.message, hint=hint) from None
    if word not in _WORDS:
        raise UsageError(f"chunk is {chunk!r}, which needs an engine's scheduler", hint=hint)
    return word


def _tokens(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}, not a number of tokens")
    if value < 1:
        raise UsageError(f"{name} must be at least 1 token, not {value}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChunkingStats:
    """What was done so far. Prompts are counted, steps of one token are not.

    A chunk is one forward pass, of all sequences in its batch; None: not measured, or none yet.
    """

    total_sequences: int
    chunked_sequences: int
    chunks_processed: int
    seconds_per_chunk: float | None
    peak_memory_saved_bytes: int | None

    @property
    def chunking_rate(self) -> float | None:
        """The share of sequences that were chunked."""
        return self.chunked_sequences / self.total_sequences if self.total_sequences else None

    def __repr__(self) -> str:
        each = self.seconds_per_chunk
        saved = self.peak_memory_saved_bytes
        return (
            f"<ChunkingStats: {self.chunked_sequences:,} of {self.total_sequences:,} sequences in "
            f"{self.chunks_processed:,} chunks{'' if each is None else f' of {each:.3g} s'}, "
            f"memory saved {'not measured' if saved is None else f'{saved:,} bytes'}>"
        )


class Chunking:
    """Which prompts of a model are chunked and how, and what came of it: `model.chunking`."""

    def __init__(self, threshold: int | None, chunk: int | ChunkPolicy) -> None:
        self.threshold, self.chunk = threshold, chunk
        self.limit = inf if threshold is None else threshold
        self.whole_always: str | None = None  # why no prompt of this model is chunked
        self._warned: set[str] = set()
        self._call: ChunkedCall | None = None
        self._changed: list[tuple[Any, str, Any]] = []
        self._sequences = self._chunked = self._chunks = self._timed = 0
        self._seconds = 0.0
        self._saved: int | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()  # a copied model counts for itself

    def __repr__(self) -> str:
        over = "off" if self.threshold is None else f"over {self.threshold:,} tokens, {self.chunk}"
        return f"<Chunking {over}: {self.stats!r}>"

    @property
    def stats(self) -> ChunkingStats:
        with self._lock:
            return ChunkingStats(
                total_sequences=self._sequences,
                chunked_sequences=self._chunked,
                chunks_processed=self._chunks,
                seconds_per_chunk=self._seconds / self._timed if self._timed else None,
                peak_memory_saved_bytes=self._saved,
            )

    def size_for(self, length: int) -> int:
        """How many tokens of a prompt of so many are taken at once."""
        if isinstance(self.chunk, int):
            return self.chunk
        fixed = int(self.limit)
        return fixed if self.chunk is ChunkPolicy.FIXED else min(fixed, chunk_by_length(length))

    def measure(self, **inputs: Any) -> int | None:
        """Run one call in chunks and whole: how much less memory did the chunks take at once?

        None where the system does not tell. The answer stays in the stats.
        """
        length = _prompt((), inputs)[1]
        if self._call is None or length <= self.limit:
            raise UsageError(
                f"a prompt of {length:,} tokens is not chunked: there is nothing to measure",
                hint=f"measure one over the threshold, {self.threshold}",
            )
        torch = load_torch("chunkscope.chunked")
        peaks = []
        for call in (self._call.long, self._call.whole):
            memory = PeakMemory(next(v for v in inputs.values() if hasattr(v, "device")).device)
            with torch.inference_mode():
                call(**inputs)
            peaks.append(memory.beyond_gib())
        in_chunks, whole = peaks
        if in_chunks is not None and whole is not None:
            self._saved = round((whole - in_chunks) * GIB)
        return self._saved

    # -- putting it on a model, and taking it off -----------------------------------------------

    def wrap(self, model: Any) -> Any:
        torch = load_torch("chunkscope.chunked")
        if not isinstance(model, torch.nn.Module):
            self._call = ChunkedCall(model, self, None)
            return self._call
        if isinstance(earlier := getattr(model, "chunking", None), Chunking):
            earlier.undo()
        # The outermost of what is called, so that what was compiled is called once for each chunk.
        name = "_compiled_call_impl" if _is_compiled_in_place(model) else "forward"
        inner = getattr(model, "_orig_mod", model)  # of a model that torch.compile returned
        self.whole_always = _why_whole(inner)
        self._call = ChunkedCall(getattr(model, name), self, inner)
        self._set(model, name, self._call)
        if hasattr(inner, "generate"):
            self._set(inner, "generate", ChunkedGenerate(inner.generate, self, inner))
        self._set(inner, "chunking", self)
        return model

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self._changed.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Leave the model as it was."""
        for owner, name, before in reversed(self._changed):
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._changed.clear()

    # -- what the calls tell ------------------------------------------------------------------

    def passed(self, sequences: int) -> None:
        with self._lock:
            self._sequences += sequences

    def cut(self, sequences: int, chunks: int, seconds: float | None) -> None:
        with self._lock:
            self._sequences += sequences
            self._chunked += sequences
            self._chunks += chunks
            if seconds is not None:
                self._timed += chunks
                self._seconds += seconds

    def whole(self, reason: str, *, for_good: bool = False) -> None:
        """Say once for each reason that prompts stay whole."""
        with self._lock:
            self.whole_always = reason if for_good else self.whole_always
            known = reason in self._warned
            self._warned.add(reason)
        if not known:
            warnings.warn(f"prompts are not chunked here: {reason}", stacklevel=4)

    def why_whole(self, inputs: dict[str, Any], model: Any) -> str | None:
        if self.whole_always is not None:
            return self.whole_always
        if getattr(model, "training", False):
            return "the model is in training mode (call its eval())"
        return why_call_is_whole(inputs, getattr(model, "config", None))


class _Prefill:
    """The prefill of one call, timed from its first chunk to the end of its last."""

    def __init__(self, tokens: int) -> None:
        self.left, self.chunks = tokens, 0
        self.seconds: float | None = None  # not before its end
        self._started = 0.0

    def run(self, call: Callable[..., Any], *args: Any, **inputs: Any) -> Any:
        if not self.chunks:
            self._started = time.perf_counter()
        output = call(*args, **inputs)
        self.chunks += 1
        self.left -= _prompt(args, inputs)[1]
        if self.left <= 0:
            _wait_for(part_of(output, "logits"))
            self.seconds = time.perf_counter() - self._started
        return output


# The prefill that `generate` itself cuts, in this thread.
_GENERATING: ContextVar[_Prefill | None] = ContextVar("_GENERATING", default=None)


class ChunkedCall:
    """A call of the model. `whole` runs one chunk, or what is not chunked."""

    out_of_graph: Callable[..., Any]  # `long`, in plain Python whoever compiles

    def __init__(self, inner: Callable[..., Any], chunking: Chunking, model: Any) -> None:
        update_wrapper(self, inner, _LIKE_INNER)
        self.whole, self._model, self.chunking = inner, model, chunking
        self._meet_compiler()
        parameters = inspect.signature(model.forward if model is not None else inner).parameters
        self._names = [
            n for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        takes_any = len(self._names) < len(parameters)
        self._takes_use_cache = takes_any or "use_cache" in self._names
        self._keeps = takes_any or "past_key_values" in self._names

    def _meet_compiler(self) -> None:
        """A graph that is compiled later holds short prompts and steps; long prompts leave it."""
        compiler = load_torch("chunkscope.chunked").compiler
        self._is_compiling = compiler.is_compiling
        ChunkedCall.out_of_graph = compiler.disable(ChunkedCall.long)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._meet_compiler()  # it may be another process

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        sequences, length = _prompt(args, kwargs)
        if self._is_compiling():
            short = length <= self.chunking.limit
            return (self.whole if short else self.out_of_graph)(*args, **kwargs)
        generating = _GENERATING.get()
        if generating is not None and generating.left > 0:
            return generating.run(self.whole, *args, **kwargs)
        if length > self.chunking.limit:
            return self.long(*args, **kwargs)
        if length > 1:
            self.chunking.passed(sequences)
        return self.whole(*args, **kwargs)

    def long(self, *args: Any, **kwargs: Any) -> Any:
        """A prompt over the threshold: in chunks, or whole with a warning."""
        sequences, length = _prompt(args, kwargs)
        inputs = dict(zip(self._names, args, strict=False)) | kwargs
        size = self.chunking.size_for(length)
        reason = self.chunking.why_whole(inputs, self._model)
        if reason is None and not self._keeps:
            reason = "it takes no past_key_values"
        if reason is None and size < length:
            try:
                return self._in_chunks(sequences, length, size, inputs)
            except NoCacheReturned:
                self.chunking.whole("it gives no past_key_values back", for_good=True)
        elif reason is not None:
            self.chunking.whole(reason)
        self.chunking.passed(sequences)
        return self.whole(*args, **kwargs)

    def _in_chunks(self, sequences: int, length: int, size: int, inputs: dict[str, Any]) -> Any:
        as_tuple = inputs.get("return_dict") is False
        asked = inputs | ({"use_cache": True} if self._takes_use_cache else {})
        prefill = _Prefill(length)
        output = run_in_pieces(
            partial(prefill.run, self.whole),
            asked | ({"return_dict": True} if as_tuple else {}),
            size,
        )
        self.chunking.cut(sequences, prefill.chunks, prefill.seconds)
        return output.to_tuple() if as_tuple else output

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "whole":
            raise AttributeError(name)
        return getattr(self.whole, name)


class ChunkedGenerate:
    """`generate` with transformers' own chunks where they do the same; else the calls are cut."""

    def __init__(self, inner: Callable[..., Any], chunking: Chunking, model: Any) -> None:
        update_wrapper(self, inner, _LIKE_INNER)
        self._inner, self._model, self._chunking = inner, model, chunking
        self._takes = set(inspect.signature(model.forward).parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        sequences, length = _prompt(args, kwargs)
        if prompt_shape(kwargs.get("attention_mask"))[1] <= length:  # else: the new tokens alone
            length -= tokens_before(kwargs) or 0
        size = self._chunking.size_for(length)
        asked = kwargs | ({"input_ids": args[0]} if args else {})
        if length > self._chunking.limit and self._chunking.whole_always is not None:
            self._chunking.whole(self._chunking.whole_always)  # some never call what is wrapped
        if length <= self._chunking.limit or size >= length or not self._cuts(asked):
            return self._inner(*args, **kwargs)
        prefill = _Prefill(length)
        token = _GENERATING.set(prefill)
        try:
            output = self._inner(*args, **kwargs, prefill_chunk_size=size)
        finally:
            _GENERATING.reset(token)
        # A compiled model is passed by: transformers generates with the one that was compiled.
        self._chunking.cut(sequences, ceil(length / size), prefill.seconds)
        return output

    def _cuts(self, asked: dict[str, Any]) -> bool:
        """Do its own chunks give what one pass would?"""
        config: Any = asked.get("generation_config") or self._model.generation_config
        if getattr(config, "prefill_chunk_size", 0) is not None:
            return False  # transformers is too old, or it was asked for other chunks
        if "prefill_chunk_size" in asked or asked.get("use_cache", config.use_cache) is False:
            return False
        if any(asked.get(name) or getattr(config, name, None) for name in _GENERATE_WHOLE):
            return False
        others = {
            n for n in asked if n in inspect.signature(self._model.forward).parameters
        } - _GENERATE_CUTS
        mask = asked.get("attention_mask")
        if others or (mask is not None and getattr(mask, "ndim", None) != 2):
            return False
        if "quantized" in str(asked.get("cache_implementation") or config.cache_implementation):
            return False
        tokens, cache = asked.get("inputs", asked.get("input_ids")), asked.get("past_key_values")
        given = {"input_ids": tokens, "past_key_values": cache}
        return self._chunking.why_whole(given, self._model) is None


def _prompt(args: tuple[Any, ...], inputs: dict[str, Any]) -> tuple[int, int]:
    """How many sequences a call has, and how long they are."""
    if args:
        return prompt_shape(args[0])
    for name in ("input_ids", "inputs", "inputs_embeds"):
        if inputs.get(name) is not None:
            return prompt_shape(inputs[name])
    return 0, 0


def _wait_for(logits: Any) -> None:
    """A GPU answers before it has computed."""
    if getattr(logits, "is_cuda", False):
        load_torch("chunkscope.chunked").cuda.synchronize(logits.device)


def _why_whole(model: Any) -> str | None:
    if getattr(model, "_is_stateful", False):
        return "it keeps a state instead of keys and values"
    if _answers_for_all(model):
        return f"{type(model).__name__} gives one answer for the whole prompt"
    return why_model_is_whole(getattr(model, "config", None))


def _answers_for_all(model: Any) -> bool:
    """As classifiers and models that pool do. Only models that generate have logits by token."""
    if getattr(model, "pooler", None) is not None:
        return True
    can_generate = getattr(model, "can_generate", None)
    return can_generate is not None and model.base_model is not model and not can_generate()


def _is_compiled_in_place(model: Any) -> bool:
    return getattr(model, "_compiled_call_impl", None) is not None
