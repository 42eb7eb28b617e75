"""What planning's `Simulator` and memory model say of a setting, beside what was measured."""

import sys
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
EVERY_STEP = sys.maxsize


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


def simulated_as_measured(
    run: Run, simulator: Simulator, watch: int = 0
) -> SimulatedRun | None:
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
    return as_measured.run(Settings.of(engine), timeline=watch)


def prompt_steps(run: SimulatedRun) -> list[tuple[int, list[tuple[int, int]]]]:
    """Those that read prompts: how many requests decode beside, and the pieces."""
    steps = (step for step in run.timeline if step.chunks)
    return [
        (step.decode_requests, [(c.start, c.end) for c in step.chunks])
        for step in steps
    ]


def _with_memory(run: Run, simulator: Simulator, settings: Settings) -> Run:
    """The peak is that of the warm-up, when all requests are there at once."""
    deployment = replace(simulator.deployment, compiled_before=run.compiled_before)
    sessions = tuple(replace(one, arrival_s=0.0) for one in simulator.workload.sessions)
    at_once = replace(simulator.workload, sessions=sessions, concurrency=None)
    warm_up = simulated_as_measured(
        run, replace(simulator, workload=at_once), EVERY_STEP
    )
    memory = deployment.memory(settings, longest=simulator.workload.longest)
    model = deployment.memory_model(settings)
    if warm_up is None or memory is None or model is None:
        return run
    peak = model.running_peak_gib(prompt_steps(warm_up), running=warm_up.most_running)
    return replace(run, predicted=memory, predicted_activation_gib=peak)
