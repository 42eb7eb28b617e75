"""The public `chunkscope.simulate`: requests of any origin, one setting, one answer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chunkscope.artefacts.words import one_of
from chunkscope.hardware.cost_model import CostModel, CostSource
from chunkscope.hardware.step_time import StepModel
from chunkscope.prefixes.sharing import Stretch, check_stretches
from chunkscope.simulation.loop import Scenario, run_setting
from chunkscope.simulation.result import Simulation, WorkloadInfo
from chunkscope.simulation.slo import read_slo
from chunkscope.simulation.workload import GIVEN, Request, with_shared_prefix
from chunkscope.vllm.enums import ChunkPolicy, Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.rules import rules_of
from chunkscope.vllm.settings import EngineArgs


def simulate(
    requests: Iterable[Request | tuple[int, int]],
    args: EngineArgs | Mapping[str, Any],
    cost: CostModel | StepModel,
    *,
    vllm_version: str | None = None,
    policy: ChunkPolicy | str = ChunkPolicy.VLLM,
    shared_prefix: int = 0,
    stretches: Sequence[Stretch] = (),
    task: Task | str = Task.GENERATE,
    timeline: int = 0,
    concurrency: int | None = None,
    slo: str | None = None,
) -> Simulation:
    """What would happen to these requests with this setting.

    A request may be just (prompt tokens, output tokens): then it is there from the start. What
    prompts share: the first `shared_prefix` tokens of all, or the `stretches` that requests name. A
    client with a `concurrency` sends the next when one ends. `slo` as on the command line.

    >>> step = StepModel(fixed_s=0.005, per_token_s=2e-5, per_prefill_pair_s=1e-9,
    ...                  per_decode_context_s=4e-8, origin="made up")
    >>> room = {"max_num_seqs": 8, "kv_cache_tokens": 100_000, "max_model_len": 8_192}
    >>> found = simulate([(4_000, 16), (200, 16)], {"max_num_batched_tokens": 512, **room}, step)
    >>> found
    <Simulation of 2 requests under 1 setting: all done in 215 ms>
    """
    policy, task = one_of(ChunkPolicy, policy, "policy"), one_of(Task, task, "task")
    running = release(vllm_version)
    model = cost if isinstance(cost, CostModel) else _own(cost)
    given = tuple(
        r if isinstance(r, Request) else Request(prompt_tokens=r[0], output_tokens=r[1])
        for r in requests
    )
    if shared_prefix:
        given, stretches = with_shared_prefix(given, shared_prefix)
    check_stretches(stretches, (request.stretch for request in given))
    scenario = Scenario(
        requests=given,
        rules=rules_of(running),
        step=model.step,
        stretches=tuple(stretches),
        prompt_logprobs=task is Task.LOGLIKELIHOOD,
        policy=policy,
        concurrency=concurrency,
        slo=read_slo(slo),
    )
    info = WorkloadInfo(
        source="given",
        requests=len(given),
        seed=None,
        arrivals=GIVEN,
        task=task.value,
        shared_prefix=shared_prefix,
        concurrency=concurrency,
    )
    run = run_setting(scenario, EngineArgs.of(args), watch=timeline)
    return Simulation(
        cost_model=model,
        vllm=running.text,
        workload=info,
        runs=(run,),
        notes=model.notes,
    )


def _own(step: StepModel) -> CostModel:
    return CostModel(
        source=CostSource.ROOFLINE, step=step, gpu="not named", model="not named", vllm=None
    )
