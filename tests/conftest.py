"""What every test has: a cache of its own, the reference data if it is there, real
engines.

`pytest` runs the core: it needs nothing but what `pip install -e '.[dev]'` brings.
`pytest -m real` asks a real vLLM (CHUNKSCOPE_VLLM_PYTHON names its Python;
`.ci/vllm-env` makes one), the harnesses (CHUNKSCOPE_HARNESS_PYTHON; `.ci/harness-env`),
torch, chromium, Ray, an S3 server. What is not installed is skipped; in CI (CI=true)
that is a failure.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from chunkscope.tokenizers import resolve
from chunkscope.tokenizers.reference import TiktokenReference, TokenizersReference
from tests.build import Place
from tests.vllm.serve_flag_rows import known_flags

REPOSITORY = Path(__file__).parents[1]
PROBES = REPOSITORY / "tests" / "vllm" / "probes"  # programs for another interpreter
collect_ignore = ["vllm/probes"]

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile(
    "any machine",
    max_examples=int(os.environ.get("CHUNKSCOPE_EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")


# Engines start slowly: these files take longest, and a worker that gets one last is
# waited for.
LONGEST = (
    "verify",
    "ray",
    "rendering",
    "sharing",
    "three_ways",
    "endpoint",
    "vllm",
    "reuse",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> list[bool]:
        return [item.path.stem.endswith(name) for name in LONGEST]

    items.sort(key=rank, reverse=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden anew"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    deselected = terminalreporter.stats.get("deselected", ())
    left_out = sum(item.get_closest_marker("real") is not None for item in deselected)
    if left_out and terminalreporter.config.option.markexpr == "not real":
        terminalreporter.write_line(
            f"{left_out} tests need a real vLLM, torch, browser, harness, Ray or S3: "
            "`pytest -m real` runs those whose needs are installed (tests/README.md)"
        )


def pytest_configure() -> None:
    """No test asks the hub, unless it says so: its library reads this when imported."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


def missing(what: str) -> NoReturn:
    """Skip a test whose need is not installed; in CI that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for the whole session: tokenizers are prepared once, and the user's is
    safe.

    Hundreds of tests count with the default tokenizer: its 130,000 tokens are read
    once, and so are tokenizers that were prepared in this cache.
    """
    folder = tmp_path_factory.mktemp("cache")

    def once(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
        first = cache(read)
        return lambda file: (
            first(file)
            if file.name == resolve.DEFAULT_FILE or folder in file.parents
            else read(file)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHUNKSCOPE_CACHE_DIR", str(folder))
        patch.setattr(TiktokenReference, "of_tekken", once(TiktokenReference.of_tekken))
        patch.setattr(TokenizersReference, "of_file", once(TokenizersReference.of_file))
        patch.setattr(resolve, "file_digest", once(resolve.file_digest))
        yield


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real evaluation sets and tokenizers; not part of the project."""
    folder = REPOSITORY.parent / "shared"
    if not (folder / "data" / "reference_lengths.json").is_file():
        pytest.skip("no reference data beside the checkout")
    return folder


@pytest.fixture(scope="session")
def vllm_python() -> str:
    """An interpreter that has vLLM."""
    return os.environ.get("CHUNKSCOPE_VLLM_PYTHON") or missing(
        "CHUNKSCOPE_VLLM_PYTHON is not set"
    )


@pytest.fixture(scope="session")
def harness_python() -> Path:
    """An interpreter that has the evaluation harnesses."""
    python = os.environ.get("CHUNKSCOPE_HARNESS_PYTHON")
    return Path(python or missing("CHUNKSCOPE_HARNESS_PYTHON is not set"))


@pytest.fixture(scope="session")
def installed(vllm_python):
    """The version of that vLLM, and every option its parser knows."""
    return known_flags(vllm_python)


@pytest.fixture(scope="session")
def probe(vllm_python):
    """Ask one of the programs in tests/vllm/probes, in the interpreter that has vLLM.

    Importing vLLM takes about ten seconds, answering a hundredth: ask as much as
    possible at once.
    """

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
