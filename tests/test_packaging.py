"""What is in the wheel, and what is said about installing it."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "chunkscope"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
AT_THE_TOP = {
    *("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"),
    *("chunkscope", "reports", "sample_data", "tests"),
}


def packaged_files() -> set[Path]:
    """The files that the patterns in pyproject.toml put into the wheel."""
    files = set()
    for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items():
        folder = REPOSITORY.joinpath(*package.split("."))
        for pattern in patterns:
            files.update(folder.glob(pattern))
    return files


def test_every_data_file_is_in_the_wheel():
    data_files = set()
    for path in PACKAGE.rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            data_files.add(path)

    assert data_files - packaged_files() == set()


def test_the_sample_data_is_in_the_wheel():
    names = set()
    for path in (REPOSITORY / "sample_data").rglob("*.*"):
        names.add(PACKAGE / path.relative_to(REPOSITORY))

    assert names
    assert names <= packaged_files()


def test_no_hint_installs_the_package_by_a_name_that_is_not_published():
    for path in PACKAGE.rglob("*.*"):
        if path.suffix in (".py", ".md"):
            text = path.read_text(encoding="utf-8")
            assert "install chunkscope" not in text, path
            assert "chunkscope[" not in text, path


def test_links_of_the_readme_work_on_the_package_page():
    readme = (REPOSITORY / "README.md").read_text()

    for target in readme.split("](")[1:]:
        assert target.startswith(("https://", "#")), target.partition(")")[0]


def test_nothing_else_is_at_the_top():
    done = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    names = {line.partition("/")[0] for line in done.stdout.splitlines()}

    assert {name for name in names if not name.startswith(".")} <= AT_THE_TOP
