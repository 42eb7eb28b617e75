"""What prompts share, as sections: what a prefix cache serves, and what would make it more."""

from typing import Any

from chunkscope.lengths.profile import ALL
from chunkscope.prefixes.reuse import PrefixReuse, reuse_together
from chunkscope.report.profile import shortened
from chunkscope.report.reuse import PrefixSummary, enough_for
from chunkscope.report.section import Chart, Section, Table, table_of
from chunkscope.report.words import data as words

MOST_GROUPS = 10
MOST_CURVES = 200
MOST_SIZES = 6
FLAT_WITHIN = 0.01
ORDERS = {
    "as sent": "cached_tokens",
    "sorted by prefix": "best_order_cached_tokens",
}


def sections(summary: PrefixSummary) -> list[Section]:
    return [
        Section(
            sentences=tuple(words.reuse_answer(summary)),
            table=_shared_table(summary),
            chart=_chart(summary),
        ),
        Section(sentences=tuple(words.reuse_advice(summary))),
        Section(title="Served by KV cache size", table=_capacity_table(summary), details=True),
        Section(title="Largest groups with a common start", table=_groups(summary), details=True),
        Section(
            title="How it was computed", sentences=tuple(words.reuse_rules(summary)), details=True
        ),
    ]


def _shared_table(summary: PrefixSummary) -> Table | None:
    reuse_of = {dataset.name: reuse for dataset, reuse in summary.measured}
    rows = []
    for name, members in shortened([dataset for dataset, _ in summary.measured]):
        reuse = reuse_together([reuse_of[dataset.name] for dataset in members])
        counts = (reuse.prompts, reuse.tokens, reuse.common_tokens)
        served = words.rate(reuse.cached_tokens, reuse.tokens)
        rows.append((name, *counts, served, brief(enough_for(reuse))))
    heads = ("dataset", "prompts", "tokens", "common start", "served", "enough at")
    return table_of(heads, rows, strong=[len(rows) - 1] if rows[1:] else [])


def _named(summary: PrefixSummary) -> list[tuple[str, PrefixReuse]]:
    named = [(dataset.name, reuse) for dataset, reuse in summary.measured]
    named = [(ALL, summary.overall), *named] if len(named) > 1 else named
    return [(name, reuse) for name, reuse in named if reuse.capacities]


def _capacity_table(summary: PrefixSummary) -> Table | None:
    """As they are sent; blank where two prompts do not fit, or more adds nothing."""
    named = _named(summary)
    sizes = sorted({at.kv_tokens for _, reuse in named for at in reuse.capacities})
    sizes = sizes[::-1][:: -(-len(sizes) // MOST_SIZES) or 1][::-1]
    rows = []
    for name, reuse in named:
        cached = {at.kv_tokens: at.cached_tokens for at in reuse.capacities}
        served = [
            words.rate(cached[size], reuse.tokens) if size in cached else "" for size in sizes
        ]
        rows.append((name, *served, words.rate(reuse.cached_tokens, reuse.tokens)))
    return table_of(("KV cache, tokens", *map(brief, sizes), "no limit"), rows)


def brief(tokens: int | None) -> str:
    """
    >>> brief(16384), brief(1 << 21)
    ('16K', '2M')
    """
    if not tokens:
        return "-"
    return f"{tokens >> 20}M" if tokens >= 1 << 20 else f"{tokens >> 10}K"


def _groups(summary: PrefixSummary) -> Table | None:
    groups = [(dataset, group) for dataset, reuse in summary.measured for group in reuse.groups]
    groups.sort(key=lambda pair: -pair[1].prompts * pair[1].shared_tokens)
    rows = [
        (f"{dataset.path} {dataset.unit} {group.position:,}", group.prompts, group.shared_tokens)
        for dataset, group in groups[:MOST_GROUPS]
    ]
    return table_of(("first of them", "prompts", "tokens"), rows)


def _chart(summary: PrefixSummary) -> Chart | None:
    """For the page: what is served by the size of the KV cache, a line for each order."""
    sets: list[dict[str, Any]] = [
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
        for name, reuse in _named(summary)[:MOST_CURVES]
    ]
    planned = summary.planned
    mark = planned and {
        "tokens": planned.kv_tokens,
        "found": planned.cached_tokens / planned.tokens if planned.tokens else 0.0,
    }
    # A chart of flat lines says less than the sentence above it.
    shares = [part for one in sets for line in one["lines"].values() for _, part in line]
    bends = any(abs(part - shares[0]) > FLAT_WITHIN for part in shares)
    return Chart(name="reuse", data={"sets": sets, "plan": mark}) if bends else None
