"""How much of the prompts a prefix cache serves: values, from a profile and a plan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkscope.artefacts.schema import plain
from chunkscope.artefacts.words import Name
from chunkscope.errors import InputError
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.prefixes.reuse import (
    BLOCK_SIZE,
    FLAT,
    CachedAt,
    NearMiss,
    PrefixReuse,
    reuse_together,
)

if TYPE_CHECKING:  # loading it takes longer than showing a profile
    from chunkscope.planning.plan import Plan

Measured = Sequence[tuple[DatasetProfile, PrefixReuse]]
MATTERS = 0.05  # of all tokens: another order that gains less is not worth a sentence


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


def prefixes(profile: Profile | Name, plan: "Plan | Name | None" = None) -> PrefixSummary:
    """How much of the prompts vLLM's prefix cache would serve; with a plan, in its KV cache."""
    profile = Profile.given(profile)
    if plan is not None:
        from chunkscope.planning.plan import Plan

        plan = Plan.given(plan)
    measured = measured_in(profile)
    if not measured:
        raise InputError(
            "the profile does not say what its prompts share",
            hint="measure it: `chunkscope analyze data/`, without prefixes = false",
        )
    return PrefixSummary(
        profile=profile,
        measured=measured,
        overall=reuse_together([reuse for _, reuse in measured]),
        planned=planned_cache(measured, plan),
    )


def plan_for(profile: Path) -> "Plan | None":
    """The plan beside a profile, if it was made from that very one."""
    from chunkscope.planning.plan import Plan

    beside = profile.with_name("plan.json")
    plan = Plan.load(beside) if beside.exists() else None
    same = plan is not None and plan.source.profile_digest == Profile.load(profile).digest()
    return plan if same else None


def measured_in(profile: Profile) -> Measured:
    return [(dataset, dataset.prefixes) for dataset in profile.datasets if dataset.prefixes]


def enough_for(reuse: PrefixReuse) -> int | None:
    enough = FLAT * reuse.cached_tokens
    sizes = (at.kv_tokens for at in reuse.capacities if at.cached_tokens >= enough)
    return next(sizes, None) if reuse.cached_tokens else None


def planned_cache(measured: Measured, plan: "Plan | None") -> PlannedCache | None:
    """None without a plan that knows its model and GPU, or where it is not known of a dataset."""
    if plan is None or plan.memory is None or plan.memory.kv_cache_tokens is None:
        return None
    if all(output.is_scored for output in plan.outputs):
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
    return (at.best_order_cached_tokens or 0) - at.cached_tokens


def _figures(reuse: PrefixReuse) -> dict[str, Any]:
    return {
        "hit_rate": reuse.hit_rate,
        "flat_at": enough_for(reuse),
        **plain(reuse),
    }
