"""A model's memory as blocks: where every GiB goes, and how many requests fit."""

from collections.abc import Sequence

from chunkscope.artefacts.note import Label, Note
from chunkscope.artefacts.numbers import SIZE, plural
from chunkscope.hardware.memory import Memory
from chunkscope.report.blocks import Block, Headline, Notes, Table, Text, Written, table
from chunkscope.report.charts import Bar, Part, StackedBars
from chunkscope.report.notes import sentence
from chunkscope.report.phrases import NEWEST_ASSUMED, machine_text, version_text
from chunkscope.vllm.footprint import Footprint

LEAST_SHOWN_GIB = 0.005  # which is written as 0.01
# As vLLM profiles them at its start: its own figure is one for all of these.
ACTIVATIONS = ("activation", "experts", "sampler", "compiling")


def footprint_blocks(footprint: Footprint) -> list[Block]:
    notes = []
    for note in footprint.notes:
        if note.code != NEWEST_ASSUMED:  # the sentence about the settings has it
            notes.append(sentence(note))
    return [
        Headline(headline(footprint)),
        Text(settings_sentence(footprint)),
        memory_table(footprint.memory),
        requests_table(footprint.requests),
        memory_chart([("predicted", footprint.memory)]),
        Notes(tuple(notes)),
    ]


def headline(footprint: Footprint) -> str:
    """Does it start, and with room for how many requests?"""
    settings, memory = footprint.settings, footprint.memory
    machine = machine_text(
        footprint.shape.load_name, footprint.gpu.title, settings.parallel.gpus
    )
    if footprint.refusals:
        reasons = "; ".join(sentence(refusal) for refusal in footprint.refusals)
        return f"{machine} does not run: {reasons}."
    held = f"{memory.kv_cache_tokens:,} tokens of KV cache"
    if settings.parallel.data > 1:
        held += " per replica"
    return f"{machine} fits: {held}, enough for {longest_requests(footprint)}."


def longest_requests(footprint: Footprint) -> str:
    """How many requests of the full context are held, of those that may run."""
    held = footprint.requests[footprint.context]
    places = footprint.settings.max_num_seqs or 0
    each = f"of the full {plural(footprint.context, 'token')}"
    if held >= places > 1:
        return f"all {places:,} requests {each}"
    return f"{plural(min(held, places), 'request')} {each}"


def settings_sentence(footprint: Footprint) -> str:
    settings, memory = footprint.settings, footprint.memory
    text = (
        f"Predicted for {version_text(footprint.deployment, footprint.notes)}: "
        f"{plural(settings.max_num_batched_tokens or 0, 'token')} per step, at most "
        f"{plural(settings.max_num_seqs or 0, 'request')} at once."
    )
    if not memory.kv_cache_tokens:
        return text
    kib = memory.kv_cache_bytes / 1024 / memory.kv_cache_tokens
    return f"{text} A token takes {kib:,.4g} KiB of KV cache per GPU."


def requests_table(requests: dict[int, int]) -> Table:
    """How many requests fit, by their tokens; empty where none does."""
    headings = ["tokens per request"]
    row: list[Written] = ["requests that fit"]
    for tokens, fitting in requests.items():
        headings.append(f"{tokens:,}")
        row.append(fitting)
    rows = [row] if any(requests.values()) else []
    return table(headings, rows)


def memory_table(memory: Memory) -> Table:
    """What one GPU holds, line by line: GiB, where that is from, and what it is."""
    rows = []
    for line in memory.lines:
        if line.gib >= LEAST_SHOWN_GIB:
            rows.append(memory_row(line.name, line.gib, line.label, line.note))
    if memory.kv_cache_gib >= LEAST_SHOWN_GIB:
        label = memory.kv_cache_label or Label.PREDICTED
        left = f"what is left: {plural(memory.kv_cache_tokens, 'token')}"
        rows.append(("KV cache", f"{memory.kv_cache_gib:.2f}", label, left))
    used_gib = memory.requested_gib - min(0.0, memory.kv_cache_gib)
    total = f"of {memory.total_gib:.1f} GiB"
    rows.append(("all together", f"{used_gib:.2f}", "", total))
    headings = ("per GPU", "GiB", "basis", "from")
    return table(headings, rows, words=["basis", "from"], strong=[len(rows) - 1])


def memory_row(name: str, gib: float, label: Label, note: Note) -> tuple[str, ...]:
    return name.replace("cuda_", "CUDA "), f"{gib:.2f}", label, sentence(note)


# -- as a picture -----------------------------------------------------------------------


def memory_parts(memory: Memory) -> tuple[Part, ...]:
    """Weights, activations, KV cache and the rest, in GiB."""
    weights_gib = memory.line("weights").gib
    activations_gib = 0.0
    for line in memory.lines:
        if line.name in ACTIVATIONS:
            activations_gib += line.gib
    kv_cache_gib = max(0.0, memory.kv_cache_gib)
    rest_gib = memory.requested_gib - weights_gib - activations_gib - kv_cache_gib
    return (
        Part(name="weights", value=weights_gib),
        Part(name="activations", value=activations_gib),
        Part(name="KV cache", value=kv_cache_gib),
        Part(name="rest", value=max(0.0, rest_gib)),
    )


def memory_chart(named: Sequence[tuple[str, Memory]]) -> StackedBars:
    """A bar for each bill, on one scale up to what the GPU has."""
    bars = [Bar(name=name, parts=memory_parts(memory)) for name, memory in named]
    return memory_bars(bars, limit=named[0][1].total_gib)


def memory_bars(bars: Sequence[Bar], limit: float | None) -> StackedBars:
    return StackedBars(
        title="Memory of one GPU",
        alternative="How much of one GPU's memory weights, activations, the KV cache "
        "and the rest take. The table of the memory has the numbers.",
        unit=SIZE,
        bars=tuple(bars),
        limit=limit,
        limit_name="what the GPU has",
    )
