"""[gate.freshness]: do the artefacts belong to the data, and to each other?"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from glob import has_magic
from pathlib import Path

from chunkscope.artefacts.artefact import Artefact
from chunkscope.artefacts.note import Note, note
from chunkscope.errors import ChunkscopeError
from chunkscope.gating.budget import FreshnessTable
from chunkscope.gating.check import Check, Relation
from chunkscope.gating.evidence import Evidence
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.planning.plan import Plan
from chunkscope.sources.base import Source
from chunkscope.sources.find import discover
from chunkscope.tokenizers.cache import file_digest


def check_freshness(table: FreshnessTable, evidence: Evidence) -> Iterator[Check]:
    findings = evidence.findings
    if table.data:
        with chdir(_folder_of_data(evidence)):
            checks = _data_checks(evidence.need_profile(), table.not_checked)
        yield from checks
    if table.plan:
        evidence.need_plan()
        evidence.need_profile()
        yield _made_from("plan", Profile, findings.plan_is_of_this_profile)
    if table.verification:
        evidence.need_verification()
        evidence.need_plan()
        yield _made_from("verification", Plan, findings.verification_is_of_this_plan)


def _made_from(artefact: str, source: type[Artefact], is_of_it: bool | None) -> Check:
    """Was the artefact made from the other, as that is today? None: not known."""
    value = None
    if is_of_it is not None:
        value = "this" if is_of_it else "another"
    return Check(
        name=f"freshness.{artefact}",
        passed=is_of_it is True,
        relation=Relation.MADE_FROM,
        limit=source.default_path.name,
        value=value,
    )


# -- the data --------------------------------------------------------------------------


def _folder_of_data(evidence: Evidence) -> Path:
    """The first folder in which one of the profile's paths exists."""
    beside_reports = evidence.findings.folder.resolve().parent
    for folder in (beside_reports, evidence.folder.resolve(), Path.cwd()):
        for path in evidence.need_profile().paths:
            if os.path.lexists(folder / path):
                return folder
    return beside_reports


def _data_checks(profile: Profile, not_checked: Sequence[str]) -> list[Check]:
    """The files at the profile's paths today against those that were counted."""
    try:
        sources = _sources_today(profile)
        problem = None
    except ChunkscopeError as error:
        sources = []
        problem = note("gate_cannot_look", why=error.message)
    files = {source.path: source.file for source in sources}
    checks = []
    for dataset in profile.datasets:
        if dataset.name not in not_checked:
            checks.append(_file_check(dataset, files, problem))
    counted = {dataset.path for dataset in profile.datasets}
    for source in sources:
        if source.path not in counted and source.name not in not_checked:
            # `analyze` would count it.
            checks.append(_unchanged(source.path, "new"))
    return checks


def _sources_today(profile: Profile) -> list[Source]:
    """What `analyze` would find at the paths that it was given then."""
    paths = []
    for path in profile.paths:
        if os.path.lexists(path) or has_magic(path):
            paths.append(path)
    if not paths:
        return []
    options = profile.options
    sources, _left_out = discover(
        paths,
        exclude=options.exclude,
        options=options.read,
    )
    return sources


def _file_check(
    dataset: DatasetProfile, files: Mapping[str, Path | None], problem: Note | None
) -> Check:
    """Is its file the one that was counted? Not where that cannot be known."""
    file = files.get(dataset.path)
    if problem is not None:
        return _unchanged(dataset.name, None, problem)
    if dataset.digest is None:
        return _unchanged(dataset.name, None, note("gate_no_file"))
    if file is None:
        reason = note("gate_not_led_to", path=dataset.path)
        return _unchanged(dataset.name, None, reason)
    try:
        digest = file_digest(file)
    except OSError as error:
        reason = note("gate_cannot_look", why=f"{file}: {error.strerror}")
        return _unchanged(dataset.name, None, reason)
    if digest != dataset.digest:
        reason = note("gate_file", path=dataset.path)
        return _unchanged(dataset.name, "changed", reason)
    return _unchanged(dataset.name, "same")


def _unchanged(subject: str, value: str | None, reason: Note | None = None) -> Check:
    return Check(
        name="freshness.data",
        passed=value == "same",
        subject=subject,
        relation=Relation.UNCHANGED,
        value=value,
        reason=reason,
    )
