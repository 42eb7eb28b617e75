"""What is in the wheel: every file of the package that is not Python is named."""

import tomllib
from pathlib import Path

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "chunkscope"


def packaged_files() -> set[Path]:
    """The files that the patterns in pyproject.toml put into the wheel."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    files = set()
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
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
