"""Prefix reuse on a terminal: what prompts share, and how much of it a cache of some size finds."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.numbers import number, plural, share
from chunkscope.artefacts.schema import plain
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile
from chunkscope.lengths.reuse import BLOCK_SIZE, PrefixReuse
from chunkscope.report.terminal.tables import figure_table

if TYPE_CHECKING:
    from rich.console import Console

_MOST_GROUPS = 10


def show_prefixes(profile: Profile, console: "Console") -> None:
    measured = [(d, d.prefixes) for d in profile.datasets if d.prefixes]
    all_of = [reuse for _, reuse in measured]
    tokens, cached = _tokens(all_of), _cached(all_of)
    console.print(
        Text(
            f"Of {tokens:,} prompt tokens, vLLM's prefix cache would find {cached:,} "
            f"({_rate(cached, tokens)}) if it forgot nothing: {tokens - cached:,} are left to "
            "compute."
        )
    )
    console.print()
    console.print(_shared_table(measured, console.width))
    if any(reuse.capacities for _, reuse in measured):
        console.print()
        console.print(_capacity_table(measured, console.width))
    if better := list(_better_order(measured)):
        console.print()
        for line in better:
            console.print(line)
    for line in _groups(measured):
        console.print(line)
    console.print()
    for line in _about(profile, measured):
        console.print(line)


Measured = list[tuple[DatasetProfile, PrefixReuse]]


def _table(names: str, headings: tuple[str, ...], width: int) -> Table:
    """Long names are cut, figures never."""
    figures = sum(max(len(heading), 9) + 2 for heading in headings)
    return figure_table(names, headings, max_width=max(12, width - figures))


def _shared_table(measured: Measured, width: int) -> Table:
    headings = ("prompts", "all share", "in blocks", "distinct", "found")
    table = _table("tokens", headings, width)
    for dataset, reuse in measured:
        table.add_row(
            Text(dataset.name),
            number(reuse.prompts),
            number(reuse.common_tokens),
            number(reuse.common_block_tokens),
            number(reuse.working_set_tokens),
            _rate(reuse.cached_tokens, reuse.tokens),
        )
    if len(measured) > 1:
        all_of = [reuse for _, reuse in measured]
        table.add_section()
        table.add_row(
            ALL,
            number(sum(reuse.prompts for reuse in all_of)),
            "-",
            "-",
            number(sum(reuse.working_set_tokens for reuse in all_of)),
            _rate(_cached(all_of), _tokens(all_of)),
            style="bold",
        )
    return table


def _capacity_table(measured: Measured, width: int) -> Table:
    """What is found in file order; blank where two prompts do not fit, or all of them do."""
    sizes = sorted({at.kv_tokens for _, reuse in measured for at in reuse.capacities})[::2]
    headings = (*(f"{size // 1024:,}K" for size in sizes), "no limit", "best order")
    table = _table("found by KV cache", headings, width)
    for dataset, reuse in measured:
        known = {at.kv_tokens: at.cached_tokens for at in reuse.capacities}
        rates = [_rate(known[size], reuse.tokens) if size in known else "" for size in sizes]
        if known:
            ends = (reuse.cached_tokens, reuse.best_order_cached_tokens)
            table.add_row(Text(dataset.name), *rates, *(_rate(n, reuse.tokens) for n in ends))
    return table


def _better_order(measured: Measured) -> Iterator[Text]:
    """Where sorting pays: a cache that forgets finds far less in the order of the file."""
    for dataset, reuse in measured:
        for at in reuse.capacities[:1]:
            if reuse.best_order_cached_tokens - at.cached_tokens > 0.05 * reuse.tokens:
                yield Text(
                    f"In a KV cache of {at.kv_tokens:,} tokens, sorting {dataset.name} by prefix "
                    f"lifts what is found from {_rate(at.cached_tokens, reuse.tokens)} to "
                    f"{_rate(reuse.best_order_cached_tokens, reuse.tokens)}."
                )


def _groups(measured: Measured) -> Iterator[Text]:
    found = [
        (group.prompts * group.shared_tokens, dataset, group)
        for dataset, reuse in measured
        for group in reuse.groups
    ]
    found.sort(key=lambda item: -item[0])
    if found:
        yield Text("\nthe largest groups that share more than all do")
    for _, dataset, group in found[:_MOST_GROUPS]:
        yield Text(
            f"{plural(group.prompts, 'prompt'):>16} share {group.shared_tokens:,} tokens; the "
            f"first is {dataset.path} {dataset.unit} {group.position:,}",
            overflow="fold",
        )


def _about(profile: Profile, measured: Measured) -> Iterator[Text]:
    yield Text(
        f"By vLLM's rule: full blocks of {BLOCK_SIZE} tokens, and never a prompt's last token; in "
        "the file's order, and in the best one, in which those that begin alike follow each other. "
        "Up to 256 requests run at a time and hold their blocks, the first to come ending first. "
        "Likelihood requests do not read from the cache."
    )
    for dataset, reuse in measured:
        if reuse.last_half_tokens is not None:
            yield Text(
                f"{dataset.name}: compared by the blocks of {reuse.block_size} tokens that the "
                f"trace names. Over its last half, {_one_decimal(reuse.last_half_hit_rate)} "
                f"is found, over all of it {_one_decimal(reuse.hit_rate)}."
            )
    for dataset, reuse in measured:
        if reuse.unread_tokens:
            yield Text(
                f"{dataset.name}: its likelihood requests read {reuse.unread_tokens:,} tokens "
                f"({_rate(reuse.unread_tokens, reuse.tokens)}) again that the cache would have."
            )
    if len(measured) > 1:
        yield Text("All together: one dataset after the other, with nothing shared among them.")
    for dataset, reuse in measured:
        if reuse.prompts < dataset.rows:
            yield Text(f"{dataset.name}: only its first {reuse.prompts:,} prompts were compared.")
    if left := [dataset.name for dataset in profile.datasets if not dataset.prefixes]:
        yield Text(f"Not measured: {', '.join(left)}.")


def _tokens(all_of: Iterable[PrefixReuse]) -> int:
    return sum(reuse.tokens for reuse in all_of)


def _cached(all_of: Iterable[PrefixReuse]) -> int:
    return sum(reuse.cached_tokens for reuse in all_of)


def _rate(cached: int, tokens: int) -> str:
    return share(cached / tokens if tokens else None)


def _one_decimal(rate: float | None) -> str:
    """As others print the ceilings of traces."""
    return "nothing" if rate is None else f"{100 * rate:.1f} %"


def reuse_json(profile: Profile) -> dict[str, Any]:
    """The figures of all datasets that have some."""
    datasets = [
        {
            "name": dataset.name,
            "path": dataset.path,
            "hit_rate": dataset.prefixes.hit_rate,
            "last_half_hit_rate": dataset.prefixes.last_half_hit_rate,
            **plain(dataset.prefixes),
        }
        for dataset in profile.datasets
        if dataset.prefixes
    ]
    return {"datasets": datasets}
