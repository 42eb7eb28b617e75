"""Where the cache goes, and what happens where it cannot go there."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from xxhash import xxh3_128_hexdigest

from chunkscope.artefacts.files import cache_folder, write_atomically
from chunkscope.errors import InputError
from chunkscope.tokenizers.cache import (
    cache_file,
    file_digest,
    prune_cache,
    read_cached,
)


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
    tmp_path, monkeypatch
):
    tmp_path.chmod(0o1777)
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "a" / "new"))
    before = os.umask(0)
    try:
        assert cache_folder().stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    "mode", [0o757, 0o775, None], ids=["all", "the group", "its owner"]
)
def test_a_cache_that_others_could_have_written_is_not_used(
    tmp_path, monkeypatch, mode
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(mode or 0o755)
    if mode is None and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path, os.geteuid() if mode else 4321, -1)
    assert cache_folder() != tmp_path


def test_where_the_system_has_no_owners_the_cache_is_kept(
    tmp_path, monkeypatch
) -> None:
    """Windows: each run would prepare its tokenizer anew."""
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delattr(os, "geteuid")
    assert cache_folder() == tmp_path / "cache"


def test_the_cache_forgets_what_nobody_used_for_thirty_days(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("CHUNKSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    days = {"new": 0, "young": 29, "used": 31, "old": 31}
    for name, age in days.items():
        write_atomically(file := cache_file("results", name), name.encode())
        os.utime(file, (time.time() - age * 24 * 3600,) * 2)
    assert read_cached("results", "used") == b"used"
    prune_cache()
    left = {name: read_cached("results", name) for name in days}
    assert left == {"new": b"new", "young": b"young", "used": b"used", "old": b""}


def test_the_digest_of_a_folder_is_that_of_its_files_and_their_names(
    tmp_path: Path,
) -> None:
    digests = set()
    for n, files in enumerate(
        ({"a": "x", "b": "y"}, {"b": "y", "a": "x"}, {"a": "x", "b/c": "y"})
    ):
        for name, text in files.items():
            write_atomically(tmp_path / str(n) / name, text.encode())
        digests.add(file_digest(tmp_path / str(n)))
    assert len(digests) == 2
    assert file_digest(tmp_path / "0" / "a") == xxh3_128_hexdigest(b"x")


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="taken"):
        write_atomically(tmp_path / "taken", b"x")
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "new", interrupted())
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
