"""What prompts share, for the page: the curve by KV cache, a table and sentences.

Without the texts around a difference: the page holds no prompt.
"""

from collections.abc import Iterator
from typing import Any

from chunkscope.artefacts.numbers import number
from chunkscope.lengths.profile import ALL, Profile
from chunkscope.planning.plan import Plan
from chunkscope.prefixes.reuse import PrefixReuse
from chunkscope.report import prefix_words as words
from chunkscope.report.prefix_words import Measured, rate

_ORDERS = {
    "as the file has them": "cached_tokens",
    "longest first, as sent": "sent_order_cached_tokens",
    "those that begin alike together": "best_order_cached_tokens",
}
_MOST_CURVES = 200
_MOST_ROWS = 100


def reuse_chart(profile: Profile | None, plan: Plan | None) -> dict[str, Any] | None:
    """By dataset, a line per order; None where no capacity was tried."""
    measured = words.measured_in(profile) if profile else ()
    drawn = [(name, reuse) for name, reuse in _named(measured) if reuse.capacities]
    if not drawn:
        return None
    of_all = drawn[0][0] == ALL or len(measured) == 1  # what the plan's figure is about
    planned = words.planned_cache(measured, plan) if of_all else None
    mark = {"tokens": planned.kv_tokens, "found": planned.found} if planned else None
    return {"sets": [_set(*one) for one in drawn[:_MOST_CURVES]], "plan": mark}


def _named(measured: Measured) -> Iterator[tuple[str, PrefixReuse]]:
    if len(measured) > 1:
        yield ALL, words.all_of(measured)
    for dataset, reuse in measured:
        yield dataset.name, reuse


def _set(name: str, reuse: PrefixReuse) -> dict[str, Any]:
    lines = {
        order: [[at.kv_tokens, getattr(at, field) / reuse.tokens] for at in reuse.capacities]
        for order, field in _ORDERS.items()
        if all(getattr(at, field) is not None for at in reuse.capacities)
    }
    return {"name": name, "lines": lines, "ideal": reuse.hit_rate, "flat_at": words.flat_at(reuse)}


def reuse_view(profile: Profile | None, plan: Plan | None) -> dict[str, Any] | None:
    """What stands around the curve; None where nothing was measured."""
    measured = words.measured_in(profile) if profile else ()
    if not measured:
        return None
    overall, planned = words.all_of(measured), words.planned_cache(measured, plan)
    said = [
        words.plan_sentence(planned) if planned else "",
        words.flat_sentence(overall) or "",
        *words.order_sentences(measured, planned),
        *(sentence for sentence, _, _ in words.near_miss_sentences(measured)),
        *words.scoring_sentences(measured),
    ]
    rows = [_row(name, reuse) for name, reuse in _named(measured)]
    return {
        "headline": words.headline(overall),
        "sentences": [sentence.replace("`", "") for sentence in said if sentence],
        "rows": rows[:_MOST_ROWS],
        "left_out": max(0, len(rows) - _MOST_ROWS),
        "running": overall.running,
    }


def _row(name: str, reuse: PrefixReuse) -> tuple[str, ...]:
    flat = words.flat_at(reuse)
    return (
        name,
        number(reuse.prompts),
        number(reuse.common_tokens),
        number(reuse.common_block_tokens),
        number(reuse.working_set_tokens),
        rate(reuse.cached_tokens, reuse.tokens),
        number(flat) if flat else "-",
    )
