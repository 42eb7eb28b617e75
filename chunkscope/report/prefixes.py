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
from chunkscope.prefixes.reuse import PrefixReuse, reuse_together
from chunkscope.report.profile import shortened
from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.section import Section, Table, table_of
from chunkscope.report.words import data, named, plan


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PrefixSummary(Shown):
    """The reuse of all datasets that were measured, and of all together."""

    profile: Profile
    measured: Sequence[tuple[DatasetProfile, PrefixReuse]]
    overall: PrefixReuse

    def to_json(self) -> dict[str, Any]:
        return {
            "datasets": [
                {"name": dataset.name, "path": dataset.path, **_figures(reuse)}
                for dataset, reuse in self.measured
            ],
            "together": _figures(self.overall),
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


def _figures(reuse: PrefixReuse) -> dict[str, Any]:
    return {"hit_rate": reuse.hit_rate, **plain(reuse)}


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
    """What would raise the hit rate: another template."""
    for dataset, reuse in summary.measured:
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
        rows.append((name, *counts, share(reuse.hit_rate)))
    heads = ("dataset", "prompts", "tokens", "common start", "cached")
    return table_of(heads, rows, strong=[len(rows) - 1] if rows[1:] else [])


def prefix_blocks(artefact: PrefixSummary) -> "list[Block]":
    return blocks_of(sections(artefact))
