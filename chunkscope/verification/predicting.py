"""What is predicted of a setting, to stand beside what was measured: memory, prefix-cache hits."""

from contextlib import suppress
from dataclasses import replace

from chunkscope.errors import ChunkscopeError
from chunkscope.hardware.gpus import Gpu, find_gpu
from chunkscope.hardware.parallel import Parallel
from chunkscope.hardware.step_time import StepModel, step_model
from chunkscope.models.shape import ModelShape
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.workload import Workload
from chunkscope.verification.result import Machine, Predicted, Run
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.enums import Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.rules import rules_of
from chunkscope.vllm.settings import KvPool, Settings

NEEDED = ("max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization")
SCHEDULED_BY = (
    *("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold"),
    *("enable_chunked_prefill", "enable_prefix_caching"),
)
# What is there from the start is scheduled in the same steps however long they take.
ANY_STEP = StepModel(
    fixed_s=1.0, per_token_s=0.0, per_prefill_pair_s=0.0, per_decode_context_s=0.0, origin="any"
)


def with_prediction(
    run: Run, shape: ModelShape, machine: Machine | None, workload: Workload
) -> Run:
    """Nothing is predicted before vLLM said what it runs with; on a CPU or an unknown GPU, hits."""
    if machine is None or machine.vllm is None:
        return run
    with suppress(ChunkscopeError):  # what the simulator would refuse, an engine may have taken
        rate = _prefix_hit_rate(run, shape, machine, workload)
        run = replace(run, predicted_prefix_hit_rate=rate)
    gpu = _gpu(machine)
    if gpu is None or not all(run.engine.get(name) for name in NEEDED):
        return run
    there = Deployment(
        release=release(machine.vllm),
        shape=shape,
        gpu=gpu,
        logprobs=workload.task is Task.LOGLIKELIHOOD,
        cuda_graphs=not run.engine.get("enforce_eager"),
    )
    settings = Settings.of(run.engine).over(run.settings)
    memory = there.memory(settings, longest=workload.longest)
    model = there.memory_model(settings)
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
            activation_gib=model.running_peak_gib(
                budget=budget,
                running=running,
                chunk=chunk,
                requests=[(r.prompt_tokens, r.output_tokens) for r in workload.requests],
            ),
            kv_cache_tokens=memory.kv_cache_tokens,
            overhead_gib=memory.line("overhead").gib,
            cuda_graphs_gib=memory.line("cuda_graphs").gib,
            kv_cache_gib=memory.kv_cache_gib,
        ),
    )


def _prefix_hit_rate(
    run: Run, shape: ModelShape, machine: Machine, workload: Workload
) -> float | None:
    """The same requests through the simulator, with the KV cache that the engine had.

    None for models that keep less than every token: what vLLM finds of those is another matter.
    """
    engine, gpu, step = run.engine, _gpu(machine), None
    if not any(request.arrival_s for request in workload.requests):
        step = ANY_STEP
    elif gpu is not None:
        step = step_model(shape, gpu, Parallel(tensor=machine.gpus or 1))
    blocks = engine.get("num_gpu_blocks")
    known = all(engine.get(name) is not None for name in (*SCHEDULED_BY, "block_size")) and blocks
    if not known or step is None or shape.hybrid or shape.attention.sliding_layers:
        return None
    scenario = Scenario(
        requests=workload.requests,
        stretches=workload.stretches,
        rules=replace(
            rules_of(release(machine.vllm)),
            async_scheduling=bool(engine.get("async_scheduling")),
        ),
        step=step,
        prompt_logprobs=workload.task is Task.LOGLIKELIHOOD,
        concurrency=workload.concurrency,
    )
    pool = KvPool(tokens=blocks * engine["block_size"], block_size=engine["block_size"])
    settings = Settings(**{name: engine[name] for name in SCHEDULED_BY})
    return run_setting(scenario, settings, pool).cached_tokens / workload.input_tokens


def _gpu(machine: Machine) -> Gpu | None:
    with suppress(ChunkscopeError):
        return find_gpu(machine.gpu) if machine.gpu else None
    return None
