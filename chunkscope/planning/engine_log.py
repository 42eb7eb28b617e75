"""vLLM's log, a file or stdin, and what an engine that ran here measured."""

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import ChunkscopeError, InputError, UsageError
from chunkscope.hardware.memory import Memory
from chunkscope.models import ModelShape, find_model
from chunkscope.models.find import built_in
from chunkscope.sources.base import Source
from chunkscope.sources.open import as_utf8, open_stream
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.flags import dotted, release
from chunkscope.vllm.log.facts import FIXED_SIZES, EngineFacts
from chunkscope.vllm.log.failures import Failure
from chunkscope.vllm.log.reader import LogReader
from chunkscope.vllm.log.start import EngineStart
from chunkscope.vllm.measured import MeasuredFit
from chunkscope.vllm.rules import OLDEST
from chunkscope.vllm.settings import Settings

STDIN = "-"
_PIECE = 1 << 20  # bytes
_FROM_START = "give a log from the engine's start on, at level INFO"
# What /metrics answers and no log has.
_METRICS = b"vllm:num_requests_running{"
# Farther from what is predicted, weights are those of another model.
_WEIGHTS_OFF = 0.1
_WEIGHTS_OFF_GIB = 0.1
_DEVICE_OFF = 0.05  # a difference in memory that no driver makes

# -- a log ---------------------------------------------------------------------


def read_log(name: str, reader: LogReader) -> tuple[Note, ...]:
    """Feed a whole log to the reader; what is to be said about it.

    InputError if it is none, or if several servers write into it.
    """
    shown = "standard input" if name == STDIN else name
    oldest = dotted(OLDEST)
    hint = f"give what vLLM {oldest} or newer wrote to stdout and stderr, at level INFO"
    path = None if name == STDIN else Path(name)
    if path is not None and (path.is_dir() or not path.exists()):
        raise InputError(f"no such log: {name}", hint=hint)
    notes: tuple[Note, ...] = ()
    is_metrics = False
    plain = open_stream(Source(path=shown, file=path))
    with closing(as_utf8(plain, shown)) as stream:  # PowerShell writes UTF-16
        try:
            while data := stream.read(_PIECE):
                reader.feed(data)
                is_metrics = is_metrics or _METRICS in data
        except InputError:  # what came before it counts
            notes = (note("log_cut", log=shown),)
        reader.feed(b"", last=True)
    _check_log(reader, shown, is_metrics=is_metrics, hint=hint)
    return notes


def _check_log(reader: LogReader, shown: str, *, is_metrics: bool, hint: str) -> None:
    """InputError where nothing was understood, or several servers wrote it."""
    if reader.mixed_line is not None:
        raise InputError(
            f"two servers write into {shown} at once (see line {reader.mixed_line})",
            hint="give one server's log, as from `docker compose logs SERVICE`",
        )
    if is_metrics and not reader.understood:
        raise InputError(
            f"{shown} is what /metrics answered once: sums since the start, and no log",
            hint="name the server's address (http://localhost:8000), or give its log",
        )
    if not reader.understood:
        why = f"none of its {reader.lines:,} lines is one"
        raise InputError(f"{shown} is no log of vLLM's V1 engine: {why}", hint=hint)


def engine_starts(log: str | os.PathLike[str]) -> tuple[EngineStart, ...]:
    """The starts in a log; InputError if it does not say which vLLM wrote it."""
    reader = LogReader()
    read_log(os.fspath(log), reader)
    starts = reader.starts()
    if not any(start.facts.version for start in starts):
        raise InputError(f"{log} does not say which vLLM wrote it", hint=_FROM_START)
    return starts


# -- what an engine measured ---------------------------------------------------


def measured_in(
    starts: Sequence[EngineStart],
    log: str | os.PathLike[str],
    deployment: Engine,
    settings: Settings,
) -> MeasuredFit:
    """What the last start says of the KV cache that says it.

    UsageError where the log is of another model, GPU, version or number of GPUs.
    """
    name = Path(os.fspath(log)).name
    start = starts[-1]
    for candidate in starts:
        if _kv_cache_tokens(candidate):
            start = candidate
    other = _other_engine(start, deployment, settings)
    other = other or _other_machine(start.facts, deployment, settings)
    if other:
        raise UsageError(
            f"{name} is the log of {other}", hint="plan for the same engine"
        )
    tokens = _kv_cache_tokens(start)
    if tokens is None:
        what = f"{name} does not say how large the KV cache is, nor what would fit it"
        raise InputError(what, hint=_FROM_START)
    if any(argument in start.arguments for argument in FIXED_SIZES):
        tokens = None  # its size was given, not measured
    return MeasuredFit(
        log=name,
        settings=deployment.complete(start.settings),
        cuda_graphs=not start.facts.enforce_eager,
        compiled_before=start.facts.found_compiled is not None,
        kv_cache_tokens=tokens,
    )


def _kv_cache_tokens(start: EngineStart) -> int | None:
    """Or what vLLM said would have fitted, where its longest request did not."""
    if start.facts.kv_cache_tokens:
        return start.facts.kv_cache_tokens
    failure = start.failure
    if failure is None or failure.kind is not Failure.CONTEXT_TOO_LONG:
        return None
    longest = failure.figures.get("longest")
    return round(longest) if longest else None


def _other_engine(
    start: EngineStart, deployment: Engine, settings: Settings
) -> str | None:
    """What engine a log is of, if not of the one that is planned."""
    facts = start.facts
    planned = deployment.release
    logged = release(facts.version or planned.text)
    if logged.version[:2] != planned.version[:2]:
        return f"vLLM {logged.text}, and the plan is for {planned.text}"
    if facts.device not in (None, "cuda"):
        return f"an engine on {facts.device}, not on a GPU"
    tp = start.settings.parallel.tensor
    dp = start.settings.parallel.data
    stages = facts.pipeline_parallel_size or 1  # which plans do not have
    if (tp, dp, stages) != (settings.parallel.tensor, settings.parallel.data, 1):
        return f"an engine with --tp {tp}, --dp {dp} and {stages} pipeline stages"
    dtype = start.settings.kv_cache_dtype
    if dtype != settings.kv_cache_dtype:
        return f"an engine with kv_cache_dtype {dtype or 'auto'}"
    return None


def _other_machine(
    facts: EngineFacts, deployment: Engine, settings: Settings
) -> str | None:
    """What GPU or model a log is of, if not of those that are planned."""
    shape = deployment.shape
    gpu = deployment.gpu
    bill = deployment.memory(settings)
    if bill is None or shape is None or gpu is None:
        hint = "name them: --model llama-3.1-8b --gpu h200"
        raise UsageError("--log needs the model and the GPU that wrote it", hint=hint)
    held_gib = (facts.weights_gib or 0.0) + (facts.kv_cache_gib or 0.0)
    device_gib = facts.device_gib or max(held_gib, bill.total_gib)
    if abs(device_gib / bill.total_gib - 1) > _DEVICE_OFF:
        return (
            f"a GPU that holds {device_gib:,.1f} GiB, and {gpu.title} has "
            f"{bill.total_gib:,.1f}"
        )
    if is_model(facts.model or "", shape, logged=True) is False:
        return f"another model: {facts.model}"
    if weigh_otherwise(facts, bill):
        return (
            f"another model: its weights take {facts.weights_gib} GiB, those of "
            f"{shape.name} {bill.line('weights').gib:,.1f}"
        )
    return None


# -- which model it is of ------------------------------------------------------


def local_model(name: str) -> ModelShape | None:
    """A model whose folder is here, or that is built in: nobody is asked for others."""
    with suppress(ChunkscopeError, OSError):
        if (Path(name).expanduser() / "config.json").is_file():
            return find_model(name)
    return built_in(name)


def is_model(name: str, shape: ModelShape, *, logged: bool = False) -> bool | None:
    """Does a script, or a log, by this name mean this model or one built alike?

    None where the name is not known.
    """
    if name in (shape.name, shape.load_name):
        return True
    known = local_model(name)
    if known is None and logged:
        known = local_model(Path(name).name)
    if known is None:
        return None
    # A formula's weights differ from a checkpoint's by a few norms and biases.
    same_name = replace(
        known,
        name=shape.name,
        source=shape.source,
        hub_id=shape.hub_id,
        notes=shape.notes,
        parameters=shape.parameters,
        file_bytes=shape.file_bytes,
        file_expert_bytes=shape.file_expert_bytes,
    )
    return same_name == shape


def weigh_otherwise(facts: EngineFacts, bill: Memory) -> bool:
    """Does an engine say that its weights take more or less than predicted?"""
    if facts.weights_gib is None:
        return False
    predicted_gib = bill.line("weights").gib
    off_gib = abs(facts.weights_gib - predicted_gib)
    return off_gib > max(_WEIGHTS_OFF_GIB, _WEIGHTS_OFF * predicted_gib)
