"""An artefact is what it contains: making it again from the same input changes nothing."""

from functools import partial
from pathlib import Path

from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from tests.build import run, verification
from tests.commands.helpers import chunkscope, write_jsonl


def test_making_it_again_changes_no_identity_and_disowns_no_measurement(tmp_path: Path) -> None:
    questions = (f"How much is {n} plus {n * n}? " * (1 + n % 7) for n in range(50))
    write_jsonl(tmp_path / "a.jsonl", ({"prompt": question} for question in questions))
    recommend = partial(chunkscope, tmp_path, "recommend", "--model", "qwen2.5-1.5b", "--gpu", "l4")
    gate = partial(chunkscope, tmp_path, "gate")
    assert (chunkscope(tmp_path, "analyze", "a.jsonl").code, recommend().code) == (0, 0)
    file, plan_file = tmp_path / "reports/profile.json", tmp_path / "reports/plan.json"
    profile, plan = Profile.load(file), Plan.load(plan_file)
    verification(run("plan"), plan_digest=plan.digest()).save(tmp_path / "reports/verify.json")
    assert (gate("--init").code, gate().code) == (0, 0)
    assert "verification = true" in (tmp_path / "chunkscope.toml").read_text()
    assert chunkscope(tmp_path, "analyze", "./a.jsonl", "--no-cache").code == 0
    assert (Profile.load(file).digest(), gate().code) == (profile.digest(), 0)
    assert recommend().code == 0
    assert (Plan.load(plan_file).digest(), gate().code) == (plan.digest(), 0)
    file.write_text(file.read_text().replace('"chars": ', '"chars": 1', 1))
    assert gate().code == 3, "edited by hand"
