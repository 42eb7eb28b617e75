"""Every artefact that is committed, and any of an older version, is read and written as it was."""

import hashlib
from pathlib import Path

import orjson
import pytest

from chunkscope.artefacts import codec
from chunkscope.errors import InputError
from chunkscope.hardware.calibration import Calibration
from chunkscope.lengths.profile import Profile
from chunkscope.models import find_model
from chunkscope.planning.plan import Plan
from chunkscope.simulation.result import Simulation
from chunkscope.verification.result import Verification

REPORTS = Path(__file__).parents[2] / "reports"
KINDS = {
    "chunkscope/profile/1": Profile,
    "chunkscope/plan/1": Plan,
    "chunkscope/simulation/1": Simulation,
    "chunkscope/verify/1": Verification,
    "chunkscope/calibration/1": Calibration,
}
COMMITTED = sorted(set(REPORTS.rglob("*.json")) - set(REPORTS.glob("example/lm_eval/*")))


def test_there_are_some_of_every_kind_that_is_committed() -> None:
    kinds = {orjson.loads(path.read_bytes())["schema"] for path in COMMITTED}
    assert kinds == KINDS.keys() - {"chunkscope/simulation/1"}


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: str(p.relative_to(REPORTS)))
def test_a_committed_artefact_is_written_as_it_was_read(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    found = KINDS[orjson.loads(data)["schema"]].load(path)
    if isinstance(found, Plan):
        # Version 0.1.0 kept figures of the model; its shape takes their place when read.
        data = codec.dump(Plan._upgraded(orjson.loads(data)))
    assert codec.dump(found.to_json()) == data
    assert codec.digest(found.to_json()) == hashlib.sha256(data).hexdigest()
    found.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == data


def test_a_plan_of_the_first_version_is_read_and_gains_what_came_later() -> None:
    plan = orjson.loads((REPORTS / "h200/llama-3.1-8b-mixed/plan.json").read_bytes())
    first = {**plan, "plan": {n: v for n, v in plan["plan"].items() if n != "forecast"}}
    later = ("read_bytes", "active_parameters", "pair_flops")
    first["plan"]["model"] = {n: v for n, v in plan["plan"]["model"].items() if n not in later}
    found = Plan.from_json(first)
    assert found.forecast is None
    assert found.model == find_model("llama-3.1-8b")
    assert found.to_json()["plan"].keys() == plan["plan"].keys()


def test_a_first_plan_for_a_model_that_no_table_has_says_what_to_do() -> None:
    plan = orjson.loads((REPORTS / "h200/llama-3.1-8b-mixed/plan.json").read_bytes())
    plan["plan"]["model"] |= {"name": "./mine", "hub_id": None}
    with pytest.raises(InputError, match=r"0\.1\.0 made it") as error:
        Plan.from_json(plan)
    assert "chunkscope recommend" in error.value.hint
