"""Every artefact that is committed is read, and written as it was."""

from pathlib import Path

import orjson
import pytest

from chunkscope.artefacts.artefact import Artefact
from chunkscope.hardware.calibration import Calibration
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.verification.result import Verification

REPORTS = Path(__file__).parents[2] / "reports"
KINDS: dict[str, type[Artefact]] = {
    kind.schema: kind for kind in (Profile, Plan, Verification, Calibration)
}
COMMITTED = sorted(set(REPORTS.rglob("*.json")) - set(REPORTS.glob("example/lm_eval/*")))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: str(p.relative_to(REPORTS)))
def test_a_committed_artefact_is_written_as_it_was_read(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    artefact = KINDS[orjson.loads(data)["schema"]].load(path)
    assert artefact.save(tmp_path / "again.json") == data


@pytest.mark.parametrize("path", sorted(REPORTS.rglob("plan.json")), ids=lambda p: p.parent.name)
def test_a_committed_plan_belongs_to_what_lies_beside_it(path: Path) -> None:
    plan = Plan.load(path)
    if (profile := path.with_name("profile.json")).exists():
        assert Profile.load(profile).digest() == plan.source.profile_digest
    if (verify := path.with_name("verify.json")).exists():
        assert Verification.load(verify).plan_digest in (None, plan.digest())
