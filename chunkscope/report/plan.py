"""A plan, and a model's memory, as sections: what to set, what the run takes, what was tried."""

from collections.abc import Iterator
from dataclasses import replace

from chunkscope.artefacts.note import Label
from chunkscope.artefacts.numbers import as_written, duration, share
from chunkscope.hardware.memory import Memory
from chunkscope.planning.plan import Plan, Role
from chunkscope.report.runs import runs_table
from chunkscope.report.section import Section, Table, fact_table, table_of
from chunkscope.report.words import plan as words
from chunkscope.report.words import sentence
from chunkscope.vllm.footprint import Footprint

MOST_DATASETS = 20


def sections(plan: Plan) -> list[Section]:
    return [
        Section(sentences=tuple(savings(plan))),
        Section(sentences=(words.advice(plan),)),
        Section(sentences=(words.setup(plan),), table=fact_table(words.facts(plan))),
        Section(table=tried_table(plan), notes=tuple(map(sentence, plan.notes))),
        Section(sentences=tuple(words.arguments(plan))),
        Section(title="Each dataset alone", table=_costs(plan), details=True),
        Section(title="Why", table=_reasons(plan), details=True),
        Section(
            title="Memory",
            table=memory_notes(plan.memory) if plan.memory else None,
            details=True,
        ),
        Section(
            title="Length rule by dataset",
            sentences=(words.length_rule(plan),),
            table=_decisions(plan),
            details=True,
        ),
    ]


def savings(plan: Plan) -> Iterator[str]:
    """What would save more than any flag."""
    return map(words.saving, plan.savings)


def tried_table(plan: Plan) -> Table | None:
    """What was simulated, and of how many requests where that is not all of them."""
    rows = [row for row in plan.tried if row.chosen or row.role is not Role.RULE]
    named = [(words.row_name(row), row.run) for row in rows]
    table = runs_table(named, strong=[place for place, row in enumerate(rows) if row.chosen])
    sent = rows[0].run.requests if rows else 0
    if table is None or sent >= plan.refused.of:
        return table
    return replace(table, caption=words.sampled(sent, plan.refused.of))


def _costs(plan: Plan) -> Table | None:
    """What each of several datasets takes by itself."""
    origins = {output.name: words.OUTPUTS[output.origin] for output in plan.outputs}
    rows = [
        (
            *(one.name, one.requests, one.input_tokens, one.output_tokens),
            *(origins[one.name], duration(one.hours)),
        )
        for one in (plan.cost.datasets if plan.cost else ())
    ]
    heads = ("dataset alone", "requests", "tokens in", "tokens out", "outputs", "time")
    return table_of(heads, rows, words=("outputs",))


def _reasons(plan: Plan) -> Table | None:
    default, effective = plan.default.given(), plan.effective.given()
    given = plan.settings.given()

    def value(name: str) -> str:
        return as_written(effective.get(name, "-")) if name in given else "default"

    rows = [
        (
            *(reason.argument, value(reason.argument)),
            *(as_written(default.get(reason.argument, "-")), sentence(reason)),
        )
        for reason in plan.reasons
    ]
    return table_of(("argument", "value", "default", "why"), rows, words=("why",))


def _decisions(plan: Plan) -> Table | None:
    """The datasets with the longest prompts, in the data's order, and all together."""
    longest = sorted(plan.decisions, key=lambda name: -plan.decisions[name].longest)[:MOST_DATASETS]
    lines = [(name, one) for name, one in plan.decisions.items() if name in longest]
    if len(plan.decisions) > 1 and plan.request.dataset is None:
        lines.append(("all together", plan.decision))
    rows = [
        (
            *(name, one.prompts, one.p95, one.longest, one.mode.value, one.threshold),
            *(share(one.chunks.share) if one.chunks.prompts else None, one.tier.value),
        )
        for name, one in lines
    ]
    left = len(plan.decisions) - len(longest)
    heads = ("dataset", "prompts", "p95", "longest", "mode", "threshold", "over it", "benefit")
    return table_of(
        heads,
        rows,
        words=("mode", "benefit"),
        wide=("prompts", "p95"),
        strong=[len(rows) - 1],
        caption=f"{left:,} more with shorter prompts" if left else "",
    )


# -- memory --------------------------------------------------------------------------------------


def footprint_sections(footprint: Footprint) -> list[Section]:
    memory, lengths = footprint.memory, footprint.requests
    parts = [(part, f"{gib:.2f}", label) for part, gib, label, _ in _parts(memory) if gib >= 0.005]
    parts.append(("all together", f"{memory.requested_gib:.2f}", f"of {memory.total_gib:.1f} GiB"))
    fitting = table_of(
        ("tokens per request", *(f"{length:,}" for length in lengths)),
        [("requests that fit", *lengths.values())],
    )
    return [
        Section(
            sentences=(words.fits(footprint), words.footprint_setup(footprint)),
            table=table_of(
                ("memory per GPU", "GiB", " "), parts, words=" ", strong=[len(parts) - 1]
            ),
        ),
        Section(
            table=fitting,
            sentences=(words.kv_per_token(footprint),),
            notes=tuple(map(sentence, footprint.notes)),
        ),
        Section(title="How each line is known", table=memory_notes(memory), details=True),
    ]


def _parts(memory: Memory) -> list[tuple[str, float, str, str]]:
    """What one GPU holds: part, GiB, whether it is measured, and from what it is known."""
    label = memory.kv_cache_label or Label.PREDICTED
    tokens = f"{label}, {memory.kv_cache_tokens:,} tokens"
    names = words.MEMORY_PARTS
    return [
        *(
            (names.get(line.name, line.name), line.gib, line.label.value, sentence(line.note))
            for line in memory.lines
        ),
        ("KV cache", memory.kv_cache_gib, tokens, "what is left"),
    ]


def memory_notes(memory: Memory) -> Table | None:
    rows = [(part, f"{gib:.2f}", label, why) for part, gib, label, why in _parts(memory)]
    return table_of(("part", "GiB", "known", "from"), rows, words=("known", "from"))
