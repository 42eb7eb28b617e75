"""Where the cache goes, and what happens where it cannot go there."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chunkscope.artefacts import folders
from chunkscope.artefacts.folders import cache_folder
from chunkscope.errors import InputError
from tests.commands.helpers import analyze, analyze_apart, prompts, write_jsonl

has_modes = pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")


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


@has_modes
def test_a_new_cache_folder_is_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "new"))
    before = os.umask(0)
    try:
        assert cache_folder().stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


# -- who else can write it -------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that is there already."""
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o755)
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(folder))
    return folder


def open_to_others(folder: Path) -> None:
    folder.chmod(0o757)


def open_to_the_group(folder: Path) -> None:
    folder.chmod(0o775)


def open_inside(folder: Path) -> None:
    (folder / "results").mkdir()
    (folder / "results").chmod(0o777)


def of_another_user(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(folder, 4321, -1)


def of_another_user_inside(folder: Path) -> None:
    (folder / "digests.json").write_text("{}")
    of_another_user(folder / "digests.json")


STRANGERS = [
    open_to_others, open_to_the_group, open_inside, of_another_user, of_another_user_inside,
]  # fmt: skip


@has_modes
@pytest.mark.parametrize("prepare", STRANGERS)
def test_a_cache_that_others_could_have_written_is_refused(
    place: Path, prepare: Callable[[Path], None]
) -> None:
    assert cache_folder() == place
    prepare(place)
    folders._first_usable.cache_clear()
    with pytest.raises(InputError) as refused:
        cache_folder()
    assert "CHUNKSCOPE_SHARED_CACHE" in (refused.value.hint or "")


@has_modes
def test_it_ends_a_command_unless_a_variable_names_it(place: Path, tmp_path: Path) -> None:
    open_to_others(place)
    write_jsonl(tmp_path / "a.jsonl", prompts())
    refused = analyze(tmp_path, "a.jsonl")
    assert refused.code == 3
    assert str(place) in " ".join(refused.err.split())
    assert not list(place.iterdir())
    shared = {"CHUNKSCOPE_SHARED_CACHE": str(place)}
    named = analyze_apart(tmp_path, "a.jsonl", env=shared)
    assert named.code == 0, named.err
    assert (place / "results").is_dir()


@has_modes
def test_the_parents_of_a_cache_may_be_anybodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "a" / "b"))
    assert cache_folder() == tmp_path / "a" / "b"


@has_modes
def test_what_nobody_else_can_reach_may_have_any_mode(place: Path) -> None:
    open_inside(place)
    place.chmod(0o700)
    assert cache_folder() == place


def test_without_such_modes_nothing_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_others(place)
    monkeypatch.delattr(os, "geteuid")
    assert cache_folder() == place


def test_a_shared_cache_comes_before_the_other_variable(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_SHARED_CACHE", str(tmp_path / "ours"))
    assert cache_folder() == tmp_path / "ours"
    assert not list(place.iterdir())
