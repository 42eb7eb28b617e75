"""An artefact is what it contains: making it again from the same input changes nothing."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest

from chunkscope.cli import main
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan


def run(*words: str) -> int:
    with patch("sys.argv", ["chunkscope", *words]), pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_analyzing_and_planning_again_changes_no_identity_and_breaks_no_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"How much is {n} plus {n * n}? " * (1 + n % 7)} for n in range(50)]
    Path("a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recommend = ("recommend", "--model", "qwen2.5-1.5b", "--gpu", "l4")
    assert [run("analyze", "a.jsonl"), run(*recommend)] == [0, 0]
    assert [run("gate", "--init"), run("gate")] == [0, 0]
    profile, plan = Profile.load(), Plan.load()
    assert run("analyze", "./a.jsonl", "--no-cache") == 0
    again = Path("reports/profile.json")
    assert Profile.load().digest() == profile.digest()
    assert run("gate") == 0
    assert run(*recommend) == 0
    assert Plan.load().digest() == plan.digest()
    assert run("gate") == 0
    again.write_text(again.read_text().replace('"chars": ', '"chars": 1', 1))
    assert run("gate") == 3, "edited by hand"
