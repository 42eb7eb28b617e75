"""Where the memory of one GPU goes, setting by setting: predicted beside measured."""

from collections.abc import Iterator
from typing import Any

from chunkscope.artefacts.note import Label
from chunkscope.findings import Findings
from chunkscope.hardware.memory import Memory
from chunkscope.report.section import Cell, Chart, Section, Table, table_of
from chunkscope.report.verification import titled
from chunkscope.report.words import verdicts as words
from chunkscope.verification.result import Predicted, Run, WorkerMemory

# In the order they are stacked. `overhead` is what neither torch nor the KV cache accounts for.
PARTS = (
    *("weights", "activation", "experts", "sampler", "logprobs", "CUDA graphs"),
    *("overhead", "KV cache"),
)
FIELDS = {
    "weights": "weights_gib",
    "activation": "activation_gib",
    "CUDA graphs": "cuda_graphs_gib",
    "overhead": "overhead_gib",
    "KV cache": "kv_cache_gib",
}
Breakdown = dict[str, Any]  # as the page draws it: setting, label, parts in GiB, tokens, peak, fate


def section(findings: Findings) -> Section:
    """Empty when nothing is known of any memory."""
    bills = list(breakdowns(findings))
    if not bills:
        return Section()
    parts = [part for part in PARTS if any(part in bill["parts"] for bill in bills)]
    memory = findings.plan.memory if findings.plan else None
    machine = findings.verification.machine if findings.verification else None
    data = {
        "parts": parts,
        "limit": (machine and machine.gpu_memory_gib) or (memory.total_gib if memory else None),
        "allowed": memory.requested_gib if memory else None,
        "bills": bills,
    }
    lead = words.memory_lead(findings)
    return Section(
        sentences=(lead,), chart=Chart(name="memory", data=data), table=_table(bills, parts)
    )


def _table(bills: list[Breakdown], parts: list[str]) -> Table | None:
    rows = [
        (
            bill["setting"],
            Cell(text=bill["fate"], look="bad") if bill["fate"] else bill["label"],
            *(f"{bill['parts'][p]:,.2f}" if p in bill["parts"] else None for p in parts),
            bill["tokens"],
        )
        for bill in bills
    ]
    heads = ("setting", "known", *parts, "KV tokens")
    return table_of(heads, rows, words=("known",), caption="GiB of one GPU")


def breakdowns(findings: Findings) -> Iterator[Breakdown]:
    """Of the plan, unless it was run, and of every run. What is not known is missing, never 0."""
    plan, v = findings.plan, findings.verification
    runs = v.runs if v else ()
    memory = plan.memory if plan else None
    if memory is not None and not any(run.is_called("plan") for run in runs):
        yield _bill("plan", memory.kv_cache_label or Label.PREDICTED, *_of_plan(memory))
    for run in runs:
        # What was predicted beside the measurement is like it: of running steps, not of profiling.
        if run.predicted:
            yield _bill(titled(run), Label.PREDICTED, *_of_prediction(run.predicted))
        yield from _measured(run)


def _bill(
    setting: str, label: Label, parts: dict[str, float | None], tokens: int | None
) -> Breakdown:
    known = {name: round(gib, 4) for name, gib in parts.items() if gib}
    fixed = {"setting": setting, "label": label.value, "peak": None, "fate": None}
    return {**fixed, "parts": known, "tokens": tokens}


def _of_plan(memory: Memory) -> tuple[dict[str, float | None], int | None]:
    parts = {line.name.replace("cuda_graphs", "CUDA graphs"): line.gib for line in memory.lines}
    parts["overhead"] = max(0.0, parts.get("overhead", 0.0) + parts.pop("correction", 0.0))
    parts["KV cache"] = max(0.0, memory.kv_cache_gib)
    return {**parts}, memory.kv_cache_tokens


def _of_prediction(predicted: Predicted) -> tuple[dict[str, float | None], int | None]:
    parts = {part: getattr(predicted, name) for part, name in FIELDS.items()}
    return parts, predicted.kv_cache_tokens


def _measured(run: Run) -> Iterator[Breakdown]:
    """Of the GPU that needed most: it is the one that runs out."""
    workers = [_of_worker(worker) for worker in run.workers]
    parts = max(workers, key=lambda one: sum(gib or 0 for gib in one.values()), default={})
    if any(parts.values()) or not run.ok:
        bill = _bill(titled(run), Label.MEASURED, parts, run.kv_cache_tokens)
        fate = None if run.ok else words.STATUS[run.status]
        yield {**bill, "peak": run.device_peak_gib, "fate": fate}


def _of_worker(worker: WorkerMemory) -> dict[str, float | None]:
    activation = worker.activation_peak_gib
    activation = worker.profiled_activation_gib if activation is None else activation
    parts = {part: getattr(worker, name, None) for part, name in FIELDS.items()}
    return {**parts, "activation": activation, "overhead": worker.non_torch_gib}
