"""[gate.drift]: how far the lengths have moved from those of a committed profile."""

from collections.abc import Iterable, Iterator, Mapping

from chunkscope.artefacts.units import COUNT, SHARE, exceeds
from chunkscope.errors import InputError
from chunkscope.gating.budget import DriftPromises
from chunkscope.gating.evidence import Evidence, doubt_of
from chunkscope.gating.verdict import Verdict, doubted, limited
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile, TokenizerInfo


def check_drift(limits: DriftPromises, evidence: Evidence) -> Iterator[Verdict]:
    now, before = evidence.profile, evidence.baseline(limits.baseline, Profile.load)
    _check_comparable(now.tokenizer, before.tokenizer, limits.baseline)
    doubt = _doubt(limits, now.datasets, before.datasets)
    for verdict in _moved(limits, ALL, now.overall, before.overall):
        yield doubted(verdict, doubt)
    filled, known = _filled(now), _filled(before)
    if limits.each_dataset and not len(filled) == len(known) == 1:
        for name in filled:
            if name in known:
                one, other = filled[name], known[name]
                doubt = _doubt(limits, [one], [other])
                for verdict in _moved(limits, name, one.lengths, other.lengths):
                    yield doubted(verdict, doubt)
    yield from _came_and_went(limits, filled, known)


def _filled(profile: Profile) -> dict[str, DatasetProfile]:
    """By name; one without rows is as good as gone."""
    return {dataset.name: dataset for dataset in profile.datasets if dataset.rows}


def _doubt(
    limits: DriftPromises, now: Iterable[DatasetProfile], before: Iterable[DatasetProfile]
) -> str:
    then = doubt_of(before, allow_sample=limits.allow_sample)
    return doubt_of(now, allow_sample=limits.allow_sample) or (then and f"in the baseline, {then}")


def _check_comparable(now: TokenizerInfo, before: TokenizerInfo, baseline: str) -> None:
    # Traces brought their lengths along: no tokenizer of ours made them.
    if "none" in (now.kind, before.kind) and now.kind != before.kind:
        differ = "one of them was counted with a tokenizer, the other brought its lengths along"
    elif now.digest != before.digest:
        differ = f"{before.name} there, {now.name} now"
        if now.name == before.name:
            differ = f"both are called {now.name}, but their files differ"
    elif now.chat_template != before.chat_template:
        differ = "other chat templates"
    elif now.special_tokens_added != before.special_tokens_added:
        differ = "with and without special tokens"
    else:
        return
    raise InputError(
        f"the baseline {baseline} was counted with another tokenizer: lengths are not comparable "
        f"({differ})",
        hint="analyze with the baseline's --tokenizer, or commit a new baseline",
    )


def _moved(
    limits: DriftPromises, subject: str, now: LengthHistogram, before: LengthHistogram
) -> Iterator[Verdict]:
    for key, limit, old, new in (
        ("p50", limits.p50, before.percentile(50), now.percentile(50)),
        ("p95", limits.p95, before.percentile(95), now.percentile(95)),
        ("max", limits.max, before.max, now.max),
    ):
        if limit is None:
            continue
        change = _change(old, new)
        size = abs(change) if change is not None else None
        promised, found = SHARE.write_both(limit, size)
        sign = "+" if change and change > 0 else "-" if change else ""
        both = f"{COUNT.write(old)} -> {COUNT.write(new)}"
        yield Verdict(
            promise=f"drift.{key}",
            subject=subject,
            kept=size is not None and not exceeds(size, limit),
            promised=f"within {promised}",
            found=f"{sign}{found}, {both}",
            promised_value=limit,
            found_value=change,
        )


def _change(old: float | None, new: float | None) -> float | None:
    """The relative change; None where there is nothing to relate it to."""
    if old is None or new is None:
        return None
    if old == new:
        return 0.0
    return (new - old) / old if old else None


def _came_and_went(
    limits: DriftPromises, now: Mapping[str, object], before: Mapping[str, object]
) -> Iterator[Verdict]:
    came = [name for name in now if name not in before]
    went = [name for name in before if name not in now]
    for key, limit, names in (
        ("new_datasets", limits.new_datasets, came),
        ("vanished_datasets", limits.vanished_datasets, went),
    ):
        if limit is not None:
            subject = ", ".join(names) or "none"
            yield limited(f"drift.{key}", limit, len(names), COUNT, subject=subject)
