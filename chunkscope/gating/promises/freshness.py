"""[gate.freshness]: do the artefacts belong to the data, and to each other?"""

from collections.abc import Iterator
from pathlib import Path

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.gating.budget import FreshnessPromises
from chunkscope.gating.evidence import Evidence
from chunkscope.gating.verdict import Verdict
from chunkscope.lengths.profile import DatasetProfile


def check_freshness(limits: FreshnessPromises, evidence: Evidence) -> Iterator[Verdict]:
    if limits.data:
        memo = DigestMemo()
        for dataset in evidence.profile.datasets:
            if dataset.name not in limits.not_checked:
                yield _unchanged(dataset, memo)
        memo.save()
    if limits.plan:
        made_from = evidence.plan.inputs.profile_digest
        yield _belongs("plan", made_from, "profile.json", evidence.digest(evidence.profile))
    if limits.verification:
        measured = evidence.verification.plan_digest
        yield _belongs("verification", measured, "plan.json", evidence.digest(evidence.plan))


def _unchanged(dataset: DatasetProfile, memo: DigestMemo) -> Verdict:
    found, note = _digest_now(dataset, memo)
    return Verdict(
        promise="freshness.data",
        subject=dataset.name,
        kept=found is not None and found == dataset.sha256,
        promised=f"still {_short(dataset.sha256)}",
        found=_short(found) if found else "not known",
        promised_value=dataset.sha256,
        found_value=found,
        note=note or (f"{dataset.path} has changed" if found != dataset.sha256 else ""),
    )


def _digest_now(dataset: DatasetProfile, memo: DigestMemo) -> tuple[str | None, str]:
    if dataset.sha256 is None:
        return None, "no file to look at (stdin or a hub dataset): name it in `not_checked`"
    file = file_of(dataset.path)
    if file is None:
        return None, f"{dataset.path} is not there; the gate looks from the folder it runs in"
    try:
        return memo.sha256(file), ""
    except OSError as error:
        return None, f"cannot read {file}: {error.strerror}"


def file_of(path: str) -> Path | None:
    """The file or folder of a dataset: of a member of an archive it is the archive."""
    try:
        if Path(path).exists():
            return Path(path)
        return next((folder for folder in Path(path).parents if folder.is_file()), None)
    except (OSError, ValueError):
        return None


def _belongs(what: str, made_from: str | None, name: str, today: str) -> Verdict:
    """Was this artefact made from the file of that name, as it is today?"""
    makes = "chunkscope recommend" if what == "plan" else "chunkscope verify"
    return Verdict(
        promise=f"freshness.{what}",
        subject=name,
        kept=made_from == today,
        promised=f"of {_short(today)}",
        found=f"of {_short(made_from)}" if made_from else "does not say",
        promised_value=today,
        found_value=made_from,
        note="" if made_from == today else f"run `{makes}` again",
    )


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "-"
