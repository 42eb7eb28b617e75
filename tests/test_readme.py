"""The README's console blocks are what the commands really print."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
BLOCKS = re.findall(r"```console\n\$ (.+)\n((?:.*\n)*?)```", README)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(REPOSITORY / "sample_data", folder / "sample_data")
    return folder


def test_the_readme_shows_commands_and_their_output() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_a_console_block_is_what_the_command_prints(
    checkout: Path, command: str, shown: str
) -> None:
    program, *words = shlex.split(command)
    assert program == "chunkscope"
    run = subprocess.run(
        [sys.executable, "-m", "chunkscope", *words],
        cwd=checkout,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    printed = "".join(line.rstrip() + "\n" for line in run.stdout.splitlines())
    assert printed == shown


def test_the_exit_codes_are_documented() -> None:
    from chunkscope.cli import EXIT_INTERRUPTED
    from chunkscope.errors import EXIT_BUG, ChunkscopeError

    codes = {kind.exit_code for kind in ChunkscopeError.__subclasses__()}
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert documented == codes | {0, EXIT_BUG, EXIT_INTERRUPTED}


def test_every_file_in_the_code_tree_exists() -> None:
    tree = README.split("## The code in one tree")[1]
    names = re.findall(r"\b[\w/]+\.py\b", tree)
    missing = [
        name
        for name in names
        if not ((REPOSITORY / name).exists() or (REPOSITORY / "chunkscope" / name).exists())
    ]
    assert not missing
