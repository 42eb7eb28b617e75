"""All artefacts of a folder as one JSON document."""

from typing import Any

from chunkscope.findings import Findings

SCHEMA = "chunkscope/report/1"


def joined(findings: Findings) -> dict[str, Any]:
    """What is not there is null, as is what follows from it."""
    from chunkscope._version import __version__

    profile, plan = findings.profile, findings.plan
    simulation, verification = findings.simulation, findings.verification
    return {
        "schema": SCHEMA,
        "chunkscope": __version__,
        "digests": dict(sorted(findings.digests.items())),
        "plan_is_of_this_profile": findings.plan_is_of_this_profile,
        "verification_is_of_this_plan": findings.verification_is_of_this_plan,
        "profile": profile.to_json() if profile else None,
        "plan": plan.to_json() if plan else None,
        "simulation": simulation.to_json() if simulation else None,
        "verify": verification.to_json() if verification else None,
    }
