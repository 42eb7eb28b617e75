"""Prefix reuse on a terminal: what prompts share, and how much of it a cache of some size finds."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.numbers import number, plural
from chunkscope.artefacts.schema import plain
from chunkscope.lengths.profile import ALL, Profile
from chunkscope.planning.plan import Plan
from chunkscope.prefixes.reuse import BLOCK_SIZE, CachedAt, PrefixReuse
from chunkscope.report import prefix_words as words
from chunkscope.report.prefix_words import Measured, rate
from chunkscope.report.terminal.tables import figure_table

if TYPE_CHECKING:
    from rich.console import Console

_MOST_GROUPS = 10
_FIGURE = 9  # characters of a column


def show_prefixes(profile: Profile, plan: Plan | None, console: "Console") -> None:
    measured = words.measured_in(profile)
    overall = words.all_of(measured)
    planned = words.planned_cache(measured, plan)
    console.print(Text(words.headline(overall)))
    if planned is not None:
        console.print(Text(words.plan_sentence(planned)))
    if flat := words.flat_sentence(overall):
        console.print(Text(flat))
    console.print()
    console.print(_shared_table(measured, overall, console.width))
    if any(reuse.capacities for _, reuse in measured):
        console.print()
        console.print(_capacity_table(measured, overall, console.width))
    for lines in (
        words.order_sentences(measured, planned),
        _groups(measured),
        _near_misses(measured),
        words.scoring_sentences(measured),
        _about(profile, measured, overall),
    ):
        _print_part(lines, console)


def _print_part(lines: Iterator[str], console: "Console") -> None:
    for place, line in enumerate(lines):
        if not place:
            console.print()
        console.print(Text(line, overflow="fold"))


def _table(names: str, headings: tuple[str, ...], width: int) -> Table:
    """Long names are cut, figures never."""
    figures = sum(max(len(heading), _FIGURE) + 2 for heading in headings)
    return figure_table(names, headings, max_width=max(12, width - figures))


def _shared_table(measured: Measured, overall: PrefixReuse, width: int) -> Table:
    headings = ("prompts", "all share", "in blocks", "distinct", "found")
    table = _table("tokens", headings, width)
    for dataset, reuse in measured:
        table.add_row(Text(dataset.name), *_shared(reuse))
    if len(measured) > 1:
        table.add_section()
        table.add_row(ALL, *_shared(overall), style="bold")
    return table


def _shared(reuse: PrefixReuse) -> Iterator[str]:
    for tokens in (
        reuse.prompts,
        reuse.common_tokens,
        reuse.common_block_tokens,
        reuse.working_set_tokens,
    ):
        yield number(tokens)
    yield rate(reuse.cached_tokens, reuse.tokens)


def _capacity_table(measured: Measured, overall: PrefixReuse, width: int) -> Table:
    """By order; blank where two prompts do not fit, or more adds nothing."""
    rows = [(dataset.name, reuse) for dataset, reuse in measured if reuse.capacities]
    if len(measured) > 1 and overall.capacities:
        rows.append((ALL, overall))
    sizes = _sizes([reuse for _, reuse in rows], most=(width - 20) // (_FIGURE + 2) - 2)
    headings = (*(_brief(size) for size in sizes), "no limit", "flat at")
    table = _table("found by KV cache", headings, width)
    for name, reuse in rows:
        if name == ALL:
            table.add_section()
        for order, found, ideal in _orders(reuse):
            known = {at.kv_tokens: found(at) for at in reuse.capacities}
            rates = [rate(known[size], reuse.tokens) if size in known else "" for size in sizes]
            flat = words.flat_at(reuse)
            last = _brief(flat) if flat and not order else ""
            title = Text(f"  {order}" if order else name, style="dim" if order else "")
            table.add_row(title, *rates, rate(ideal, reuse.tokens), last)
    return table


Found = Callable[[CachedAt], int | None]


def _orders(reuse: PrefixReuse) -> Iterator[tuple[str, Found, int]]:
    """The file's, then those that differ from it by a point somewhere."""
    yield "", lambda at: at.cached_tokens, reuse.cached_tokens
    sent: Found = lambda at: at.sent_order_cached_tokens  # noqa: E731
    best: Found = lambda at: at.best_order_cached_tokens  # noqa: E731
    for name, found, ideal in (
        ("longest first, as sent", sent, reuse.sent_order_cached_tokens),
        ("best order", best, reuse.best_order_cached_tokens),
    ):
        gaps = [abs((found(at) or 0) - at.cached_tokens) for at in reuse.capacities]
        is_known = all(found(at) is not None for at in reuse.capacities)
        if ideal is not None and is_known and max(gaps, default=0) > 0.01 * reuse.tokens:
            yield name, found, ideal


def _sizes(all_of: list[PrefixReuse], *, most: int) -> list[int]:
    """The capacities of the columns: evenly chosen where there are too many, the largest kept."""
    sizes = sorted({at.kv_tokens for reuse in all_of for at in reuse.capacities})
    step = -(-len(sizes) // max(1, most))
    return sizes[::-1][::step][::-1]


def _brief(tokens: int) -> str:
    """
    >>> _brief(16384), _brief(1 << 21)
    ('16K', '2M')
    """
    return f"{tokens >> 20}M" if tokens >= 1 << 20 else f"{tokens >> 10}K"


def _groups(measured: Measured) -> Iterator[str]:
    found = [
        (group.prompts * group.shared_tokens, dataset, group)
        for dataset, reuse in measured
        for group in reuse.groups
    ]
    found.sort(key=lambda item: -item[0])
    if found:
        yield "the largest groups that share more than all do"
    for _, dataset, group in found[:_MOST_GROUPS]:
        yield (
            f"{plural(group.prompts, 'prompt'):>16} share {group.shared_tokens:,} tokens; the "
            f"first is {dataset.path} {dataset.unit} {group.position:,}"
        )


def _near_misses(measured: Measured) -> Iterator[str]:
    for said, one, other in words.near_miss_sentences(measured):
        yield said
        yield f"    {one}"
        yield f"    {other}"


def _about(profile: Profile, measured: Measured, overall: PrefixReuse) -> Iterator[str]:
    yield (
        f"By vLLM's rule: full blocks of {BLOCK_SIZE} tokens, and never a prompt's last token; in "
        "the file's order, and in the best one, in which those that begin alike follow each other. "
        f"Up to {overall.running or 1:,} requests run at a time and hold their blocks, the first "
        "to come ending first. Likelihood requests do not read from the cache."
    )
    for dataset, reuse in measured:
        if reuse.last_half_tokens is not None:
            yield (
                f"{dataset.name}: compared by the blocks of {reuse.block_size} tokens that the "
                f"trace names. Over its last half, {_one_decimal(reuse.last_half_hit_rate)} "
                f"is found, over all of it {_one_decimal(reuse.hit_rate)}."
            )
    if len(measured) > 1:
        across = overall.cached_tokens - sum(reuse.cached_tokens for _, reuse in measured)
        found = "none begins as an earlier one does"
        if across:
            found = f"at least {across:,} tokens are found because an earlier one begins alike"
        yield (
            f"All together: one dataset after the other; {found}. Of each, the blocks that most of "
            "its prompts have were compared."
        )
    for dataset, reuse in measured:
        if reuse.prompts < dataset.rows:
            yield f"{dataset.name}: only its first {reuse.prompts:,} prompts were compared."
    if left := [dataset.name for dataset in profile.datasets if not dataset.prefixes]:
        yield f"Not measured: {', '.join(left)}."


def _one_decimal(rate: float | None) -> str:
    """As others print the ceilings of traces."""
    return "nothing" if rate is None else f"{100 * rate:.1f} %"


def reuse_json(profile: Profile, plan: Plan | None = None) -> dict[str, Any]:
    """The figures of all datasets that have some, of all together, and at the plan's capacity."""
    measured = words.measured_in(profile)
    return {
        "datasets": [
            {"name": dataset.name, "path": dataset.path, **_figures(reuse)}
            for dataset, reuse in measured
        ],
        "together": _figures(words.all_of(measured)),
        "plan": plain(words.planned_cache(measured, plan)),
    }


def _figures(reuse: PrefixReuse) -> dict[str, Any]:
    figures = {
        "hit_rate": reuse.hit_rate,
        "last_half_hit_rate": reuse.last_half_hit_rate,
        "flat_at": words.flat_at(reuse),
        **plain(reuse),
    }
    return {name: value for name, value in figures.items() if name != "beginnings"}
