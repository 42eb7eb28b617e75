"""A model's footprint as sections: does it fit, how many tokens of KV cache, line by line."""

from chunkscope.artefacts.labels import Label
from chunkscope.artefacts.numbers import number
from chunkscope.hardware.memory import Memory
from chunkscope.report.section import Column, Section, Table, figures
from chunkscope.report.words import plan as words
from chunkscope.report.words import sentence
from chunkscope.vllm.footprint import Footprint


def sections(footprint: Footprint) -> list[Section]:
    lengths = footprint.requests
    return [
        Section(
            sentences=(words.fits(footprint), words.footprint_setup(footprint)),
            table=memory_table(footprint.memory),
        ),
        Section(
            table=Table(
                columns=figures("tokens per request", *map(number, lengths)),
                rows=(("requests that fit", *map(number, lengths.values())),),
            ),
            sentences=(words.kv_per_token(footprint),),
            notes=tuple(map(sentence, footprint.notes)),
        ),
        Section(title="How each line is known", table=memory_notes(footprint.memory), details=True),
    ]


def memory_table(memory: Memory) -> Table:
    """What one GPU holds, in GiB."""
    rows = [
        (words.MEMORY_PARTS.get(line.name, line.name), f"{line.gib:.2f}", line.label.value)
        for line in memory.lines
        if line.gib >= 0.005
    ]
    label = memory.kv_cache_label or Label.PREDICTED
    rows += [
        ("KV cache", f"{memory.kv_cache_gib:.2f}", f"{label}, {memory.kv_cache_tokens:,} tokens"),
        ("all together", f"{memory.requested_gib:.2f}", f"of {memory.total_gib:.1f} GiB"),
    ]
    columns = (*figures("memory per GPU", "GiB"), Column(heading="", right=False))
    return Table(columns=columns, rows=tuple(rows), strong=(len(rows) - 1,))


def memory_notes(memory: Memory) -> Table:
    """Each line with where it comes from."""
    columns = (
        *figures("part", "GiB"),
        Column(heading="known", right=False, fixed=True),
        Column(heading="from", right=False),
    )
    rows = [
        (
            words.MEMORY_PARTS.get(line.name, line.name),
            f"{line.gib:.2f}",
            line.label,
            sentence(line.note),
        )
        for line in memory.lines
    ]
    label = memory.kv_cache_label or Label.PREDICTED
    tokens = f"what is left: {memory.kv_cache_tokens:,} tokens"
    rows.append(("KV cache", f"{memory.kv_cache_gib:.2f}", label, tokens))
    return Table(columns=columns, rows=tuple(rows))
