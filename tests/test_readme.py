"""The README's console blocks are what the commands really print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.update_readme import BLOCK, in_bash, make_checkout, printed

README = (REPOSITORY / "README.md").read_text()
BLOCKS = re.findall(BLOCK, README)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("readme"))


def test_the_readme_shows_commands_and_their_output() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_a_console_block_is_what_the_command_prints(
    checkout: Path, command: str, shown: str
) -> None:
    done = in_bash(command, checkout)
    assert done.returncode == 0, done.stderr
    assert printed(done) == shown
    if "results/" in command:  # what a log is, is said beside the figures
        said = re.findall(r"^lm-eval .*requests.*", README, re.MULTILINE)
        assert said
        assert not [line for line in said if line not in done.stderr.splitlines()], done.stderr


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
