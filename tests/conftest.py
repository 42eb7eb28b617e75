"""What every test has: a cache of its own, and the reference data where it is there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for the whole session: tokenizers are compiled once, and the user's is safe."""
    patch = pytest.MonkeyPatch()
    patch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    patch.setenv("HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE", "1"))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real evaluation sets and tokenizers; not part of the project."""
    folder = REPOSITORY.parent / "shared"
    if not (folder / "data" / "reference_lengths.json").is_file():
        pytest.skip("no reference data beside the checkout")
    return folder
