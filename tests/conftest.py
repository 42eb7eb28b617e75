"""What every test has: a cache of its own, the reference data where it is there, a real vLLM.

A real vLLM is found by CHUNKSCOPE_VLLM_PYTHON: the interpreter that has it; `.ci/vllm-env` makes
one. Without that variable the tests that ask it are skipped; in CI (CI=true) they fail instead.
Importing vLLM takes about ten seconds, answering a question a hundredth: each process is asked as
much as possible.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from chunkscope.tokenizers.tokenizer import Tokenizer
from chunkscope.vllm.check import config_of, known_flags

REPOSITORY = Path(__file__).parents[1]
PROBES = REPOSITORY / "tests" / "vllm" / "probes"  # programs for another interpreter
collect_ignore = ["vllm/probes"]
MODELS = ("llama-3.1-8b", "qwen2.5-7b-instruct", "mistral-7b-v0.3", "qwen3-30b-a3b")

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers, what asks a real vLLM comes first: it takes longest to end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("vllm") is None)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for the whole session: tokenizers are compiled once, and the user's is safe.

    The default one is, now: its first run would count with another engine than those that follow.
    """
    patch = pytest.MonkeyPatch()
    patch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE", "1"))
    assert Tokenizer().counting
    yield
    patch.undo()


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real evaluation sets and tokenizers; not part of the project."""
    folder = REPOSITORY.parent / "shared"
    if not (folder / "data" / "reference_lengths.json").is_file():
        pytest.skip("no reference data beside the checkout")
    return folder


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
def harness_python():
    """An interpreter that has the evaluation harnesses."""
    python = os.environ.get("CHUNKSCOPE_HARNESS_PYTHON")
    if not python and os.environ.get("CI") == "true":
        pytest.fail("CHUNKSCOPE_HARNESS_PYTHON is not set")
    return Path(python or pytest.skip("CHUNKSCOPE_HARNESS_PYTHON names no Python"))


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
    """Ask one of the programs in tests/vllm/probes, in the interpreter that has vLLM."""

    def ask(name, questions):
        program = PROBES / f"{name}.py"
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
