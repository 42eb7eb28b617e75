"""A model's memory as blocks: where every GiB goes, and how many requests fit."""

from chunkscope.artefacts.note import Label
from chunkscope.artefacts.numbers import plural
from chunkscope.hardware.memory import Memory
from chunkscope.report.blocks import Block, Headline, Notes, Table, Text, Written, table
from chunkscope.report.charts import StackedBars
from chunkscope.report.notes import sentence
from chunkscope.report.phrases import NEWEST_ASSUMED, machine_text, version_text
from chunkscope.report.pictures import memory_bars, predicted_memory_bar
from chunkscope.vllm.footprint import Footprint

LEAST_SHOWN_GIB = 0.005  # which is written as 0.01


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
        predicted_memory(footprint.memory),
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
    per_replica = " per replica" if settings.parallel.data > 1 else ""
    places = settings.max_num_seqs or 0
    held = min(footprint.requests[footprint.context], places)
    return (
        f"{machine} fits: {memory.kv_cache_tokens:,} tokens of KV cache{per_replica}, "
        f"enough for {plural(held, 'request')} of the full "
        f"{plural(footprint.context, 'token')}."
    )


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
        name = line.name.replace("cuda_", "CUDA ")
        rows.append((name, line.gib, line.label, sentence(line.note)))
    label = memory.kv_cache_label or Label.PREDICTED
    left = f"what is left: {plural(memory.kv_cache_tokens, 'token')}"
    rows.append(("KV cache", memory.kv_cache_gib, label, left))
    shown: list[tuple[str, ...]] = []
    for name, gib, basis, made_of in rows:
        if gib >= LEAST_SHOWN_GIB:
            shown.append((name, f"{gib:.2f}", str(basis), made_of))
    used_gib = memory.requested_gib - min(0.0, memory.kv_cache_gib)
    shown.append(
        ("all together", f"{used_gib:.2f}", "", f"of {memory.total_gib:.1f} GiB")
    )
    headings = ("per GPU", "GiB", "basis", "from")
    return table(headings, shown, words=["basis", "from"], strong=[len(shown) - 1])


def predicted_memory(memory: Memory) -> StackedBars:
    """The same as a picture."""
    bar = predicted_memory_bar("predicted", memory)
    return memory_bars([bar], memory.total_gib)
