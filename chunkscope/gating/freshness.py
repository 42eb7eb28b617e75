"""[gate.freshness]: do the artefacts belong to the data, and to each other?

Data may lie elsewhere than where it was analyzed: an absolute path of another machine
is looked for below the budget and the results. What counts is each file's content.
"""

import os
from collections.abc import Iterator, Mapping
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
        for check in _data_checks(evidence):
            if check.subject not in table.not_checked:
                yield check
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


def _data_checks(evidence: Evidence) -> list[Check]:
    """The files at the profile's paths today against those that were counted."""
    profile = evidence.need_profile()
    beside_reports = evidence.findings.folder.resolve().parent
    folders = (beside_reports, evidence.folder.resolve(), Path.cwd())
    moved = {}
    for path in profile.paths:
        moved[path] = _place_today(path, folders)
    folder = _folder_of_data(profile, folders)
    with chdir(folder):
        try:
            sources = _sources_today(profile, [*moved.values()])
        except ChunkscopeError as error:
            problem = note("gate_cannot_look", why=error.message)
            return [_unchanged(d.name, None, problem) for d in profile.datasets]
        files = {}
        for source in sources:
            files[_path_then(source.path, moved)] = source
        checks = [_file_check(dataset, files) for dataset in profile.datasets]
    counted = {dataset.path for dataset in profile.datasets}
    for path, source in files.items():
        if path not in counted:  # `analyze` would count it
            checks.append(_unchanged(source.name, "new"))
    return checks


def _place_today(path: str, folders: tuple[Path, ...]) -> str:
    """Where an absolute path that is not there lies below one of the folders.

    Of /home/ann/evals/data the first that exists of evals/data and data.
    """
    if not Path(path).is_absolute() or os.path.lexists(path):
        return path
    parts = Path(path).parts[1:]
    for start in range(len(parts)):
        for folder in folders:
            place = folder.joinpath(*parts[start:])
            if place.exists():
                return str(place)
    return path


def _path_then(path: str, moved: Mapping[str, str]) -> str:
    """A path of today as it was when the data was analyzed."""
    for then, today in moved.items():
        if then != today and f"{path}/".startswith(f"{today}/"):
            return then + path.removeprefix(today)
    return path


def _folder_of_data(profile: Profile, folders: tuple[Path, ...]) -> Path:
    """The first folder in which one of the profile's paths exists."""
    for folder in folders:
        for path in profile.paths:
            if os.path.lexists(folder / path):
                return folder
    return folders[0]


def _sources_today(profile: Profile, paths: list[str]) -> list[Source]:
    """What `analyze` would find at these paths."""
    existing = [path for path in paths if os.path.lexists(path) or has_magic(path)]
    if not existing:
        return []
    options = profile.options
    sources, _left_out = discover(
        existing,
        exclude=options.exclude,
        options=options.read,
    )
    return sources


def _file_check(dataset: DatasetProfile, files: Mapping[str, Source]) -> Check:
    """Is its file the one that was counted? Not where that cannot be known."""
    source = files.get(dataset.path)
    if dataset.digest is None:
        return _unchanged(dataset.name, None, note("gate_no_file"))
    if source is None or source.file is None:
        reason = note("gate_not_led_to", path=dataset.path)
        return _unchanged(dataset.name, None, reason)
    try:
        digest = file_digest(source.file)
    except OSError as error:
        reason = note("gate_cannot_look", why=f"{source.file}: {error.strerror}")
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
