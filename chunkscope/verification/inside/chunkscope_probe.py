"""Inside every worker of the engine: memory at its peak, and what each step computed.

vLLM mixes this class into its workers (`worker_extension_cls`), one per GPU; the engine
program calls the methods through `collective_rpc`. Answers are JSON text: vLLM's own
encoding differs by version.
"""

import contextlib
import ctypes
import json
import time
from dataclasses import dataclass, fields
from typing import Any

import torch

# What vLLM found at start-up: our name, and that of the worker's attribute.
PROFILED = {
    "profiled_activation_bytes": "peak_activation_memory",
    "non_torch_bytes": "non_torch_memory",
    "cuda_graphs_bytes": "cudagraph_memory_estimate",
    "kv_cache_bytes": "available_kv_cache_memory_bytes",
}


class Probe:
    """What chunkscope asks of a worker. No name may be one of vLLM's."""

    model_runner: Any

    def chunkscope_begin(self) -> str:
        """From here on: peaks start at what is held now, and steps are recorded."""
        import vllm

        memory = PeakMemory()
        recorder = StepRecorder(on_gpu=memory.on_gpu)
        self._chunkscope_memory = memory
        self._chunkscope_recorder = recorder
        run = self.model_runner.execute_model

        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            recorder.see(scheduler_output)
            return run(scheduler_output, *args, **kwargs)

        self.model_runner.execute_model = execute_model
        worker = {"rank": getattr(self, "rank", 0), "vllm": vllm.__version__}
        return json.dumps({**worker, **machine(), **profiled(self)})

    def chunkscope_steps(self) -> str:
        """The steps since the last time this was asked."""
        return json.dumps(self._chunkscope_recorder.take())

    def chunkscope_memory(self) -> str:
        sizes = peaks(self._chunkscope_memory)
        return json.dumps({"rank": getattr(self, "rank", 0), **sizes})


def machine() -> "dict[str, Any]":
    device = "cpu"
    gpu = None
    if torch.cuda.is_available():
        device = "cuda"
        gpu = torch.cuda.get_device_name()
    return {"device": device, "gpu": gpu, "torch": str(torch.__version__)}


def profiled(worker: Any) -> "dict[str, int]":
    """The sizes that vLLM itself found at start-up, as far as it names them."""
    sizes = {name: getattr(worker, theirs, None) for name, theirs in PROFILED.items()}
    sizes["weights_bytes"] = getattr(worker.model_runner, "model_memory_usage", None)
    return {name: int(size) for name, size in sizes.items() if size is not None}


# -- memory ----------------------------------------------------------------------------


class PeakMemory:
    """The most memory since this was made: torch's on a GPU, else the process's."""

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
        self._before = own_memory("VmRSS:")

    def peak_bytes(self) -> "int | None":
        if self.on_gpu:
            return int(torch.cuda.max_memory_allocated())
        return own_memory("VmHWM:")

    def beyond_bytes(self) -> "int | None":
        """The peak, without what was there before: weights, and vLLM's KV cache."""
        peak = self.peak_bytes()
        if peak is None or self._before is None:
            return None
        return max(0, peak - self._before)


def peaks(memory: PeakMemory) -> "dict[str, int | None]":
    if not memory.on_gpu:
        return {"activation_peak_bytes": None, "device_peak_bytes": memory.peak_bytes()}
    free, total = torch.cuda.mem_get_info()
    # Torch keeps what it once took, so what is used now is the most that was.
    return {
        "activation_peak_bytes": memory.beyond_bytes(),
        "device_peak_bytes": total - free,
    }


def own_memory(name: str) -> "int | None":
    """A figure of this process in bytes, as Linux has it: "VmRSS:   123 kB"."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return None


# -- steps -----------------------------------------------------------------------------


@dataclass
class Step:
    """What one step held. A pair is a token of a prompt and one of its context."""

    prefill_tokens: int = 0
    prefill_pairs: int = 0
    prefill_requests: int = 0
    decode_requests: int = 0
    decode_context_tokens: int = 0


class StepRecorder:
    """Notes every step. One lasts until the next begins, unless the engine was idle."""

    def __init__(self, *, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._prompt_tokens: dict[str, int] = {}
        self._reset()

    def _reset(self) -> None:
        self._steps: list[Step] = []
        self._marks: list[Any] = []  # when each step began
        self._goes_on: list[bool] = []  # it continues requests of the step before
        self._chunks: dict[str, int] = {}  # by request
        self._reading: set[str] = set()  # requests whose prompt is read in part
        self._preemptions = 0

    def see(self, scheduled: Any) -> None:
        """Note one step, as vLLM's scheduler gives it to the worker."""
        tokens = scheduled.num_scheduled_tokens
        if not scheduled.total_num_scheduled_tokens:
            return
        cached = scheduled.scheduled_cached_reqs
        self._marks.append(self._mark())
        self._goes_on.append(bool(cached.req_ids))
        self._preemptions += len(getattr(scheduled, "preempted_req_ids", None) or ())
        one_each = scheduled.total_num_scheduled_tokens == len(tokens)
        if one_each and len(tokens) == len(cached.req_ids) and not self._reading:
            # Every request decodes one token. Most steps do: this has to be fast.
            context = sum(cached.num_computed_tokens) + len(tokens)
            step = Step(decode_requests=len(tokens), decode_context_tokens=context)
            self._steps.append(step)
            return
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens))
        for new in scheduled.scheduled_new_reqs:
            prompt = len(new.prompt_token_ids or ())
            self._prompt_tokens.setdefault(new.req_id, prompt)
            computed[new.req_id] = new.num_computed_tokens
        self._steps.append(self._step(tokens, computed))

    def _mark(self) -> Any:
        """On the GPU's own clock: with async scheduling the host runs ahead of it."""
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _step(self, tokens: "dict[str, int]", computed: "dict[str, int]") -> Step:
        step = Step()
        for request, count in tokens.items():
            before = computed[request]
            reads = self._note_chunk(request, before, count)
            if reads or count > 1:  # or what a preempted request computes again
                step.prefill_requests += 1
                step.prefill_tokens += count
                step.prefill_pairs += count * before + count * (count + 1) // 2
            else:
                step.decode_requests += 1
                step.decode_context_tokens += before + 1
        return step

    def _note_chunk(self, request: str, before: int, count: int) -> bool:
        """Does the request read a piece of its prompt?"""
        prompt = self._prompt_tokens.get(request, 0)
        if before >= prompt:
            return False
        self._chunks[request] = self._chunks.get(request, 0) + 1
        if before + count >= prompt:
            self._reading.discard(request)
        else:
            self._reading.add(request)
        return True

    def take(self) -> "dict[str, Any]":
        """All that was noted since the last time, by column."""
        columns: dict[str, Any] = {}
        for field in fields(Step):
            columns[field.name] = [getattr(step, field.name) for step in self._steps]
        columns["duration_s"] = self._durations()
        columns["chunks"] = self._chunks
        columns["preemptions"] = self._preemptions
        self._reset()
        return columns

    def _durations(self) -> "list[float | None]":
        """None for the last step, and where the engine waited for work after a step."""
        if not self._marks:
            return []
        if self._on_gpu:
            self._marks[-1].synchronize()
        durations: list[float | None] = []
        for number in range(len(self._marks) - 1):
            seconds = self._seconds(self._marks[number], self._marks[number + 1])
            durations.append(seconds if self._goes_on[number + 1] else None)
        return [*durations, None]

    def _seconds(self, begin: Any, end: Any) -> float:
        if self._on_gpu:
            return float(begin.elapsed_time(end)) / 1000
        return float(end - begin)
