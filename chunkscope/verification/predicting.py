"""What the memory model of `recommend` says of a setting, to stand beside what was measured."""

from dataclasses import replace

from chunkscope.costs.gpus import Gpu, find_gpu
from chunkscope.costs.memory import Engine
from chunkscope.costs.models.shape import ModelShape
from chunkscope.engine.choices import Task
from chunkscope.engine.flags import release
from chunkscope.errors import ChunkscopeError
from chunkscope.simulation.workload import Workload
from chunkscope.verification.result import Predicted, Run

NEEDED = ("max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization")


def with_prediction(
    run: Run, shape: ModelShape, *, gpu_title: str | None, vllm: str | None, workload: Workload
) -> Run:
    """Nothing is predicted on a CPU, on an unknown GPU, or before vLLM said what it runs with."""
    gpu = _gpu(gpu_title)
    if gpu is None or vllm is None or not all(run.engine.get(name) for name in NEEDED):
        return run
    engine = Engine(
        shape=shape,
        gpu=gpu,
        release=release(vllm),
        tp=run.engine.get("tensor_parallel_size") or 1,
        logprobs=workload.task is Task.LOGLIKELIHOOD,
        cuda_graphs=not run.engine.get("enforce_eager"),
    )
    budget, seqs = run.engine["max_num_batched_tokens"], run.engine["max_num_seqs"]
    threshold = run.engine.get("long_prefill_token_threshold") or budget
    chunk = min(threshold, budget, workload.longest)
    memory = engine.memory(
        budget=budget, seqs=seqs, utilization=run.engine["gpu_memory_utilization"], chunk=chunk
    )
    running = min(seqs, len(workload.requests))
    return replace(
        run,
        predicted=Predicted(
            weights_gib=memory.line("weights").gib,
            activation_gib=engine.running_peak_gib(budget=budget, running=running, chunk=chunk),
            kv_cache_tokens=memory.kv_cache_tokens,
            note=memory.line("activation").note,
            overhead_gib=memory.line("overhead").gib,
            cuda_graphs_gib=memory.line("cuda_graphs").gib,
            kv_cache_gib=memory.kv_cache_gib,
        ),
    )


def _gpu(title: str | None) -> Gpu | None:
    if title is None:
        return None
    try:
        return find_gpu(title)
    except ChunkscopeError:
        return None
