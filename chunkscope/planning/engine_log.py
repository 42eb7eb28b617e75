"""vLLM's log: a file, compressed or not, or stdin; and what an engine that ran here measured."""

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
from chunkscope.sources.streams import as_utf8, open_stream
from chunkscope.vllm.deployment import Deployment, FailedStart, MeasuredFit
from chunkscope.vllm.flags import dotted, release
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.failures import Failure
from chunkscope.vllm.log.reader import EngineStart, LogReader
from chunkscope.vllm.rules import OLDEST
from chunkscope.vllm.settings import Settings

STDIN = "-"
_PIECE = 1 << 20
_FROM_START = "give a log from the engine's start on, at level INFO"
_WEIGHTS_OFF, _WEIGHTS_OFF_GIB = (
    0.1,
    0.1,
)  # farther from what is predicted, it is another model
_DEVICE_OFF = 0.05
_GIVEN_SIZES = ("kv_cache_memory_bytes", "num_gpu_blocks_override")
_NOT_ITS_FAULT = {Failure.NO_FREE_MEMORY, Failure.OOM_LOADING, Failure.OOM_HOST}
_NOT_ITS_FAULT |= {Failure.KILLED, Failure.DIED}


def engine_lives(log: str | os.PathLike[str]) -> tuple[EngineStart, ...]:
    reader = LogReader()
    read_log(os.fspath(log), reader)
    lives = reader.starts()
    if not any(life.facts.version for life in lives):
        raise InputError(f"{log} does not say which vLLM wrote it", hint=_FROM_START)
    return lives


def measured_in(
    lives: Sequence[EngineStart],
    log: str | os.PathLike[str],
    there: Deployment,
    base: Settings,
) -> MeasuredFit:
    """UsageError where the log is of another model, GPU, version or number of GPUs."""
    name = Path(os.fspath(log)).name
    for life in lives:
        _check(life, name, there, base)
    fits = [life for life in lives if _kv_cache_tokens(life)]
    if not fits and not any(life.failure for life in lives):
        what = f"{name} does not say how large the KV cache is, nor that it did not fit"
        raise InputError(what, hint=_FROM_START)
    life = fits[-1] if fits else lives[-1]
    facts, settings = life.facts, there.effective(life.settings)
    given = any(name in life.arguments for name in _GIVEN_SIZES)
    return MeasuredFit(
        log=name,
        settings=settings,
        cuda_graphs=not facts.enforce_eager,
        compiled_before=facts.found_compiled is not None,
        kv_cache_tokens=None if given else _kv_cache_tokens(life),
        failed=tuple(
            FailedStart(
                settings=there.effective(one.settings), why=end.kind, line=end.line
            )
            for one in lives
            if (end := one.failure) and end.kind not in _NOT_ITS_FAULT
        ),
    )


def _kv_cache_tokens(life: EngineStart) -> int | None:
    """Or what vLLM said would have fitted, where one request of max_model_len did not."""
    end = (
        life.failure
        if life.failure and life.failure.kind is Failure.CONTEXT_TOO_LONG
        else None
    )
    return life.facts.kv_cache_tokens or (
        round(end.figures.get("longest", 0)) if end else None
    )


def local_model(name: str) -> ModelShape | None:
    """A model whose folder is here, or that is built in: nobody is asked for others."""
    with suppress(ChunkscopeError, OSError):
        if (Path(name).expanduser() / "config.json").is_file():
            return find_model(name)
    return built_in(name)


def is_model(name: str, shape: ModelShape, *, logged: bool = False) -> bool | None:
    """Does a script, or a log, by this name mean this model or one built alike? None: not known."""
    if name in (shape.name, shape.load_name):
        return True
    # A formula's weights differ from a checkpoint's by a few norms and biases.
    weights = ("parameters", "file_bytes", "file_expert_bytes")
    parts = ("name", "source", "hub_id", "notes", *weights)
    known = local_model(name) or (local_model(Path(name).name) if logged else None)
    return (
        replace(known, **{n: getattr(shape, n) for n in parts}) == shape
        if known
        else None
    )


def weigh_otherwise(facts: EngineFacts, bill: Memory) -> bool:
    """Does an engine say that its weights take more or less than predicted?"""
    gib = bill.line("weights").gib
    off = max(_WEIGHTS_OFF_GIB, _WEIGHTS_OFF * gib)
    return facts.weights_gib is not None and abs(facts.weights_gib - gib) > off


def _check(life: EngineStart, name: str, there: Deployment, base: Settings) -> None:
    bill, facts = there.memory(base), life.facts
    if bill is None or there.shape is None or there.gpu is None:
        hint = "name them: --model llama-3.1-8b --gpu h200"
        raise UsageError("--log needs the model and the GPU that wrote it", hint=hint)
    plans, logged = there.release, release(facts.version or there.release.text)
    gpus, dtype = life.settings.parallel, life.settings.kv_cache_dtype
    stages = facts.pipeline_parallel_size or 1  # which plans do not have
    held_gib = (facts.weights_gib or 0.0) + (facts.kv_cache_gib or 0.0)
    device = facts.device_gib or max(held_gib, bill.total_gib)
    others = {
        f"vLLM {logged.text}, and the plan is for {plans.text}": (
            logged.version[:2] != plans.version[:2]
        ),
        f"an engine on {facts.device}, not on a GPU": facts.device
        not in (None, "cuda"),
        f"an engine with --tp {gpus.tensor}, --dp {gpus.data} and {stages} pipeline stages": (
            (gpus.tensor, gpus.data, stages)
            != (base.parallel.tensor, base.parallel.data, 1)
        ),
        f"an engine with kv_cache_dtype {dtype or 'auto'}": dtype
        != base.kv_cache_dtype,
        f"a GPU that holds {device:,.1f} GiB, and {there.gpu.title} has {bill.total_gib:,.1f}": (
            abs(device / bill.total_gib - 1) > _DEVICE_OFF
        ),
        f"another model: {facts.model}": is_model(
            facts.model or "", there.shape, logged=True
        )
        is False,
        f"another model: its weights take {facts.weights_gib} GiB, those of {there.shape.name} "
        f"{bill.line('weights').gib:,.1f}": weigh_otherwise(facts, bill),
    }
    for what, differs in others.items():
        if differs:
            raise UsageError(
                f"{name} is the log of {what}", hint="plan for the same engine"
            )


def read_log(name: str, reader: LogReader) -> tuple[Note, ...]:
    """Feed a whole log to the reader; what is to be said about it. InputError if it is none."""
    path, shown = (None, "standard input") if name == STDIN else (Path(name), name)
    hint = f"give what vLLM {dotted(OLDEST)} or newer wrote to stdout and stderr, at level INFO"
    if path is not None and (path.is_dir() or not path.exists()):
        raise InputError(f"no such log: {name}", hint=hint)
    notes, is_metrics = list[Note](), False
    plain = open_stream(Source(path=shown, file=path))
    with closing(as_utf8(plain, shown)) as stream:  # PowerShell writes UTF-16
        try:
            while data := stream.read(_PIECE):
                reader.feed(data)
                is_metrics = is_metrics or b"vllm:num_requests_running{" in data
        except InputError:  # what came before it counts
            notes.append(note("log_cut", log=shown))
        reader.feed(b"", last=True)
    if is_metrics and not reader.understood:
        raise InputError(
            f"{shown} is what /metrics answered once: sums since the start, and no log",
            hint="name the server's address (http://localhost:8000), or give its log",
        )
    if not reader.understood:
        why = f"none of its {reader.lines:,} lines is one"
        raise InputError(f"{shown} is no log of vLLM's V1 engine: {why}", hint=hint)
    return tuple(notes)
