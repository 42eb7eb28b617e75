"""A plan, and a model's memory, as sections: what to set, what the run takes, what was tried."""

from dataclasses import replace

from chunkscope.artefacts.note import Label
from chunkscope.artefacts.numbers import as_written, number, share
from chunkscope.hardware.memory import Memory
from chunkscope.planning.plan import DatasetDecision, Plan, Role
from chunkscope.planning.rule import Decision
from chunkscope.report.section import Column, Section, Table, fact_table, figures
from chunkscope.report.simulation import runs_table
from chunkscope.report.words import plan as words
from chunkscope.report.words import sentence
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.footprint import Footprint

MOST_DATASETS = 20


def sections(plan: Plan) -> list[Section]:
    rows = [row for row in plan.tried if row.chosen or row.role is not Role.RULE]
    named = [(words.row_name(row), row.run) for row in rows]
    strong = [place for place, row in enumerate(rows) if row.chosen]
    return [
        Section(sentences=(words.advice(plan),)),
        Section(sentences=(words.setup(plan),), table=fact_table(words.facts(plan))),
        Section(
            table=_tried(plan, named, strong),
            notes=tuple(map(sentence, plan.notes)),
        ),
        Section(sentences=tuple(words.arguments(plan))),
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


def _tried(plan: Plan, named: list[tuple[str, SimulatedRun]], strong: list[int]) -> Table | None:
    """What was simulated, and of how many requests where that is not all of them."""
    if not named:
        return None
    requests = named[0][1].requests
    caption = "" if requests >= plan.refused.of else words.sampled(requests, plan.refused.of)
    return replace(runs_table(named, strong), caption=caption)


def _reasons(plan: Plan) -> Table:
    default, effective = plan.default.given(), plan.effective.given()
    given = plan.settings.given()
    columns = (
        Column(heading="argument", right=False),
        Column(heading="value"),
        Column(heading="default"),
        Column(heading="why", right=False),
    )
    rows = tuple(
        (
            reason.argument,
            as_written(effective.get(reason.argument, "-"))
            if reason.argument in given
            else "default",
            as_written(default.get(reason.argument, "-")),
            sentence(reason),
        )
        for reason in plan.reasons
    )
    return Table(columns=columns, rows=rows)


def _decisions(plan: Plan) -> Table:
    """The datasets with the longest prompts, in the data's order, and all together."""
    longest = sorted(plan.decisions, key=lambda one: -one.decision.longest)[:MOST_DATASETS]
    shown: list[DatasetDecision] = [one for one in plan.decisions if one in longest]
    columns = (
        Column(heading="dataset", right=False),
        *(Column(heading=heading, wide=True) for heading in ("prompts", "p95")),
        Column(heading="longest"),
        Column(heading="mode", right=False, fixed=True),
        *(Column(heading=heading) for heading in ("threshold", "over it")),
        Column(heading="benefit", right=False, fixed=True),
    )
    rows = [(one.name, *_cells(one.decision)) for one in shown]
    if left := len(plan.decisions) - len(shown):
        rows.append((f"{left:,} with shorter prompts", *[""] * 7))
    if len(plan.decisions) > 1 and plan.request.dataset is None:
        rows.append(("all together", *_cells(plan.decision)))
    return Table(columns=columns, rows=tuple(rows), strong=(len(rows) - 1,))


def _cells(decision: Decision) -> list[str]:
    counts = [number(decision.prompts), number(decision.p95), number(decision.longest)]
    rate = share(decision.chunks.share) if decision.chunks.prompts else "-"
    return [*counts, decision.mode.value, number(decision.threshold), rate, decision.tier.value]


def footprint_sections(footprint: Footprint) -> list[Section]:
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
