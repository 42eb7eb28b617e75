"""Where the cache goes, and what happens where it cannot go there."""

import os
from pathlib import Path

import pytest

from chunkscope.artefacts.files import cache_folder


def test_a_place_that_cannot_be_written_or_is_not_there_is_replaced_for_this_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert cache_folder().is_dir()
    assert cache_folder() == cache_folder()
    assert tmp_path not in cache_folder().parents

    def nobody(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("CHUNKSCOPE_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", nobody)
    assert cache_folder().is_dir()


def test_a_new_cache_is_for_its_owner_alone_whoever_its_parents_belong_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "a" / "new"))
    before = os.umask(0)
    try:
        assert cache_folder().stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o757, 0o775, None], ids=["all", "the group", "its owner"])
def test_a_cache_that_others_could_have_written_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(mode or 0o755)
    if mode is None and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path, os.geteuid() if mode else 4321, -1)
    assert cache_folder() != tmp_path
