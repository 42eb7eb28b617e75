"""Inside every worker of the engine: memory at its peak, and what each step computed.

vLLM mixes this class into its workers (`worker_extension_cls`), one per GPU; the engine program
calls the methods through `collective_rpc`. Answers are JSON text: vLLM's own encoding differs by
version.
"""

import contextlib
import ctypes
import json
import time
from typing import Any

import torch


class Probe:
    """What chunkscope asks of a worker. No name may be one of vLLM's."""

    model_runner: Any

    def chunkscope_begin(self) -> str:
        """From here on: peaks start at what is held now, and steps are recorded."""
        import vllm

        memory = PeakMemory()
        recorder = _Recorder(on_gpu=memory.on_gpu)
        self._chunkscope = (memory, recorder)
        run = self.model_runner.execute_model

        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            recorder.see(scheduler_output)
            return run(scheduler_output, *args, **kwargs)

        self.model_runner.execute_model = execute_model
        who = {"rank": getattr(self, "rank", 0), "vllm": vllm.__version__}
        return json.dumps({**who, **machine(), **profiled(self)})

    def chunkscope_steps(self) -> str:
        """The steps since the last time this was asked."""
        return json.dumps(self._chunkscope[1].take())

    def chunkscope_memory(self) -> str:
        return json.dumps(
            {"rank": getattr(self, "rank", 0), **peaks(self._chunkscope[0])}
        )


def machine() -> "dict[str, Any]":
    if torch.cuda.is_available():
        device, gpu = "cuda", torch.cuda.get_device_name()
    else:
        device, gpu = "cpu", None
    return {"device": device, "gpu": gpu, "torch": str(torch.__version__)}


def profiled(worker: Any) -> "dict[str, Any]":
    """What vLLM itself found at start-up; names that this version lacks are left out."""
    names = {
        "profiled_activation_bytes": "peak_activation_memory",
        "non_torch_bytes": "non_torch_memory",
        "cuda_graphs_bytes": "cudagraph_memory_estimate",
        "kv_cache_bytes": "available_kv_cache_memory_bytes",
    }
    sizes = {ours: getattr(worker, theirs, None) for ours, theirs in names.items()}
    sizes["weights_bytes"] = getattr(worker.model_runner, "model_memory_usage", None)
    return {
        name: int(size)
        for name, size in sizes.items()
        if isinstance(size, (int, float))
    }


class PeakMemory:
    """The most memory since this was made: torch's on a GPU, else the process's (on Linux)."""

    def __init__(self) -> None:
        self.on_gpu = torch.cuda.is_available()
        self._before: int | None = None
        if self.on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
            return
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # what was freed before goes back
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the kernel's high-water mark starts anew
        self._before = _resident("VmRSS:")

    def peak_bytes(self) -> "int | None":
        return (
            int(torch.cuda.max_memory_allocated())
            if self.on_gpu
            else _resident("VmHWM:")
        )

    def beyond_bytes(self) -> "int | None":
        """The peak, without what was there before: weights, and vLLM's KV cache."""
        peak = self.peak_bytes()
        return (
            None
            if peak is None or self._before is None
            else max(0, peak - self._before)
        )


def peaks(memory: PeakMemory) -> "dict[str, Any]":
    if not memory.on_gpu:
        return {"activation_peak_bytes": None, "device_peak_bytes": memory.peak_bytes()}
    free, total = torch.cuda.mem_get_info()
    # Torch keeps what it once took, so what is used now is the most that was.
    return {
        "activation_peak_bytes": memory.beyond_bytes(),
        "device_peak_bytes": total - free,
    }


def _resident(name: str) -> "int | None":
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return None


class _Recorder:
    """What each step held. A step lasts until the next begins, unless the engine was idle."""

    columns = (
        "prefill_tokens",
        "prefill_pairs",
        "prefill_requests",
        "decode_requests",
        "decode_context_tokens",
    )

    def __init__(self, *, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._prompt_tokens: dict[str, int] = {}
        self._reset()

    def _reset(self) -> None:
        self._marks: list[Any] = []
        self._goes_on: list[bool] = []  # it continues requests of the step before
        self._rows: list[tuple[int, ...]] = []
        self._chunks: dict[str, int] = {}
        self._prefilling: set[str] = set()
        self._preempted = 0

    def _mark(self) -> Any:
        """On the GPU's own time line: with async scheduling the host runs ahead of it."""
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def see(self, step: Any) -> None:
        if not step.total_num_scheduled_tokens:
            return
        cached = step.scheduled_cached_reqs
        self._marks.append(self._mark())
        self._goes_on.append(bool(cached.req_ids))
        self._preempted += len(getattr(step, "preempted_req_ids", None) or ())
        tokens = step.num_scheduled_tokens
        plain = step.total_num_scheduled_tokens == len(tokens) == len(cached.req_ids)
        if plain and not self._prefilling:  # every request decodes one token
            self._rows.append(
                (0, 0, 0, len(tokens), sum(cached.num_computed_tokens) + len(tokens))
            )
            return
        for new in step.scheduled_new_reqs:
            self._prompt_tokens.setdefault(new.req_id, len(new.prompt_token_ids or ()))
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens))
        computed.update(
            (new.req_id, new.num_computed_tokens) for new in step.scheduled_new_reqs
        )
        self._rows.append(self._row(tokens, computed))

    def _row(
        self, tokens: "dict[str, int]", computed: "dict[str, int]"
    ) -> "tuple[int, ...]":
        prefill = pairs = prefilling = decoding = context = 0
        for request, count in tokens.items():
            before, prompt = computed[request], self._prompt_tokens.get(request, 0)
            if before < prompt:
                self._chunks[request] = self._chunks.get(request, 0) + 1
                done = before + count >= prompt
                (self._prefilling.discard if done else self._prefilling.add)(request)
            if (
                before < prompt or count > 1
            ):  # also what a preempted request computes again
                prefill += count
                prefilling += 1
                pairs += count * before + count * (count + 1) // 2
            else:
                decoding += 1
                context += before + 1
        return prefill, pairs, prefilling, decoding, context

    def take(self) -> "dict[str, Any]":
        taken = {
            **{
                name: [row[i] for row in self._rows]
                for i, name in enumerate(self.columns)
            },
            "duration_s": self._durations(),
            "chunks": self._chunks,
            "preemptions": self._preempted,
        }
        self._reset()
        return taken

    def _durations(self) -> "list[float | None]":
        """None for the last step, and where the engine waited for work after a step."""
        if not self._marks:
            return []
        if self._on_gpu:
            self._marks[-1].synchronize()
        durations: list[float | None] = []
        for one, other, goes_on in zip(self._marks, self._marks[1:], self._goes_on[1:]):
            seconds = one.elapsed_time(other) / 1000 if self._on_gpu else other - one
            durations.append(seconds if goes_on else None)
        return [*durations, None]
