"""What the memory model of `recommend` says of a setting, to stand beside what was measured."""

from contextlib import suppress
from dataclasses import replace

from chunkscope.costs.gpus import Gpu, find_gpu
from chunkscope.costs.models.shape import ModelShape
from chunkscope.engine.choices import Task
from chunkscope.engine.deployment import Deployment
from chunkscope.engine.flags import release
from chunkscope.engine.settings import Settings
from chunkscope.errors import ChunkscopeError
from chunkscope.simulation.workload import Workload
from chunkscope.verification.result import Machine, Predicted, Run

NEEDED = ("max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization")


def with_prediction(
    run: Run, shape: ModelShape, machine: Machine | None, workload: Workload
) -> Run:
    """Nothing is predicted on a CPU, on an unknown GPU, or before vLLM said what it runs with."""
    gpu = _gpu(machine)
    if machine is None or gpu is None or machine.vllm is None:
        return run
    if not all(run.engine.get(name) for name in NEEDED):
        return run
    there = Deployment(
        release=release(machine.vllm),
        shape=shape,
        gpu=gpu,
        logprobs=workload.task is Task.LOGLIKELIHOOD,
        cuda_graphs=not run.engine.get("enforce_eager"),
    )
    settings = Settings.of(run.engine)
    memory = there.memory(settings, longest=workload.longest)
    model = there.memory_model(settings.tensor_parallel_size or 1)
    if memory is None or model is None:
        return run
    budget, seqs = run.engine["max_num_batched_tokens"], run.engine["max_num_seqs"]
    threshold = settings.long_prefill_token_threshold or budget
    chunk = min(threshold, budget, workload.longest)
    running = min(seqs, len(workload.requests))
    return replace(
        run,
        predicted=Predicted(
            weights_gib=memory.line("weights").gib,
            activation_gib=model.running_peak_gib(budget=budget, running=running, chunk=chunk),
            kv_cache_tokens=memory.kv_cache_tokens,
            note=memory.line("activation").note,
            overhead_gib=memory.line("overhead").gib,
            cuda_graphs_gib=memory.line("cuda_graphs").gib,
            kv_cache_gib=memory.kv_cache_gib,
        ),
    )


def _gpu(machine: Machine | None) -> Gpu | None:
    with suppress(ChunkscopeError):
        return find_gpu(machine.gpu) if machine and machine.gpu else None
    return None
