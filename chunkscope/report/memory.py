"""Where the memory of one GPU goes, setting by setting: predicted beside measured."""

from collections.abc import Iterator
from typing import Any

from chunkscope.artefacts.note import Label
from chunkscope.findings import Findings
from chunkscope.report.section import Cell, Chart, Section, table_of
from chunkscope.report.verification import STATUS, titled

# In the order they are stacked, and how vLLM's workers call them. `overhead` is what neither torch
# nor the KV cache accounts for.
PARTS = {
    "weights": "weights_gib",
    "activation": "activation_gib",
    "experts": "",
    "sampler": "",
    "logprobs": "",
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
    lead = "One GPU, by setting. vLLM gives what is left to the KV cache. Faint bars are predicted."
    if machine is not None and machine.device == "cpu":
        lead = "Memory of the process by setting, beyond the weights."
    return Section(
        sentences=(lead,),
        chart=Chart(name="memory", data=data),
        table=table_of(heads, rows, words=("known",), caption="GiB of one GPU"),
    )


def breakdowns(findings: Findings) -> Iterator[Breakdown]:
    """Of the plan, unless it was run, and of every run. What is not known is missing, never 0."""
    plan, v = findings.plan, findings.verification
    runs = v.runs if v else ()
    memory = plan.memory if plan else None
    if memory is not None and not any(run.is_called("plan") for run in runs):
        lines = {line.name.replace("cuda_graphs", "CUDA graphs"): line.gib for line in memory.lines}
        overhead = lines.get("overhead", 0.0) + lines.pop("correction", 0.0)
        lines |= {"overhead": max(0.0, overhead), "KV cache": max(0.0, memory.kv_cache_gib)}
        label = memory.kv_cache_label or Label.PREDICTED
        yield _bill("plan", label, lines, memory.kv_cache_tokens)
    for run in runs:
        # What was predicted beside the measurement is like it: of running steps, not of profiling.
        if run.predicted:
            tokens = run.predicted.kv_cache_tokens
            yield _bill(titled(run), Label.PREDICTED, _parts(run.predicted), tokens)
        # Of the GPU that needed most: it is the one that runs out.
        workers = [
            {**_parts(worker), "overhead": worker.non_torch_gib, "activation": peak}
            for worker in run.workers
            for peak in [worker.activation_peak_gib or worker.profiled_activation_gib]
        ]
        parts = max(workers, key=lambda one: sum(gib or 0 for gib in one.values()), default={})
        if any(parts.values()) or not run.ok:
            bill = _bill(titled(run), Label.MEASURED, parts, run.kv_cache_tokens)
            fate = None if run.ok else STATUS[run.status]
            yield {**bill, "peak": run.device_peak_gib, "fate": fate}


def _parts(memory: object) -> dict[str, float | None]:
    return {part: getattr(memory, name, None) for part, name in PARTS.items() if name}


def _bill(setting: str, label: Label, parts: dict[str, Any], tokens: int | None) -> Breakdown:
    sizes = {name: round(gib, 4) for name, gib in parts.items() if gib}
    fixed = {"setting": setting, "label": label.value, "peak": None, "fate": None}
    return {**fixed, "parts": sizes, "tokens": tokens}
