"""Where the memory of one GPU goes, setting by setting: predicted beside measured."""

from collections.abc import Iterator
from dataclasses import dataclass

from chunkscope.artefacts.labels import Label
from chunkscope.findings import Findings
from chunkscope.planning.plan import Plan
from chunkscope.report.runs import fate, titled
from chunkscope.verification.result import Predicted, Run, WorkerMemory

# In the order they are stacked. `overhead` is what neither torch nor the KV cache accounts for.
PARTS = (
    "weights",
    "activation",
    "experts",
    "sampler",
    "logprobs",
    "CUDA graphs",
    "overhead",
    "KV cache",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """One setting's memory. Parts that are not known are missing, never 0."""

    setting: str
    label: Label
    parts: dict[str, float]
    kv_cache_tokens: int | None = None
    peak_gib: float | None = None  # the most the device held while requests ran
    fate: str | None = None  # why nothing was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Bills:
    """`limit_gib` is the GPU's memory, `allowed_gib` the share of it vLLM was given."""

    bills: tuple[Bill, ...]
    limit_gib: float | None = None
    allowed_gib: float | None = None
    gpu: str | None = None

    @property
    def parts(self) -> list[str]:
        """Those that at least one setting has, in the order they are stacked."""
        return [part for part in PARTS if any(part in bill.parts for bill in self.bills)]


def bills(findings: Findings) -> Bills | None:
    """None when nothing is known of any memory."""
    found = tuple(_all(findings))
    if not found:
        return None
    plan, verification = findings.plan, findings.verification
    memory = plan.memory if plan else None
    machine = verification.machine if verification else None
    measured = machine.gpu_memory_gib if machine else None
    gpu = machine.gpu if machine and machine.gpu else plan.gpu.title if plan and plan.gpu else None
    return Bills(
        bills=found,
        limit_gib=measured or (memory.total_gib if memory else None),
        allowed_gib=memory.requested_gib if memory else None,
        gpu=gpu,
    )


def _all(findings: Findings) -> Iterator[Bill]:
    plan = findings.plan
    runs = findings.verification.runs if findings.verification else ()
    if plan is not None and not any(_is_plan(run) for run in runs):
        yield from _of_plan(plan, "plan")
    for run in runs:
        yield from _of_run(run, findings)


def _of_plan(plan: Plan, setting: str) -> Iterator[Bill]:
    memory = plan.memory
    if memory is None:
        return
    parts = {line.name.replace("cuda_graphs", "CUDA graphs"): line.gib for line in memory.lines}
    parts["overhead"] += parts.pop("correction", 0.0)
    parts["KV cache"] = max(0.0, memory.kv_cache_gib)
    yield Bill(
        setting=setting,
        label=memory.kv_cache_label or Label.PREDICTED,
        parts={name: gib for name, gib in parts.items() if gib > 0},
        kv_cache_tokens=memory.kv_cache_tokens,
    )


def _of_run(run: Run, findings: Findings) -> Iterator[Bill]:
    plan = findings.plan if _is_plan(run) and findings.verification_is_of_this_plan else None
    said = run.predicted
    # What was predicted beside the measurement is like it: of running steps, not of profiling.
    if said is not None and (said.kv_cache_gib is not None or plan is None or not plan.memory):
        yield _predicted(run, said)
    elif plan is not None:
        yield from _of_plan(plan, titled(run))
    parts = _measured(run.workers)
    if parts or not run.ok:
        yield Bill(
            setting=titled(run),
            label=Label.MEASURED,
            parts=parts,
            kv_cache_tokens=run.kv_cache_tokens,
            peak_gib=run.device_peak_gib,
            fate=None if run.ok else fate(run),
        )


def _is_plan(run: Run) -> bool:
    return "plan" in (run.setting, *run.same_as)


def _predicted(run: Run, said: Predicted) -> Bill:
    parts = {
        "weights": said.weights_gib,
        "activation": said.activation_gib,
        "CUDA graphs": said.cuda_graphs_gib,
        "overhead": said.overhead_gib,
        "KV cache": said.kv_cache_gib,
    }
    if said.kv_cache_gib is None and (per_token := _kv_gib_per_token(run)) is not None:
        parts["KV cache"] = said.kv_cache_tokens * per_token
    return Bill(
        setting=titled(run),
        label=Label.PREDICTED,
        parts={name: gib for name, gib in parts.items() if gib is not None},
        kv_cache_tokens=said.kv_cache_tokens,
    )


def _kv_gib_per_token(run: Run) -> float | None:
    """As the engine had it: a prediction in tokens is drawn on the measurement's scale."""
    held = next((w.kv_cache_gib for w in run.workers if w.kv_cache_gib is not None), None)
    return held / run.kv_cache_tokens if held is not None and run.kv_cache_tokens else None


def _measured(workers: tuple[WorkerMemory, ...]) -> dict[str, float]:
    """Of the GPU that needed most: it is the one that runs out."""
    if not workers:
        return {}
    return max((_parts(worker) for worker in workers), key=lambda parts: sum(parts.values()))


def _parts(worker: WorkerMemory) -> dict[str, float]:
    activation = worker.activation_peak_gib
    found = {
        "weights": worker.weights_gib,
        "activation": worker.profiled_activation_gib if activation is None else activation,
        "CUDA graphs": worker.cuda_graphs_gib,
        "overhead": worker.non_torch_gib,
        "KV cache": worker.kv_cache_gib,
    }
    return {name: gib for name, gib in found.items() if gib is not None}
