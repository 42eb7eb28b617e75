"""The public `chunkscope.simulate`: requests of any origin, one setting, one answer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chunkscope.costs.cost_model import CostModel, CostSource
from chunkscope.costs.step_time import StepModel
from chunkscope.engine.choices import ChunkPolicy, Task
from chunkscope.engine.flags import release
from chunkscope.engine.rules import rules_of
from chunkscope.engine.settings import EngineArgs
from chunkscope.lengths.sharing import Stretch, check_stretches
from chunkscope.simulation.loop import Circumstances, run_setting
from chunkscope.simulation.result import Simulation, WorkloadInfo
from chunkscope.simulation.slo import read_slo
from chunkscope.simulation.workload import Request, with_shared_prefix


def simulate(
    requests: Iterable[Request | tuple[int, int]],
    args: EngineArgs | Mapping[str, Any],
    cost: CostModel | StepModel,
    *,
    vllm_version: str | None = None,
    policy: ChunkPolicy = ChunkPolicy.VLLM,
    shared_prefix: int = 0,
    stretches: Sequence[Stretch] = (),
    task: Task = Task.GENERATE,
    timeline: int = 0,
    concurrency: int | None = None,
    slo: str | None = None,
) -> Simulation:
    """What would happen to these requests with this setting.

    A request may be just (prompt tokens, output tokens): then it is there from the start. What
    prompts share: the first `shared_prefix` tokens of all, or the `stretches` that requests name. A
    client with a `concurrency` sends the next when one ends. `slo` as on the command line.
    """
    running = release(vllm_version)
    model = cost if isinstance(cost, CostModel) else _own(cost)
    given = tuple(
        r if isinstance(r, Request) else Request(prompt_tokens=r[0], output_tokens=r[1])
        for r in requests
    )
    if shared_prefix:
        given, stretches = with_shared_prefix(given, shared_prefix)
    check_stretches(stretches, (request.stretch for request in given))
    circumstances = Circumstances(
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
        arrivals="given",
        task=task.value,
        shared_prefix=shared_prefix,
        concurrency=concurrency,
    )
    run = run_setting(circumstances, EngineArgs.of(args), watch=timeline)
    return Simulation(
        cost_model=model, vllm=running.text, workload=info, runs=(run,), warnings=model.warnings
    )


def _own(step: StepModel) -> CostModel:
    return CostModel(
        source=CostSource.ROOFLINE, step=step, gpu="not named", model="not named", vllm=None
    )
