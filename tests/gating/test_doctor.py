"""[gate.doctor]: promises over an engine's log."""

import json
from pathlib import Path

import pytest

from chunkscope.diagnosis.doctor import doctor
from chunkscope.errors import InputError
from chunkscope.gating.check import gate
from tests.diagnosis.test_doctor import LOGS


def judged(tmp_path: Path, log: str, promises: str) -> dict[str, bool]:
    doctor(LOGS / f"vllm-0.28-cpu-{log}.log").save(tmp_path / "doctor.json")
    return again(tmp_path, promises)


def again(tmp_path: Path, promises: str) -> dict[str, bool]:
    (tmp_path / "chunkscope.toml").write_text(f"[gate.doctor]\n{promises}")
    found = gate(tmp_path, config=tmp_path / "chunkscope.toml")
    return {verdict.promise: verdict.kept for verdict in found.verdicts}


def test_what_the_log_says_is_held_against_the_promises(tmp_path: Path) -> None:
    promises = 'findings = 0\nrefused_prompts = 0\nkv_use = "95%"\nprefix_hit_rate = "20%"\n'
    assert judged(tmp_path, "kv-bound", promises) == {
        "doctor.findings": False,
        "doctor.refused_prompts": True,
        "doctor.kv_use": False,
        "doctor.prefix_hit_rate": False,
    }
    assert judged(tmp_path, "client-bound", 'findings = 2\nkv_use = "95%"\n') == {
        "doctor.findings": True,
        "doctor.kv_use": True,
    }


def test_what_the_log_does_not_say_is_not_kept(tmp_path: Path) -> None:
    assert judged(tmp_path, "does-not-fit", 'kv_use = "95%"\n') == {"doctor.kv_use": False}


def test_without_a_diagnosis_nothing_can_be_judged(tmp_path: Path) -> None:
    judged(tmp_path, "client-bound", "findings = 9\n")
    document = json.loads((tmp_path / "doctor.json").read_text())
    document["engines"][0]["windows"][0]["kv_use"] = -3.0
    (tmp_path / "doctor.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="contradicts itself"):
        again(tmp_path, 'kv_use = "95%"\n')
    (tmp_path / "doctor.json").rename(tmp_path / "profile.jsonl")
    with pytest.raises(InputError):
        again(tmp_path, "findings = 9\n")
