"""A plan, and a model's memory, as sections: what to set, what the run takes, what was tried."""

from chunkscope.artefacts.note import Label, Note
from chunkscope.artefacts.numbers import as_written, seconds, share
from chunkscope.hardware.memory import Memory
from chunkscope.planning.plan import Plan
from chunkscope.report.runs import runs_table
from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.section import Section, Table, table_of
from chunkscope.report.words import plan as words
from chunkscope.report.words import sentence
from chunkscope.vllm.footprint import Footprint


def sections(plan: Plan) -> list[Section]:
    is_broken, flags = words.is_broken(plan), words.flags(plan)
    memory = _memory_table(plan.memory) if plan.memory else None
    figures = table_of(("", "", ""), words.facts(plan), words=("",))
    strong = [
        at for at, run in enumerate(plan.tried) if run is plan.run and not is_broken
    ]
    tried = runs_table(
        [(words.tried_name(plan, run), run) for run in plan.tried], strong=strong
    )
    background = [
        note for note in plan.notes if note.code in words.BACKGROUND and plan.tried
    ]
    return [
        Section(sentences=(*words.warnings(plan), words.answer(plan)), top=True),
        Section(sentences=tuple(map(words.saving, plan.savings)), top=True),
        Section(sentences=(words.planned_for(plan),), table=figures, top=True),
        Section(table=tried, notes=tuple(words.cautions(plan))),
        Section(sentences=(f"Flags: {flags}",) if flags else (), top=True),
        Section(notes=tuple(words.phrases(background)), details=True),
        Section(title="Each dataset alone", table=_alone(plan), details=True),
        Section(title="Why", table=None if is_broken else _reasons(plan), details=True),
        Section(title="Memory", table=memory, details=True),
    ]


def _alone(plan: Plan) -> Table | None:
    """The datasets in the data's order: time, and the length rule."""
    costs = {**plan.cost.datasets, "all together": plan.cost} if plan.cost else {}
    lines = list(plan.decisions.items())
    if len(plan.decisions) > 1 and plan.request.dataset is None:
        lines.append(("all together", plan.decision))
    rows = []
    for name, one in lines:
        time = (
            [seconds(costs[name].hours * 3_600) if name in costs else None]
            if costs
            else []
        )
        over = share(one.chunks.share) if one.chunks.prompts else None
        rows.append((name, *time, one.mode.value, one.threshold, over))
    heads = ("dataset", *["time"] * bool(costs), "length rule", "threshold", "over it")
    return table_of(heads, rows, words=("length rule",), strong=[len(rows) - 1])


def _reasons(plan: Plan) -> Table | None:
    """Arguments that are set, or whose default was compared with another value."""
    rows = []
    for reason in plan.reasons:
        values = (reason.values.get(name) for name in ("value", "own"))
        written = ("-" if one is None else as_written(one) for one in values)
        rows.append((reason.argument, *written, sentence(reason)))
    return table_of(("argument", "value", "default", "why"), rows, words=("why",))


# -- memory --------------------------------------------------------------------------------------


def footprint_sections(footprint: Footprint) -> list[Section]:
    lengths = footprint.requests
    fitting = table_of(
        ("tokens per request", *(f"{length:,}" for length in lengths)),
        [("requests that fit", *lengths.values())] if any(lengths.values()) else (),
    )
    return [
        Section(
            sentences=tuple(words.fits(footprint)),
            table=_memory_table(footprint.memory),
        ),
        Section(
            table=fitting, notes=tuple(words.phrases(footprint.notes, words.ASSUMED[0]))
        ),
    ]


def _memory_table(memory: Memory) -> Table | None:
    """What one GPU holds, line by line: GiB, whether it is measured, and from what it is known."""
    left = Note(code="memory_left", values={"tokens": memory.kv_cache_tokens})
    total = Note(code="memory_total", values={"gib": memory.total_gib})
    rows = [
        *(
            (x.name.replace("cuda_", "CUDA "), x.gib, x.label, x.note)
            for x in memory.lines
        ),
        (
            "KV cache",
            memory.kv_cache_gib,
            memory.kv_cache_label or Label.PREDICTED,
            left,
        ),
        (
            "all together",
            memory.requested_gib - min(0.0, memory.kv_cache_gib),
            "",
            total,
        ),
    ]
    rows = [row for row in rows if row[1] >= 0.005]
    return table_of(
        ("per GPU", "GiB", "basis", "from"),
        [
            (part, f"{gib:.2f}", label, sentence(note))
            for part, gib, label, note in rows
        ],
        words=("basis", "from"),
        strong=[len(rows) - 1],
    )


def plan_blocks(artefact: Plan) -> "list[Block]":
    return blocks_of(sections(artefact))
