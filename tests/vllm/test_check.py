"""The check's own manners, with a stand-in for vLLM; test_real_vllm.py asks the real one."""

import json
import sys

import pytest

from chunkscope.errors import EngineError, MissingError
from chunkscope.models import known_model
from chunkscope.verification.verify import VerifyOptions
from chunkscope.vllm.check import DRY, check, vllm_python
from chunkscope.vllm.flags import command_line
from tests.build import MIXED, plan


def asked(made, *, python):
    return check(made.deployment, made.settings, python=python)


def interpreter(tmp_path, body):
    """A "python" that ignores its program and answers as told."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\nimport json, sys\n{body}\n")
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
    with pytest.raises(MissingError, match="model"):
        asked(plan(MIXED, model=None), python=python)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("sys.exit('RuntimeError: boom')", "boom"),
        ("print(); print('chunkscope-check:' + json.dumps(['0.28.0', 'Value error, no [type=b']))",
         r"vLLM 0\.28\.0 refuses the arguments: no$"),
    ],
    ids=["dies", "refuses"],
)  # fmt: skip
def test_a_check_that_dies_or_refuses_is_an_engine_error(tmp_path, answer, told):
    with pytest.raises(EngineError, match=told):
        asked(plan(MIXED), python=interpreter(tmp_path, answer))


def test_what_the_engine_ends_up_with_is_asked_about_a_folder_of_the_user(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(known_model("llama-3.1-8b").config))
    made = plan(MIXED, model=str(tmp_path))
    words = command_line({**made.effective.given(), "model": str(tmp_path), **DRY})
    echo = f"print('chunkscope-check:' + json.dumps([sys.argv[2:] == {words}, None]))"
    assert asked(made, python=interpreter(tmp_path, echo)) == "True"
