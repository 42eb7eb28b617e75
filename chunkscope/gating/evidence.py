"""What promises are held against: the artefacts, and the committed files a budget names."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from chunkscope.artefacts.artefact import Artefact
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.errors import InputError
from chunkscope.findings import Findings
from chunkscope.lengths.profile import DEFAULT_OUTPUT, DatasetProfile, Profile
from chunkscope.planning.plan import Plan
from chunkscope.verification.result import Run, Verification

T = TypeVar("T")
A = TypeVar("A", bound=Artefact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """An artefact that a promise needs and that is not there is an error, never a pass."""

    findings: Findings
    folder: Path  # of the budget file
    asked_output_tokens: int | None = None

    @property
    def profile(self) -> Profile:
        return self._need(self.findings.profile, Profile)

    @property
    def plan(self) -> Plan:
        return self._need(self.findings.plan, Plan)

    @property
    def verification(self) -> Verification:
        return self._need(self.findings.verification, Verification)

    @property
    def diagnosis(self) -> Diagnosis:
        found = self._need(self.findings.diagnosis, Diagnosis)
        if why := found.contradiction:
            path = self.findings.folder / found.default_path.name
            raise InputError(
                f"{path} contradicts itself: {why}", hint="make it again: `chunkscope doctor`"
            )
        return found

    def _need(self, found: A | None, kind: type[A]) -> A:
        if found is None:
            path = self.findings.folder / kind.default_path.name
            raise InputError(
                f"a promise needs {path}, and it is not there",
                hint=f"run `{kind.made_by}` first, or take the promise out",
            )
        return found

    def digest(self, artefact: Artefact) -> str:
        """Of the file that it was read from."""
        return self.findings.digests[artefact.default_path.name]

    @property
    def output_tokens(self) -> int:
        """Room for the answer: as the budget says, else the plan, else the usual."""
        if self.asked_output_tokens is not None:
            return self.asked_output_tokens
        return self.plan.output.tokens if self.findings.plan else DEFAULT_OUTPUT

    def path(self, name: str) -> Path:
        """A file that the budget names, as seen from the budget file."""
        return Path(os.path.normpath(self.folder / name))

    def baseline(self, name: str, load: Callable[[Path], T]) -> T:
        path = self.path(name)
        try:
            return load(path)
        except InputError as error:
            hint = "a baseline is a copy of an artefact, committed: `cp reports/... baseline/`"
            raise InputError(f"the baseline {path}: {error.message}", hint=hint) from None


def run_of(verification: Verification, setting: str) -> tuple[Run | None, str]:
    """The row of that name if it was measured; else why there is nothing to go by."""
    named = [run for run in verification.runs if setting in (run.setting, *run.same_as)]
    if len(named) != 1:
        there = ", ".join(r.setting for r in verification.runs) or "none"
        how_many = "no run is" if not named else f"{len(named)} runs are"
        return None, f"{how_many} called {setting}; there are: {there}"
    (run,) = named
    if not run.ok:
        return None, f"the run ended as {run.status}"
    return run, ""


def doubt_of(datasets: Iterable[DatasetProfile], *, allow_sample: bool) -> str:
    """Why their figures are not about all prompts; empty when they are."""
    for dataset in datasets:
        if dataset.failure:
            return f"{dataset.name} could not be read to its end: {dataset.failed_because}"
        if dataset.sample and not allow_sample:
            return (
                f"only {dataset.sample.rows:,} of {dataset.sample.out_of:,} rows of "
                f"{dataset.name} were counted; say `allow_sample = true` if that will do"
            )
    return ""
