"""Where the memory of one GPU goes, setting by setting: predicted beside measured."""

from collections.abc import Iterator
from dataclasses import dataclass

from chunkscope.artefacts.note import Label
from chunkscope.artefacts.numbers import number
from chunkscope.findings import Findings
from chunkscope.planning.plan import Plan
from chunkscope.report.section import Cell, Chart, Column, Section, Table, figures
from chunkscope.report.verification import titled
from chunkscope.report.words import verdicts as words
from chunkscope.verification.result import Predicted, Run, WorkerMemory

# In the order they are stacked. `overhead` is what neither torch nor the KV cache accounts for.
PARTS = (
    *("weights", "activation", "experts", "sampler", "logprobs", "CUDA graphs"),
    *("overhead", "KV cache"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown:
    """One setting's memory. Parts that are not known are missing, never 0."""

    setting: str
    label: Label
    parts: dict[str, float]
    kv_cache_tokens: int | None = None
    peak_gib: float | None = None  # the most the device held while requests ran
    failure: str | None = None  # why nothing was measured


def section(findings: Findings) -> Section | None:
    """None when nothing is known of any memory."""
    rows = list(breakdowns(findings))
    if not rows:
        return None
    parts = [part for part in PARTS if any(part in row.parts for row in rows)]
    plan, verification = findings.plan, findings.verification
    memory = plan.memory if plan else None
    machine = verification.machine if verification else None
    data = {
        "parts": parts,
        "limit": (machine and machine.gpu_memory_gib) or (memory.total_gib if memory else None),
        "allowed": memory.requested_gib if memory else None,
        "bills": [
            {
                "setting": row.setting,
                "label": row.label.value,
                "parts": {name: round(gib, 4) for name, gib in row.parts.items()},
                "tokens": row.kv_cache_tokens,
                "peak": row.peak_gib,
                "fate": row.failure,
            }
            for row in rows
        ],
    }
    return Section(
        sentences=(words.memory_lead(findings),),
        chart=Chart(name="memory", data=data),
        table=_table(rows, parts),
    )


def _table(rows: list[MemoryBreakdown], parts: list[str]) -> Table:
    columns = (
        Column(heading="setting", right=False),
        Column(heading="known", right=False, fixed=True),
        *figures("", *parts, "KV tokens")[1:],
    )
    cells = [
        (
            row.setting,
            Cell(text=row.failure, look="bad") if row.failure else row.label.value,
            *(_cell(f"{row.parts[p]:,.2f}" if p in row.parts else None) for p in parts),
            _cell(number(row.kv_cache_tokens) if row.kv_cache_tokens is not None else None),
        )
        for row in rows
    ]
    return Table(columns=columns, rows=tuple(cells), caption="GiB of one GPU")


def _cell(text: str | None) -> Cell | str:
    return text if text is not None else Cell(text="-", look="none")


def breakdowns(findings: Findings) -> Iterator[MemoryBreakdown]:
    plan = findings.plan
    runs = findings.verification.runs if findings.verification else ()
    if plan is not None and not any(run.is_called("plan") for run in runs):
        yield from _of_plan(plan, "plan")
    for run in runs:
        yield from _of_run(run, findings)


def _of_plan(plan: Plan, setting: str) -> Iterator[MemoryBreakdown]:
    memory = plan.memory
    if memory is None:
        return
    parts = {line.name.replace("cuda_graphs", "CUDA graphs"): line.gib for line in memory.lines}
    parts["overhead"] = parts.get("overhead", 0.0) + parts.pop("correction", 0.0)
    parts["KV cache"] = max(0.0, memory.kv_cache_gib)
    yield MemoryBreakdown(
        setting=setting,
        label=memory.kv_cache_label or Label.PREDICTED,
        parts={name: gib for name, gib in parts.items() if gib > 0},
        kv_cache_tokens=memory.kv_cache_tokens,
    )


def _of_run(run: Run, findings: Findings) -> Iterator[MemoryBreakdown]:
    is_plan = run.is_called("plan") and findings.verification_is_of_this_plan
    plan, predicted = findings.plan if is_plan else None, run.predicted
    # What was predicted beside the measurement is like it: of running steps, not of profiling.
    if predicted and (predicted.kv_cache_gib is not None or plan is None or not plan.memory):
        yield _predicted(run, predicted)
    elif plan is not None:
        yield from _of_plan(plan, titled(run))
    parts = max(map(_parts, run.workers), key=lambda part: sum(part.values()), default={})
    if parts or not run.ok:
        yield MemoryBreakdown(
            setting=titled(run),
            label=Label.MEASURED,
            parts=parts,  # of the GPU that needed most: it is the one that runs out
            kv_cache_tokens=run.kv_cache_tokens,
            peak_gib=run.device_peak_gib,
            failure=None if run.ok else words.STATUS[run.status],
        )


def _predicted(run: Run, predicted: Predicted) -> MemoryBreakdown:
    parts = {
        "weights": predicted.weights_gib,
        "activation": predicted.activation_gib,
        "CUDA graphs": predicted.cuda_graphs_gib,
        "overhead": predicted.overhead_gib,
        "KV cache": predicted.kv_cache_gib,
    }
    held = next((w.kv_cache_gib for w in run.workers if w.kv_cache_gib is not None), None)
    if predicted.kv_cache_gib is None and held is not None and run.kv_cache_tokens:
        # A prediction in tokens is drawn on the measurement's scale.
        parts["KV cache"] = predicted.kv_cache_tokens * held / run.kv_cache_tokens
    return MemoryBreakdown(
        setting=titled(run),
        label=Label.PREDICTED,
        parts={name: gib for name, gib in parts.items() if gib is not None},
        kv_cache_tokens=predicted.kv_cache_tokens,
    )


def _parts(worker: WorkerMemory) -> dict[str, float]:
    activation = worker.activation_peak_gib
    gib = {
        "weights": worker.weights_gib,
        "activation": worker.profiled_activation_gib if activation is None else activation,
        "CUDA graphs": worker.cuda_graphs_gib,
        "overhead": worker.non_torch_gib,
        "KV cache": worker.kv_cache_gib,
    }
    return {name: value for name, value in gib.items() if value is not None}
