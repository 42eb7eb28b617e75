"""Where the memory of one GPU goes, on a terminal; for a plan, or for a model without any data."""

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.labels import Label
from chunkscope.artefacts.numbers import number
from chunkscope.hardware.memory import Memory
from chunkscope.hardware.model_kind import kind_of
from chunkscope.report.terminal.tables import figure_table
from chunkscope.vllm.footprint import Footprint

if TYPE_CHECKING:
    from rich.console import Console


def show_footprint(found: Footprint, console: "Console") -> None:
    s, many = found.settings, found.settings.parallel.gpus
    gpus = f"{many} x " if many > 1 else ""
    where = f"{found.shape.name} on {gpus}{found.gpu.title}"
    vllm = f"vLLM {found.deployment.release.text}, --entry {found.deployment.entry}"
    console.print(Text(f"{where}, {vllm} (predicted, not measured)"), style="bold")
    step = f"Up to {number(s.max_num_batched_tokens)} tokens in a step"
    limits = f"{number(s.max_num_seqs)} requests at once, {number(found.context)} tokens each."
    console.print(Text(f"{step}, {limits}"))
    console.print(Text(f"Kind of model: {kind_of(found.shape)}."))
    console.print()
    console.print(memory_table(found.memory))
    console.print()
    console.print(_requests(found))
    console.print()
    for line in _verdict(found):
        console.print(Text(line))


def memory_table(memory: Memory) -> Table:
    table = figure_table("memory per GPU", ["GiB"], gap=1)
    table.add_column("")
    for line in memory.lines:
        table.add_row(line.name, f"{line.gib:.2f}", escape(f"{line.label}: {line.note}"))
    label = memory.kv_cache_label or Label.PREDICTED
    left = f"{label}: {memory.kv_cache_tokens:,} tokens"
    table.add_row("KV cache", f"{memory.kv_cache_gib:.2f}", left)
    of = f"of {memory.total_gib:.1f} GiB; vLLM may use {memory.requested_gib:.1f}"
    table.add_row("all together", f"{memory.requested_gib:.2f}", of, style="bold")
    return table


def _requests(found: Footprint) -> Table:
    lengths = found.requests
    table = figure_table("tokens per request", [number(length) for length in lengths])
    table.add_row("requests that fit", *(number(fit) for fit in lengths.values()))
    return table


def _verdict(found: Footprint) -> list[str]:
    if found.refusals:
        return [f"This does not run: {why}." for why in found.refusals]
    allowed, replicas = found.settings.max_num_seqs or 0, found.settings.parallel.data
    fits, each = found.requests_of(found.context), f" on each of {replicas} replicas"
    each = each if replicas > 1 else ""
    if fits >= allowed:
        many = f"{allowed:,} requests{each}"
        return [f"It runs, and holds all {many} even if each is as long as may be."]
    many = f"{fits:,} of the longest requests at once"
    return [f"It runs: {many}, and never more than {allowed:,}{each}."]
