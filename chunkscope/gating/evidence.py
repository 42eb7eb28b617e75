"""What checks are held against: the artefacts, and the committed files that a budget names."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from chunkscope.artefacts.artefact import Artefact
from chunkscope.artefacts.note import Note, note
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
    """An artefact that a check needs and that is not there is an error, never a pass."""

    findings: Findings
    folder: Path  # of the budget file
    budget_output_tokens: int | None = None

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
        return self._need(self.findings.diagnosis, Diagnosis)

    def _need(self, artefact: A | None, kind: type[A]) -> A:
        if artefact is None:
            path = self.findings.folder / kind.default_path.name
            raise InputError(
                f"a check needs {path}, and it is not there",
                hint=f"run `{kind.made_by}` first, or take the check out",
            )
        return artefact

    @property
    def output_tokens(self) -> int:
        """Room for the answer: as the budget says, else the plan, else the usual."""
        if self.budget_output_tokens is not None:
            return self.budget_output_tokens
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


def run_of(verification: Verification, setting: str) -> tuple[Run | None, Note | None]:
    """The row of that name if it was measured; else why there is nothing to go by."""
    rows = [run for run in verification.runs if setting in (run.setting, *run.same_as)]
    if len(rows) != 1:
        names = ", ".join(run.setting for run in verification.runs)
        return None, note("gate_no_such_run", count=len(rows), setting=setting, names=names)
    (run,) = rows
    if not run.ok:
        return None, run.failure or note("gate_run_failed", status=str(run.status))
    return run, None


def doubt_of(datasets: Iterable[DatasetProfile], *, allow_sample: bool) -> Note | None:
    """Why their figures are not about all prompts; None when they are."""
    for dataset in datasets:
        if dataset.failure:
            return note("gate_unread_dataset", dataset=dataset.name)
        if dataset.sample and not allow_sample:
            rows, out_of = dataset.sample.rows, dataset.sample.out_of
            return note("gate_sample_only", dataset=dataset.name, rows=rows, out_of=out_of)
    return None
