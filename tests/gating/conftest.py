from pathlib import Path

import pytest

from tests.build import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "reports").mkdir()
    return Place(tmp_path)
