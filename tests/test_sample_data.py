"""sample_data/ is what its generator makes, stays small, and shows every mode."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

import chunkscope
from chunkscope.planning.policy import decide
from chunkscope.vllm.choices import Mode
from tests.conftest import REPOSITORY
from tests.make_sample_data import datasets

SAMPLE_DATA = REPOSITORY / "sample_data"
PATHS = (
    "code_repair.jsonl.gz",
    "knowledge_quiz.csv",
    "long_context_qa.parquet",
    "math_word_problems.jsonl",
    "reasoning/logic_puzzles.json",
    "reasoning/tool_use.jsonl",
)


def files_in(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def content(file: Path) -> object:
    """What a file says, whatever version of zlib or pyarrow packed it."""
    if file.suffix == ".parquet":
        return parquet.read_table(file).to_pylist()
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the script writes when it is run from another folder."""
    folder = tmp_path_factory.mktemp("sample_data")
    script = REPOSITORY / "tests" / "make_sample_data.py"
    subprocess.run([sys.executable, str(script), str(folder)], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def profile() -> chunkscope.Profile:
    return chunkscope.analyze(SAMPLE_DATA)


def test_the_generator_names_every_committed_file(made: Path) -> None:
    assert sorted(datasets()) == files_in(SAMPLE_DATA) == files_in(made) == list(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_a_committed_file_is_what_the_generator_makes(made: Path, path: str) -> None:
    assert content(SAMPLE_DATA / path) == content(made / path)


def test_a_clone_stays_light() -> None:
    assert sum((SAMPLE_DATA / path).stat().st_size for path in files_in(SAMPLE_DATA)) < 3_000_000


def test_the_datasets_show_all_three_modes(profile: chunkscope.Profile) -> None:
    assert {dataset.name: decide(dataset.lengths).mode for dataset in profile.datasets} == {
        "code_repair": Mode.CONSERVATIVE,
        "knowledge_quiz": Mode.OFF,
        "long_context_qa": Mode.AGGRESSIVE,
        "math_word_problems": Mode.OFF,
        "reasoning/logic_puzzles": Mode.OFF,
        "reasoning/tool_use": Mode.OFF,
    }


def test_every_row_is_counted(profile: chunkscope.Profile) -> None:
    assert sum(dataset.rows for dataset in profile.datasets) == 850
    assert not [dataset.name for dataset in profile.datasets if dataset.skipped or dataset.failure]


def test_the_longest_prompt_is_long_but_fits_a_small_context(profile: chunkscope.Profile) -> None:
    longest = profile.overall.max
    assert longest is not None
    assert 20_000 <= longest <= 24_000
