"""sample_data/ stays small, is counted whole, and shows every mode."""

import pytest

import chunkscope
from chunkscope.planning.rule import decide
from chunkscope.vllm.enums import Mode
from tests.conftest import REPOSITORY

SAMPLE_DATA = REPOSITORY / "sample_data"


@pytest.fixture(scope="module")
def profile() -> chunkscope.Profile:
    return chunkscope.analyze(SAMPLE_DATA)


def test_a_clone_stays_light() -> None:
    assert sum(path.stat().st_size for path in SAMPLE_DATA.rglob("*")) < 3_000_000


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
