"""Where the cache goes, and what happens where it cannot go there."""

import os
import sys
from pathlib import Path

import pytest

from chunkscope.artefacts.folders import cache_folder


def test_the_variable_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"


def test_a_place_that_cannot_be_written_is_replaced_for_this_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert cache_folder().is_dir()
    assert cache_folder() == cache_folder()
    assert tmp_path not in cache_folder().parents


def test_without_a_home_there_is_still_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("CHUNKSCOPE_CACHE_DIR")
    monkeypatch.setattr(Path, "home", nobody)
    assert cache_folder().is_dir()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
def test_a_new_cache_folder_is_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "new"))
    before = os.umask(0)
    try:
        assert cache_folder().stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
