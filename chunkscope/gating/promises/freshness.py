"""[gate.freshness]: do the artefacts belong to the data, and to each other?"""

import os
from collections.abc import Container, Iterator
from contextlib import chdir
from glob import has_magic
from pathlib import Path

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.errors import ChunkscopeError
from chunkscope.gating.budget import FreshnessPromises
from chunkscope.gating.evidence import Evidence
from chunkscope.gating.verdict import Verdict
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.sources.discovery import discover


def check_freshness(limits: FreshnessPromises, evidence: Evidence) -> Iterator[Verdict]:
    if limits.data:
        with chdir(_analyzed_from(evidence)):
            verdicts = list(_data(evidence.profile, limits.not_checked))
        yield from verdicts
    if limits.plan:
        made_from = evidence.plan.source.profile_digest
        yield _belongs("plan", made_from, "profile.json", evidence.digest(evidence.profile))
    if limits.verification:
        measured = evidence.verification.plan_digest
        yield _belongs("verification", measured, "plan.json", evidence.digest(evidence.plan))


def _analyzed_from(evidence: Evidence) -> Path:
    """The first folder from which the profile's paths lead anywhere, wherever the gate runs.

    `analyze` writes `reports/` into its own folder; else data are looked for beside the budget.
    """
    folders = (evidence.findings.folder.resolve().parent, evidence.folder.resolve(), Path.cwd())
    paths = [dataset.path for dataset in evidence.profile.datasets]
    leading = (one for one in folders if any(file_of(one / path) for path in paths))
    return next(leading, folders[0])


def _data(profile: Profile, not_checked: Container[str]) -> Iterator[Verdict]:
    there, problem = _there_today(profile)
    memo = DigestMemo()
    for dataset in profile.datasets:
        if dataset.name not in not_checked:
            yield _unchanged(dataset, memo, problem or _not_found(dataset, there))
    memo.save()
    counted = {dataset.path for dataset in profile.datasets}
    for path, name in there.items():
        if path not in counted and name not in not_checked:
            yield _added(path)


def _there_today(profile: Profile) -> tuple[dict[str, str], str]:
    """The names of all datasets that the same paths lead to now, by their paths."""
    paths = profile.paths
    if not paths:
        return {}, "the profile does not say what was analyzed: run `chunkscope analyze` again"
    on_disk = [path for path in paths if os.path.lexists(path) or has_magic(path)]
    if not on_disk:
        return {}, ""
    try:
        options = profile.options
        sources, _ = discover(
            on_disk, include=options.include, exclude=options.exclude, options=options.read
        )
    except ChunkscopeError as error:
        return {}, error.message
    return {source.path: source.name for source in sources}, ""


def _not_found(dataset: DatasetProfile, there: Container[str]) -> str:
    if dataset.path in there or file_of(dataset.path) is None:
        return ""
    return "what was analyzed no longer leads to it: run `chunkscope analyze` again"


def _added(path: str) -> Verdict:
    """A file that `analyze` would count today, and that was not there when it did."""
    return Verdict(
        promise="freshness.data",
        subject=path,
        kept=False,
        promised="nothing new beside what was counted",
        found="not in the profile",
        found_value=path,
    )


def _unchanged(dataset: DatasetProfile, memo: DigestMemo, problem: str) -> Verdict:
    found, note = _digest_now(dataset, memo)
    if problem and not note:
        found, note = None, problem
    kept = found is not None and found == dataset.sha256
    differs = "changed since it was counted" if found else "not known"
    return Verdict(
        promise="freshness.data",
        subject=dataset.name,
        kept=kept,
        promised="as it was counted",
        found="the same file" if kept else differs,
        promised_value=dataset.sha256,
        found_value=found,
        note=note or ("" if kept else dataset.path),
    )


def _digest_now(dataset: DatasetProfile, memo: DigestMemo) -> tuple[str | None, str]:
    if dataset.sha256 is None:
        return None, "no file to look at (stdin or a hub dataset): name it in `not_checked`"
    file = file_of(dataset.path)
    if file is None:
        return None, f"{dataset.path} is not there: looked for in {Path.cwd()}"
    try:
        return memo.sha256(file), ""
    except OSError as error:
        return None, f"cannot read {file}: {error.strerror}"


def file_of(path: str | Path) -> Path | None:
    """The file or folder of a dataset: of a member of an archive it is the archive."""
    try:
        if Path(path).exists():
            return Path(path)
        return next((folder for folder in Path(path).parents if folder.is_file()), None)
    except (OSError, ValueError):
        return None


def _belongs(what: str, made_from: str | None, name: str, today: str) -> Verdict:
    """Was this artefact made from the file of that name, as it is today?"""
    made = "made from" if what == "plan" else "measured with"
    differs = f"{made} another" if made_from else "does not say"
    return Verdict(
        promise=f"freshness.{what}",
        subject=name,
        kept=made_from == today,
        promised=f"{made} this {name}",
        found="it is" if made_from == today else differs,
        promised_value=today,
        found_value=made_from,
    )
