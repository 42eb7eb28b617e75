"""What planning's `Simulator` and memory model say of a setting, beside what was measured."""

from contextlib import suppress
from dataclasses import replace

from chunkscope.errors import ChunkscopeError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.step_time import StepModel
from chunkscope.models.shape import ModelShape
from chunkscope.planning.request import PlanRequest
from chunkscope.planning.simulator import Simulator
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.workload import Workload
from chunkscope.verification.result import Machine, Run
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import KvPool, Settings

# What is there from the start is scheduled in the same steps however long they take.
ANY_STEP = StepModel(fixed_s=1.0)


def with_prediction(
    run: Run,
    shape: ModelShape,
    machine: Machine | None,
    workload: Workload,
    request: PlanRequest,
    entry: Entry = Entry.SERVE,
) -> Run:
    """As `chunkscope simulate` predicts it; on a CPU or an unknown GPU only the cache's hits."""
    if machine is None or machine.vllm is None:
        return run
    gpu = None
    with suppress(ChunkscopeError):
        gpu = find_gpu(machine.gpu) if machine.gpu else None
    deployment = Deployment(
        release=release(machine.vllm),
        shape=shape,
        gpu=gpu,
        entry=entry,
        logprobs=bool(workload.likelihoods),
        cuda_graphs=not run.engine.get("enforce_eager"),
    )
    simulator = Simulator(request=request, deployment=deployment, workload=workload)
    with suppress(
        ChunkscopeError
    ):  # what the simulator would refuse, an engine may have taken
        simulated = simulated_as_measured(run, simulator)
        # Of models that keep less than every token vLLM finds another part.
        if simulated and not shape.hybrid and not shape.attention.sliding_layers:
            hits = simulated.cached_tokens / workload.input_tokens
            run = replace(run, predicted_prefix_hit_rate=hits)
    settings = Settings.of(run.engine).over(
        run.settings
    )  # also what only `--engine-arg` said
    if gpu is None or not run.engine.get("max_num_batched_tokens"):
        return run
    with suppress(ChunkscopeError):
        run = replace(run, predicted_figures=simulator.run(settings).figures)
    with suppress(ChunkscopeError):
        run = _with_memory(run, simulator, settings)
    return run


def simulated_as_measured(run: Run, simulator: Simulator) -> SimulatedRun | None:
    """With the KV cache that the engine had; None where it does not say how large that was."""
    engine = run.engine
    blocks, size = engine.get("num_gpu_blocks"), engine.get("block_size")
    if not blocks or not size:
        return None
    at_once = not any(request.arrival_s for request in simulator.workload.requests)
    as_measured = replace(
        simulator,
        step=ANY_STEP if at_once else None,
        kv_pool=KvPool(tokens=blocks * size, block_size=size),
        async_scheduling=bool(engine.get("async_scheduling")),
    )
    return as_measured.run(Settings.of(engine))


def _with_memory(run: Run, simulator: Simulator, settings: Settings) -> Run:
    deployment = replace(simulator.deployment, compiled_before=run.compiled_before)
    memory = deployment.memory(settings, longest=simulator.workload.longest)
    return replace(run, predicted=memory)
