"""What prompts share: how much a prefix cache serves of it, and what would help."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chunkscope.artefacts.artefact import Shown, plain
from chunkscope.artefacts.files import Name
from chunkscope.artefacts.numbers import plural, share
from chunkscope.errors import InputError
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.prefixes.reuse import NearMiss, PrefixReuse, reuse_together
from chunkscope.report.blocks import Block, Headline, Notes, Table, Text, table
from chunkscope.report.profile import shared, shortened
from chunkscope.report.wording import named

MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PrefixSummary(Shown):
    """The reuse of all datasets that were measured, and of all together."""

    profile: Profile
    measured: Sequence[tuple[DatasetProfile, PrefixReuse]]
    overall: PrefixReuse

    def to_json(self) -> dict[str, Any]:
        datasets = []
        for dataset, reuse in self.measured:
            about = {"name": dataset.name, "path": dataset.path}
            datasets.append({**about, **_figures(reuse)})
        return {"datasets": datasets, "together": _figures(self.overall)}


def _figures(reuse: PrefixReuse) -> dict[str, Any]:
    return {"hit_rate": reuse.hit_rate, **plain(reuse)}


def prefixes(profile: Profile | Name = Profile.default_path) -> PrefixSummary:
    """How much of the prompts vLLM's prefix cache would serve."""
    profile = Profile.load(profile)
    measured = []
    for dataset in profile.datasets:
        if dataset.prefixes is not None:
            measured.append((dataset, dataset.prefixes))
    if not measured:
        raise InputError(
            "what prompts share was not measured for this profile",
            hint="measure it: `chunkscope analyze data/`, without --no-prefixes",
        )
    overall = reuse_together([reuse for _, reuse in measured])
    return PrefixSummary(profile=profile, measured=measured, overall=overall)


# -- blocks ----------------------------------------------------------------------------


def prefix_blocks(summary: PrefixSummary) -> list[Block]:
    blocks: list[Block] = [
        Headline(shared(summary.overall)),
        reuse_table(summary),
    ]
    blocks += [Text(advice) for advice in advices(summary)]
    missing = []
    for dataset in summary.profile.datasets:
        if dataset.prefixes is None:
            missing.append(dataset.name)
    if missing:
        blocks.append(Notes((f"Not measured: {named(missing, MOST_NAMED)}.",)))
    return blocks


def reuse_table(summary: PrefixSummary) -> Table:
    rows = []
    for group in shortened([dataset for dataset, _ in summary.measured]):
        members = [dataset.prefixes for dataset in group.datasets if dataset.prefixes]
        reuse = reuse_together(members)
        rows.append(
            (
                group.name,
                reuse.prompts,
                reuse.tokens,
                reuse.common_tokens,
                share(reuse.hit_rate),
            )
        )
    strong = [len(rows) - 1] if len(rows) > 1 else []
    headings = ("dataset", "prompts", "tokens", "common start", "cached")
    return table(headings, rows, strong=strong)


def advices(summary: PrefixSummary) -> Iterator[str]:
    """What would raise the hit rate: another template."""
    for dataset, reuse in summary.measured:
        for near in reuse.near_misses:
            yield early_difference(dataset.name, near)


def early_difference(name: str, near: NearMiss) -> str:
    return (
        f"{name}: about {plural(near.prompts, 'prompt')} are the same except near the "
        f'start ("{near.text}", "{near.other_text}"). Moving that part to the end '
        f"would save about {plural(near.lost_tokens, 'prompt token')}."
    )
