"""The artefacts of a reports folder: what `report` shows and `gate` obeys."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chunkscope._version import __version__
from chunkscope.artefacts.artefact import Artefact
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.errors import InputError
from chunkscope.lengths.profile import Profile, joined
from chunkscope.planning.plan import Plan
from chunkscope.simulation.result import Simulation
from chunkscope.verification.result import Verification

DEFAULT_FOLDER = Path("reports")
SCHEMA = "chunkscope/report/1"
KINDS: dict[str, type[Artefact]] = {
    "profile": Profile,
    "plan": Plan,
    "simulation": Simulation,
    "verification": Verification,
    "diagnosis": Diagnosis,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """None for what is not there. `digests` are those of the contents, by file name."""

    folder: Path
    profile: Profile | None = None
    plan: Plan | None = None
    verification: Verification | None = None
    simulation: Simulation | None = None
    diagnosis: Diagnosis | None = None
    digests: dict[str, str] = field(default_factory=dict)

    def _is_of(self, digest: str | None, name: str) -> bool | None:
        """None when one of them is missing, or nobody knows whose it is."""
        if not digest or name not in self.digests:
            return None
        return digest == self.digests[name]

    @property
    def plan_is_of_this_profile(self) -> bool | None:
        if self.plan is None:
            return None
        return self._is_of(self.plan.source.profile_digest, "profile.json")

    @property
    def verification_is_of_this_plan(self) -> bool | None:
        if self.verification is None:
            return None
        return self._is_of(self.verification.plan_digest, "plan.json")

    @property
    def simulation_is_of_this_profile(self) -> bool | None:
        if self.simulation is None:
            return None
        return self._is_of(self.simulation.workload.profile_digest, "profile.json")

    def to_json(self) -> dict[str, Any]:
        """All of them as one document, with null for what is not there."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "chunkscope": __version__,
            "digests": dict(sorted(self.digests.items())),
            "plan_is_of_this_profile": self.plan_is_of_this_profile,
            "verification_is_of_this_plan": self.verification_is_of_this_plan,
            "simulation_is_of_this_profile": self.simulation_is_of_this_profile,
        }
        for name, kind in KINDS.items():
            artefact = getattr(self, name)
            content = artefact.to_json() if artefact else None
            document[kind.default_path.stem] = content
        return document


def load_findings(folder: Path = DEFAULT_FOLDER) -> Findings:
    """Read what is there; damaged or foreign files are errors, missing ones are not."""
    if not folder.is_dir():
        usual = "run `chunkscope analyze data/` first"
        hint = f"give its folder: {folder.parent}" if folder.is_file() else usual
        raise InputError(f"no such folder: {folder}", hint=hint)
    artefacts: dict[str, Any] = {}
    digests: dict[str, str] = {}
    for name, kind in KINDS.items():
        path = folder / kind.default_path.name
        if path.exists():
            artefacts[name] = kind.load(path)
            digests[path.name] = artefacts[name].digest()
    if "plan" in artefacts:
        files = artefacts["plan"].profile_files(folder)
        if files:
            artefacts["profile"] = joined(files)
            digests["profile.json"] = artefacts["profile"].digest()
    if not artefacts:
        raise InputError(
            f"there are no results in {folder}",
            hint="run `chunkscope analyze data/` first; they are called profile.json, "
            "plan.json, simulation.json, verify.json and doctor.json",
        )
    return Findings(folder=folder, digests=digests, **artefacts)
