"""These tests ask a real vLLM, found by CHUNKSCOPE_VLLM_PYTHON: the interpreter that has it.

`.ci/vllm-env` makes one. Without that variable they are skipped; in CI (CI=true) they fail instead.
Importing vLLM takes about ten seconds, answering a question a hundredth: each process is asked as
much as possible.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from chunkscope.vllm_check import config_of, known_flags

# Programs for another interpreter.
collect_ignore = ["model_probe.py", "scheduler_probe.py", "serve_probe.py"]
MODELS = ("llama-3.1-8b", "qwen2.5-7b-instruct", "mistral-7b-v0.3", "qwen3-30b-a3b")


@pytest.fixture(scope="session")
def vllm_python():
    python = os.environ.get("CHUNKSCOPE_VLLM_PYTHON")
    if python:
        return python
    message = "CHUNKSCOPE_VLLM_PYTHON is not set: `.ci/vllm-env` makes an environment with vLLM"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def installed(vllm_python):
    """Its version, and every option its parser knows."""
    return known_flags(python=vllm_python)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A model is a folder with nothing but a config.json in it."""
    made = {}
    for model in MODELS:
        made[model] = tmp_path_factory.mktemp(model)
        (made[model] / "config.json").write_text(json.dumps(config_of(model)))
    return made


@pytest.fixture(scope="session")
def probe(vllm_python):
    """Ask one of the programs beside this file, in the interpreter that has vLLM."""

    def ask(name, questions):
        program = Path(__file__).with_name(f"{name}.py")
        done = subprocess.run(
            [vllm_python, str(program)],
            input=json.dumps(questions),
            capture_output=True,
            text=True,
            check=False,
        )
        mark = name.replace("_", "-") + ":"
        answers = [x for x in done.stdout.splitlines() if x.startswith(mark)]
        assert answers, f"{name} did not answer: {done.stderr[-2_000:]}"
        return json.loads(answers[-1].removeprefix(mark))

    return ask
