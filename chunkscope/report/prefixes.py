"""What prompts share: how much of it a prefix cache serves, and what would make that more."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chunkscope.artefacts.artefact import Shown, plain
from chunkscope.artefacts.files import Name
from chunkscope.artefacts.numbers import share
from chunkscope.errors import InputError
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.planning.plan import Saving
from chunkscope.prefixes.reuse import FLAT, PrefixReuse, reuse_together
from chunkscope.report.profile import shortened
from chunkscope.report.section import Section, Table, table_of
from chunkscope.report.words import data, named, plan

MATTERS = 0.05  # of all tokens: another order that gains less is not worth a sentence


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PrefixSummary(Shown):
    """The reuse of all datasets that were measured, and of all together."""

    profile: Profile
    measured: Sequence[tuple[DatasetProfile, PrefixReuse]]
    overall: PrefixReuse

    def to_json(self) -> dict[str, Any]:
        return {
            "datasets": [
                {"name": dataset.name, "path": dataset.path, **_figures(reuse, reuse)}
                for dataset, reuse in self.measured
            ],
            "together": _figures(self.overall, *(reuse for _, reuse in self.measured)),
        }


def prefixes(profile: Profile | Name = Profile.default_path) -> PrefixSummary:
    """How much of the prompts vLLM's prefix cache would serve."""
    profile = Profile.load(profile)
    measured = [
        (dataset, dataset.prefixes) for dataset in profile.datasets if dataset.prefixes
    ]
    if not measured:
        raise InputError(
            "what prompts share was not measured for this profile",
            hint="measure it: `chunkscope analyze data/`, without prefixes = false",
        )
    overall = reuse_together([reuse for _, reuse in measured])
    return PrefixSummary(profile=profile, measured=measured, overall=overall)


def enough_for(*datasets: PrefixReuse) -> int | None:
    """The smallest KV cache, in tokens, that serves nearly all of each; None if that is unknown."""
    sharing = [
        (one.capacities, FLAT * one.cached_tokens)
        for one in datasets
        if one.cached_tokens
    ]
    sizes = [
        [at.kv_tokens for at in some if at.cached_tokens >= n] for some, n in sharing
    ]
    return max(fitting[0] for fitting in sizes) if sizes and all(sizes) else None


def _figures(reuse: PrefixReuse, *datasets: PrefixReuse) -> dict[str, Any]:
    return {
        "hit_rate": reuse.hit_rate,
        "flat_at": enough_for(*datasets),
        **plain(reuse),
    }


# -- sections ------------------------------------------------------------------------------------


def sections(summary: PrefixSummary) -> list[Section]:
    overall = data.shared(summary.overall)
    names = [
        dataset.name for dataset in summary.profile.datasets if not dataset.prefixes
    ]
    left = (f"not measured: {named(names, 5)}",) if names else ()
    return [
        Section(sentences=(overall,), table=_shared_table(summary), notes=left),
        Section(sentences=tuple(map(plan.saving, _advice(summary)))),
    ]


def _advice(summary: PrefixSummary) -> Iterator[Saving]:
    """What would raise the hit rate: another order, another template."""
    for dataset, reuse in summary.measured:
        gains = [
            at.best_order_cached_tokens - at.cached_tokens for at in reuse.capacities
        ]
        gains = [gain for gain in gains if gain > MATTERS * reuse.tokens]
        if (
            gains and dataset.kind != "lengths"
        ):  # requests of a trace come when they come
            yield Saving(
                tokens=gains[-1], code="better_order", values={"dataset": dataset.name}
            )
        for near in reuse.near_misses:
            values: dict[str, Any] = {"text": near.text, "other": near.other_text}
            values |= {"dataset": dataset.name, "prompts": near.prompts}
            yield Saving(
                tokens=near.lost_tokens, code="early_difference", values=values
            )


def _shared_table(summary: PrefixSummary) -> Table | None:
    rows = []
    for name, members in shortened([dataset for dataset, _ in summary.measured]):
        each = [dataset.prefixes for dataset in members if dataset.prefixes]
        reuse = reuse_together(each)
        counts = (reuse.prompts, reuse.tokens, reuse.common_tokens)
        rows.append((name, *counts, share(reuse.hit_rate), enough_for(*each)))
    heads = ("dataset", "prompts", "tokens", "common start", "cached", "KV tokens")
    return table_of(heads, rows, strong=[len(rows) - 1] if rows[1:] else [])
