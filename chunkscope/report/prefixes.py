"""What prompts share, as sections: what a prefix cache serves, and what would make it more."""

from collections.abc import Iterator

from chunkscope.artefacts.numbers import number
from chunkscope.lengths.profile import ALL
from chunkscope.prefixes.reuse import (
    PrefixReuse,
    reuse_together,
)
from chunkscope.report.profile import shortened
from chunkscope.report.reuse import PrefixSummary, enough_for
from chunkscope.report.section import Chart, Section, Table, figures
from chunkscope.report.words import data as words

MOST_GROUPS = 10
MOST_CURVES = 200
ORDERS = {
    "as in the file": "cached_tokens",
    "longest first, as sent": "sent_order_cached_tokens",
    "sorted by prefix": "best_order_cached_tokens",
}


def sections(summary: PrefixSummary) -> list[Section]:
    return [
        Section(
            sentences=tuple(words.reuse_answer(summary)),
            table=_shared_table(summary),
            chart=reuse_chart(summary),
        ),
        Section(sentences=tuple(words.reuse_advice(summary))),
        Section(title="Served by KV cache size", table=_capacity_table(summary), details=True),
        Section(title="Largest groups with a common start", table=_groups(summary), details=True),
        Section(
            title="How it was computed", sentences=tuple(words.reuse_rules(summary)), details=True
        ),
    ]


def _shared_table(summary: PrefixSummary) -> Table:
    reuse_of = {dataset.name: reuse for dataset, reuse in summary.measured}
    lines = shortened([dataset for dataset, _ in summary.measured])
    rows = [
        (name, *_shared(reuse_together([reuse_of[d.name] for d in members])))
        for name, members in lines
    ]
    if len(rows) > 1:
        rows.append((ALL, *_shared(summary.overall)))
    columns = figures("dataset", "prompts", "tokens", "common start", "served", "enough at")
    return Table(
        columns=columns,
        rows=tuple(rows),
        strong=(len(rows) - 1,) if len(rows) > 1 else (),
    )


def _shared(reuse: PrefixReuse) -> tuple[str, ...]:
    counts = (reuse.prompts, reuse.tokens, reuse.common_tokens)
    size = enough_for(reuse)
    served = words.rate(reuse.cached_tokens, reuse.tokens)
    return (*map(number, counts), served, brief(size) if size else "-")


def _capacity_table(summary: PrefixSummary, most: int = 6) -> Table | None:
    """By order; blank where two prompts do not fit, or more adds nothing."""
    named = [(dataset.name, reuse) for dataset, reuse in summary.measured if reuse.capacities]
    if len(named) > 1 and summary.overall.capacities:
        named.append((ALL, summary.overall))
    sizes = sorted({at.kv_tokens for _, reuse in named for at in reuse.capacities})
    sizes = sizes[::-1][:: -(-len(sizes) // most) or 1][::-1]
    rows = [
        (
            name if place == 0 else f"  {order}",
            *(_at(reuse, size, field) for size in sizes),
            words.rate(getattr(reuse, field), reuse.tokens),
        )
        for name, reuse in named
        for place, (order, field) in enumerate(_orders(reuse))
    ]
    columns = figures("KV cache, tokens", *map(brief, sizes), "no limit")
    return Table(columns=columns, rows=tuple(rows)) if rows else None


def _at(reuse: PrefixReuse, size: int, field: str) -> str:
    cached = {at.kv_tokens: getattr(at, field) for at in reuse.capacities}
    return words.rate(cached[size], reuse.tokens) if size in cached else ""


def _orders(reuse: PrefixReuse) -> Iterator[tuple[str, str]]:
    """The file's order, and those that differ from it by a point somewhere."""
    for order, field in ORDERS.items():
        values = [(getattr(at, field), at.cached_tokens) for at in reuse.capacities]
        if field == "cached_tokens":
            yield order, field
            continue
        gaps = [abs(value - usual) for value, usual in values if value is not None]
        if len(gaps) == len(values) and max(gaps, default=0) > 0.01 * reuse.tokens:
            yield order, field


def brief(tokens: int) -> str:
    """
    >>> brief(16384), brief(1 << 21)
    ('16K', '2M')
    """
    return f"{tokens >> 20}M" if tokens >= 1 << 20 else f"{tokens >> 10}K"


def _groups(summary: PrefixSummary) -> Table | None:
    groups = [
        (group.prompts * group.shared_tokens, dataset, group)
        for dataset, reuse in summary.measured
        for group in reuse.groups
    ]
    groups.sort(key=lambda item: -item[0])
    rows = tuple(
        (f"{d.path} {d.unit} {g.position:,}", number(g.prompts), number(g.shared_tokens))
        for _, d, g in groups[:MOST_GROUPS]
    )
    return Table(columns=figures("first of them", "prompts", "tokens"), rows=rows) if rows else None


def reuse_chart(summary: PrefixSummary) -> Chart | None:
    """For the page: what is served by the size of the KV cache, a line for each order."""
    named = [(dataset.name, reuse) for dataset, reuse in summary.measured]
    if len(named) > 1:
        named.insert(0, (ALL, summary.overall))
    sets = [
        {
            "name": name,
            "lines": {
                order: [
                    [at.kv_tokens, getattr(at, field) / reuse.tokens] for at in reuse.capacities
                ]
                for order, field in ORDERS.items()
                if all(getattr(at, field) is not None for at in reuse.capacities)
            },
            "ideal": reuse.hit_rate,
            "flat_at": enough_for(reuse),
        }
        for name, reuse in named[:MOST_CURVES]
        if reuse.capacities
    ]
    planned = summary.planned
    mark = planned and {
        "tokens": planned.kv_tokens,
        "found": planned.cached_tokens / planned.tokens if planned.tokens else 0.0,
    }
    return Chart(name="reuse", data={"sets": sets, "plan": mark}) if sets else None
