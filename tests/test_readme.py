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
    shutil.copytree(REPOSITORY / "reports" / "h200", folder / "reports" / "h200")
    return folder


def test_the_readme_shows_commands_and_their_output() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_a_console_block_is_what_the_command_prints(
    checkout: Path, command: str, shown: str
) -> None:
    done = in_bash(command, checkout)
    assert done.returncode == 0, done.stderr
    printed = "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())
    assert printed == shown


def in_bash(line: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    here = f'chunkscope() {{ {shlex.quote(sys.executable)} -m chunkscope "$@"; }}\n'
    here += "" if shutil.which("jq") else "jq() { cat; }\n"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", here + line],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )


SIMULATE = README.split("## simulate: ")[1].split("\n## ")[0]
SIMULATE_LINES = [
    line for block in re.findall(r"```sh\n(.*?)```", SIMULATE, re.S) for line in block.splitlines()
]


def test_the_simulate_section_has_commands_to_try() -> None:
    assert len(SIMULATE_LINES) >= 6


@pytest.mark.parametrize("line", SIMULATE_LINES)
def test_a_line_of_the_simulate_section_works_word_for_word(checkout: Path, line: str) -> None:
    if not (checkout / "reports" / "plan.json").exists():
        for command, _ in BLOCKS[:2]:
            in_bash(command, checkout)
    done = in_bash(line, checkout)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_its_python_works_too() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", SIMULATE, re.S)
    done = subprocess.run(
        [sys.executable, "-c", f"import chunkscope\n{code}"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert done.returncode == 0


def test_the_exit_codes_are_documented() -> None:
    from chunkscope.cli import EXIT_INTERRUPTED
    from chunkscope.errors import EXIT_BUG, ChunkscopeError

    codes = {kind.exit_code for kind in ChunkscopeError.__subclasses__()}
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert documented == codes | {0, EXIT_BUG, EXIT_INTERRUPTED}


def test_the_code_tree_names_every_folder_and_top_level_file() -> None:
    tree = README.split("## The code in one tree")[1]
    package = REPOSITORY / "chunkscope"
    folders = {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").exists()}
    files = {path.name for path in package.glob("*.py")}
    assert not [name for name in sorted(folders | files) if name not in tree]


def test_every_file_in_the_code_tree_exists() -> None:
    tree = README.split("## The code in one tree")[1]
    names = re.findall(r"\b[\w/]+\.py\b", tree)
    missing = [
        name
        for name in names
        if not ((REPOSITORY / name).exists() or (REPOSITORY / "chunkscope" / name).exists())
    ]
    assert not missing
