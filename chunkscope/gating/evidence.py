"""What limits are held against: the artefacts, and the files that a budget names."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from chunkscope.artefacts.artefact import Artefact
from chunkscope.artefacts.note import Note
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.errors import InputError
from chunkscope.findings import Findings
from chunkscope.gating.budget import Table
from chunkscope.gating.check import Check, Key
from chunkscope.lengths.profile import ALL, DatasetProfile, Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.request import PlanRequest
from chunkscope.simulation.outputs import DatasetOutput
from chunkscope.verification.result import Verification

Datasets = Sequence[DatasetProfile]
Values = Mapping[str, float | None]  # today's figures, by their keys in a budget
A = TypeVar("A", bound=Artefact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The artefacts of a folder, and where the budget file is.

    An artefact that a check needs and that is not there is an error, never a pass.
    """

    findings: Findings
    folder: Path  # of the budget file

    def need_profile(self) -> Profile:
        return self._needed(self.findings.profile, Profile)

    def need_plan(self) -> Plan:
        return self._needed(self.findings.plan, Plan)

    def need_verification(self) -> Verification:
        return self._needed(self.findings.verification, Verification)

    def need_diagnosis(self) -> Diagnosis:
        return self._needed(self.findings.diagnosis, Diagnosis)

    def _needed(self, artefact: A | None, kind: type[A]) -> A:
        if artefact is None:
            path = self.findings.folder / kind.default_path.name
            hint = f"run `{kind.made_by}` first, or take the check out"
            raise InputError(f"a check needs {path}, which does not exist", hint=hint)
        return artefact

    def outputs(self, datasets: Datasets) -> list[DatasetOutput]:
        """How long answers are: as in the plan, else as in the data, else as usual."""
        request = self.findings.plan.request if self.findings.plan else PlanRequest()
        return [request.output_of(dataset) for dataset in datasets]

    def path(self, name: str) -> Path:
        """A file that the budget names, as seen from the budget file."""
        return Path(os.path.normpath(self.folder / name))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableValues:
    """Today's values of one table of the budget, to hold against its limits.

    `unknown` says why a value is None. `key` is the place of the table in the budget
    where its name does not say it.
    """

    table: str
    values: Values
    subject: str = ALL
    unknown: Note | None = None
    key: Key = ()

    def checks(
        self, table: Table, keys: Sequence[str] | None = None
    ) -> Iterator[Check]:
        """A check for each limit that is set, of these keys or all.

        A value that is not known fails.
        """
        limits = table.possible_limits()
        for key in keys or limits:
            spec = limits[key]
            limit: float | None = getattr(table, key)
            value = self.values.get(key)
            if limit is not None:
                yield Check(
                    name=f"{self.table}.{key}",
                    passed=value is not None and spec.is_kept(value, limit),
                    subject=self.subject,
                    relation=spec.relation,
                    limit=limit,
                    value=value,
                    unit=spec.unit_name,
                    reason=self.unknown if value is None else None,
                    key=(*self.key, key) if self.key else (),
                )
