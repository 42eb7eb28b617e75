"""The check's own manners, with a stand-in for vLLM; test_real_vllm.py asks the real one."""

import json
import sys

import pytest

from chunkscope.errors import EngineError, MissingError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.models import known_model
from chunkscope.verification.verify import VerifyOptions
from chunkscope.vllm.check import CheckAnswer, case_of, check, check_many, vllm_python
from tests.build import MIXED, plan

ECHO = (
    "results = [{'accepted': True, 'message': '', 'seen': case} for case in task['cases']]\n"
    "print('chunkscope-check:' + json.dumps({'version': '1', 'results': results}))"
)


def asked(made, *, python):
    return check(made.deployment, made.settings, python=python)


def interpreter(tmp_path, body):
    """A "python" that ignores its program and answers as told."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\nimport json, sys\ntask = json.load(sys.stdin)\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("named", "python"), [("", sys.executable), ("/opt/vllm/bin/python", "/opt/vllm/bin/python")]
)
def test_an_empty_name_of_the_interpreter_is_none(monkeypatch, named, python):
    monkeypatch.setenv("CHUNKSCOPE_VLLM_PYTHON", named)
    assert vllm_python() == python
    assert VerifyOptions().python == python


@pytest.mark.parametrize("python", [sys.executable, "/nowhere/python"])
def test_an_interpreter_without_vllm_is_something_missing(python):
    with pytest.raises(MissingError, match=python):
        asked(plan(MIXED), python=python)


def test_a_check_that_dies_is_an_engine_error(tmp_path):
    python = interpreter(tmp_path, "sys.exit('RuntimeError: boom')")
    with pytest.raises(EngineError, match="boom"):
        asked(plan(MIXED), python=python)


def test_a_plan_without_a_model_cannot_be_checked():
    with pytest.raises(MissingError):
        asked(plan(MIXED, model=None), python="unused")


def test_a_refusal_of_the_keywords_alone_is_a_refusal(tmp_path):
    words = {"accepted": True, "message": "", "seen": {}}
    keywords = {"accepted": False, "message": "TypeError: no"}
    answer = json.dumps({"version": "0.28.0", "results": [words, keywords]})
    told = f"print('noise'); print('chunkscope-check:' + {answer!r})"
    verdict = asked(plan(MIXED), python=interpreter(tmp_path, told))
    assert verdict == CheckAnswer(**keywords, vllm_version="0.28.0")


def test_words_keywords_and_gpu_reach_the_other_process(tmp_path):
    python = interpreter(tmp_path, ECHO)
    h200 = find_gpu("h200")
    cases = [case_of(tmp_path, ["--x", "1"]), case_of(tmp_path, {"x": 1}, h200)]
    words, keywords = (verdict.seen for verdict in check_many(cases, python=python))
    assert words["words"][:4] == ["--x", "1", "--model", str(tmp_path)]
    assert "gpu" not in words
    assert keywords["keywords"]["model"] == str(tmp_path)
    assert keywords["keywords"]["x"] == 1
    assert keywords["gpu"] == {"memory_bytes": h200.memory_bytes, "title": h200.title}


def test_a_folder_of_the_user_is_used_as_it_is(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(known_model("llama-3.1-8b").config))
    made = plan(MIXED, model=str(tmp_path))
    python = interpreter(tmp_path, ECHO)
    assert asked(made, python=python).seen["words"][-4] == str(tmp_path)
