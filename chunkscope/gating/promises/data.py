"""[gate.data]: how long the prompts are, how many, and whether all of them can be served."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from chunkscope.artefacts.figures import Better
from chunkscope.artefacts.units import COUNT, SHARE, TOKENS, Unit
from chunkscope.gating.budget import DataPromises, LengthPromises
from chunkscope.gating.evidence import Evidence, doubt_of
from chunkscope.gating.verdict import Verdict, doubted, limited
from chunkscope.lengths.profile import ALL, DatasetProfile, together
from chunkscope.prefixes.reuse import PrefixReuse, reuse_together

AT_LEAST = {"min_rows", "prefix_hit_rate", "shared_prefix_tokens"}  # the others: at most
PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}


def check_data(limits: DataPromises, evidence: Evidence) -> Iterator[Verdict]:
    datasets = evidence.profile.datasets
    doubt = doubt_of(datasets, allow_sample=limits.allow_sample)
    yield from _lengths(limits, datasets, doubt, subject=ALL, where=("data",))
    if limits.max_model_len is not None:
        yield _served(limits.max_model_len, evidence.output_tokens, datasets, doubt)
    for name in limits.datasets or ():
        yield _present(name, datasets)
    for name, own in limits.of.items():
        yield from _one(name, own, datasets, allow_sample=limits.allow_sample)


def _one(
    name: str, limits: LengthPromises, datasets: Sequence[DatasetProfile], *, allow_sample: bool
) -> Iterator[Verdict]:
    found = [dataset for dataset in datasets if dataset.name == name]
    if not found:
        yield _present(name, datasets, where=("data", "of", name))
        return
    doubt = doubt_of(found, allow_sample=allow_sample)
    yield from _lengths(limits, found, doubt, subject=name, where=("data", "of", name))


def _lengths(
    limits: LengthPromises,
    datasets: Sequence[DatasetProfile],
    doubt: str,
    *,
    subject: str,
    where: tuple[str, ...],
) -> Iterator[Verdict]:
    lengths = together(datasets)
    figures: dict[str, tuple[float | None, Unit]] = {
        "longest_prompt": (lengths.max, TOKENS),
        **{key: (lengths.percentile(percent), TOKENS) for key, percent in PERCENTILES.items()},
        "min_rows": (all_rows(datasets), COUNT),
        "bad_rows": (sum(dataset.skipped for dataset in datasets), COUNT),
    }
    if limits.prefix_hit_rate is not None or limits.shared_prefix_tokens is not None:
        reuse = reuse_of(datasets)
        figures["prefix_hit_rate"] = (reuse.hit_rate if reuse else None, SHARE)
        figures["shared_prefix_tokens"] = (reuse.common_tokens if reuse else None, TOKENS)
    for key, (found, unit) in figures.items():
        if (limit := getattr(limits, key)) is None:
            continue
        told: dict[str, Any] = {"subject": subject, "where": (*where, key)}
        if key in AT_LEAST:
            told["better"] = Better.MORE
        verdict = limited(f"data.{key}", limit, found, unit, **told)
        yield verdict if key == "min_rows" else doubted(verdict, doubt)


def reuse_of(datasets: Sequence[DatasetProfile]) -> PrefixReuse | None:
    """None where it was not measured of every dataset that has prompts."""
    measured = [dataset.prefixes for dataset in datasets if dataset.rows]
    known = [reuse for reuse in measured if reuse is not None]
    return reuse_together(known) if known and len(known) == len(measured) else None


def all_rows(datasets: Iterable[DatasetProfile]) -> int:
    """What the data holds, though only a part of it may have been counted."""
    return sum(d.sample.out_of if d.sample else d.rows for d in datasets)


def _served(
    max_model_len: int, output_tokens: int, datasets: Sequence[DatasetProfile], doubt: str
) -> Verdict:
    lengths = together(datasets)
    room = max_model_len - output_tokens
    refused = lengths.over(room)
    longest = TOKENS.write(lengths.max)
    verdict = Verdict(
        promise="data.max_model_len",
        subject=ALL,
        kept=refused == 0 and lengths.count > 0,
        promised=f"none over {room:,} tokens",
        found=f"{refused:,} of {lengths.count:,}, longest {longest}",
        promised_value=max_model_len,
        found_value=refused,
        note=(
            f"vLLM refuses prompts over {max_model_len:,} less {output_tokens:,} for the output"
            if refused
            else ""
        ),
    )
    return doubted(verdict, doubt)


def _present(
    name: str,
    datasets: Sequence[DatasetProfile],
    where: tuple[str, ...] = ("data", "datasets"),
) -> Verdict:
    rows = {dataset.name: dataset.rows for dataset in datasets}
    near = [] if name in rows else get_close_matches(name, rows, n=1)
    return Verdict(
        promise="data.datasets",
        subject=name,
        kept=rows.get(name, 0) > 0,
        promised="there",
        found=f"{rows[name]:,} rows" if name in rows else "not in the profile",
        found_value=rows.get(name),
        note=f"did you mean {near[0]}?" if near else "",
        where=where,
    )
