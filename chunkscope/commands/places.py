"""Where an artefact is looked for when nobody says."""

from pathlib import Path

PROFILE = Path("reports/profile.json")


def profile_for(plan: Path, given: Path | None) -> Path:
    """The profile that was named, else the one beside the plan, else that of this folder."""
    beside = plan.with_name("profile.json")
    return given or (beside if beside.exists() else PROFILE)
