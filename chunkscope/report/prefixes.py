"""What prompts share, and how much of that a prefix cache serves: figures, and their sections."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chunkscope.artefacts.numbers import number
from chunkscope.artefacts.schema import plain
from chunkscope.artefacts.words import Name
from chunkscope.errors import InputError
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile
from chunkscope.planning.plan import Plan
from chunkscope.prefixes.reuse import (
    BLOCK_SIZE,
    FLAT,
    CachedAt,
    NearMiss,
    PrefixReuse,
    reuse_together,
)
from chunkscope.report.profile import shortened
from chunkscope.report.section import Chart, Section, Table, figures
from chunkscope.report.words import data as words
from chunkscope.vllm.enums import Task

Measured = Sequence[tuple[DatasetProfile, PrefixReuse]]
MATTERS = 0.05  # of all tokens: another order that gains less is not worth a sentence
MOST_GROUPS = 10
MOST_CURVES = 200
ORDERS = {
    "as in the file": "cached_tokens",
    "longest first, as sent": "sent_order_cached_tokens",
    "sorted by prefix": "best_order_cached_tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCache:
    """What the KV cache of a plan serves, with as many requests as the plan lets run."""

    kv_tokens: int
    running: int
    cached_tokens: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixSummary:
    """The reuse of all datasets that were measured, and of all together."""

    profile: Profile
    measured: Measured
    overall: PrefixReuse
    planned: PlannedCache | None = None

    @property
    def enough(self) -> int | None:
        """The smallest KV cache, in tokens, that serves nearly all; None where it is not known."""
        return enough_for(self.overall)

    @property
    def near_misses(self) -> list[tuple[DatasetProfile, NearMiss]]:
        return [(dataset, near) for dataset, reuse in self.measured for near in reuse.near_misses]

    @property
    def better_orders(self) -> Iterator[tuple[DatasetProfile, PrefixReuse, CachedAt]]:
        """Datasets for which sorting pays: at the plan's size, else in the largest cache."""
        for dataset, reuse in self.measured:
            if dataset.kind == "lengths":
                continue  # requests of a trace come when they come
            sizes = [at for at in reuse.capacities if _gain(at) > MATTERS * reuse.tokens]
            if self.planned is not None:
                fitting = [a for a in reuse.capacities if a.kv_tokens <= self.planned.kv_tokens]
                sizes = [at for at in sizes if fitting and at == fitting[-1]]
            if sizes:
                yield dataset, reuse, sizes[-1]

    def to_json(self) -> dict[str, Any]:
        return {
            "datasets": [
                {"name": dataset.name, "path": dataset.path, **_figures(reuse)}
                for dataset, reuse in self.measured
            ],
            "together": _figures(self.overall),
            "plan": plain(self.planned),
        }


def prefixes(profile: Profile | Name, plan: Plan | Name | None = None) -> PrefixSummary:
    """How much of the prompts vLLM's prefix cache would serve; with a plan, in its KV cache."""
    profile = Profile.given(profile)
    plan = Plan.given(plan) if plan is not None else None
    measured = measured_in(profile)
    if not measured:
        raise InputError(
            "the profile does not say what its prompts share",
            hint="measure it: `chunkscope analyze data/`, without prefixes = false",
        )
    return PrefixSummary(
        profile=profile,
        measured=measured,
        overall=overall_reuse(measured),
        planned=planned_cache(measured, plan),
    )


def plan_for(profile: Path) -> Plan | None:
    """The plan beside a profile, if it was made from that very one."""
    beside = profile.with_name("plan.json")
    plan = Plan.load(beside) if beside.exists() else None
    same = plan is not None and plan.source.profile_digest == Profile.load(profile).digest()
    return plan if same else None


def measured_in(profile: Profile) -> Measured:
    return [(dataset, dataset.prefixes) for dataset in profile.datasets if dataset.prefixes]


def overall_reuse(measured: Measured) -> PrefixReuse:
    return reuse_together([reuse for _, reuse in measured])


def enough_for(reuse: PrefixReuse) -> int | None:
    enough = FLAT * reuse.cached_tokens
    sizes = (at.kv_tokens for at in reuse.capacities if at.cached_tokens >= enough)
    return next(sizes, None) if reuse.cached_tokens else None


def planned_cache(measured: Measured, plan: Plan | None) -> PlannedCache | None:
    """None without a plan that knows its model and GPU, or where it is not known of a dataset."""
    if plan is None or plan.memory is None or plan.memory.kv_cache_tokens is None:
        return None
    if plan.request.task is Task.LOGLIKELIHOOD:
        return None  # its requests do not read the cache
    size, running = plan.memory.kv_cache_tokens, plan.effective.max_num_seqs
    if type(running) is not int:
        return None
    served = [_served(dataset, reuse, size, running) for dataset, reuse in measured]
    if any(tokens is None for tokens in served):
        return None
    return PlannedCache(
        kv_tokens=size,
        running=running,
        cached_tokens=sum(tokens or 0 for tokens in served),
        tokens=sum(reuse.tokens for _, reuse in measured),
    )


def _served(
    dataset: DatasetProfile, reuse: PrefixReuse, kv_tokens: int, running: int
) -> int | None:
    """Prompt by prompt as they are sent; None for likelihood requests, which mix with others."""
    from chunkscope.prefixes.cache_curve import Load, found_share

    if not reuse.cached_tokens:
        return 0
    if dataset.sharing is None or reuse.unread_tokens or reuse.block_size != BLOCK_SIZE:
        return None
    load = Load(running=running, output_tokens=reuse.output_tokens or 1)
    part = found_share(dataset.sharing, kv_tokens, load)
    return None if part is None else round(part * reuse.tokens)


def _gain(at: CachedAt) -> int:
    sent = at.sent_order_cached_tokens
    return (at.best_order_cached_tokens or 0) - (at.cached_tokens if sent is None else sent)


def _figures(reuse: PrefixReuse) -> dict[str, Any]:
    return {
        "hit_rate": reuse.hit_rate,
        "last_half_hit_rate": reuse.last_half_hit_rate,
        "flat_at": enough_for(reuse),
        **plain(reuse),
    }


# -- sections ------------------------------------------------------------------------------------


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
    columns = figures(
        "tokens", "prompts", "total", "common start", "distinct", "served", "enough at"
    )
    return Table(
        columns=columns,
        rows=tuple(rows),
        strong=(len(rows) - 1,) if len(rows) > 1 else (),
    )


def _shared(reuse: PrefixReuse) -> tuple[str, ...]:
    counts = (reuse.prompts, reuse.tokens, reuse.common_tokens, reuse.working_set_tokens)
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
